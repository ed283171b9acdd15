# merge: delete this file; cli/train.py should call measure_tables.print_measures(rows, title, console).
"""Old name of `measure_tables`."""

from scopil.report import measure_tables


def print_measures(console, rows, title=None):
    measure_tables.print_measures(rows, title, console)
