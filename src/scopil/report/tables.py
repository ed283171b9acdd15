"""Tables of measures, for the terminal and for Markdown."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from scopil.evaluate.metrics import Measures, label

Value = float | tuple[float, float]
_BOUNDLESS = Console(width=10_000)


def columns(rows: Mapping[str, Mapping[str, Value]]) -> list[str]:
    """Every measure that occurs, in the paper's order: reward, then kind by kind, sums, length, steps."""
    seen = list(dict.fromkeys(name for row in rows.values() for name in row))
    kinds = sorted({name.partition("/")[2] for name in seen if "/" in name}, key=kind_order)
    wanted = ["reward"]
    for kind in kinds:
        wanted += [f"violations/{kind}", f"frequency/{kind}"]
    if len(kinds) != 1:  # the sum of one kind is that kind
        wanted += ["violations", "frequency"]
    wanted += ["avoidable", "length", "steps", "reached"]
    return [name for name in wanted if name in seen]


def kind_order(kind: str) -> tuple[int, str]:
    order = ["horizontal", "vertical", "circle"]
    return (order.index(kind) if kind in order else len(order), kind)


def cell(name: str, value: Value | None) -> str:
    if value is None:
        return "–"
    digits = 4 if name.startswith("frequency") else 3 if name.startswith(("violations", "avoidable")) else 2
    if isinstance(value, tuple):
        return f"{value[0]:.{digits}f}±{value[1]:.{digits}f}"
    return f"{value:.{digits}f}"


def heading(name: str, names: Sequence[str]) -> str:
    """The paper's letters; the sum is called after its parts, H+C or H+V+C."""
    kinds = "+".join(label(n) for n in names if n.startswith("violations/"))
    if name == "violations" and kinds:
        return kinds
    return f"F({kinds})" if name == "frequency" and kinds else label(name)


def print_measures(
    console: Console, rows: Mapping[str, Mapping[str, Value]], title: str | None = None
) -> None:
    """A row a policy; where that is too wide for the terminal, a row a measure."""
    wide, tall = measures_table(rows, title), measures_table(rows, title, tall=True)
    needs, needs_tall = (Measurement.get(_BOUNDLESS, _BOUNDLESS.options, t).maximum for t in (wide, tall))
    if needs > console.width and needs_tall < needs:
        wide, needs = tall, needs_tall
    width = max(console.width, needs)  # wider than the terminal still beats columns cut to dots
    Console(file=console.file, width=width, force_terminal=console.is_terminal).print(wide)


def measures_table(
    rows: Mapping[str, Mapping[str, Value]], title: str | None = None, tall: bool = False
) -> Table:
    names = columns(rows)
    cells = [["", *(heading(name, names) for name in names)]]
    cells += [[row_name, *(cell(name, row.get(name)) for name in names)] for row_name, row in rows.items()]
    if tall:
        cells = [list(column) for column in zip(*cells)]
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for i, head in enumerate(cells[0]):
        table.add_column(head, justify="right" if i else "left", no_wrap=True)
    for line in cells[1:]:
        table.add_row(*line)
    return table


def markdown_table(rows: Mapping[str, Mapping[str, Value]]) -> str:
    names = columns(rows)
    lines = ["| | " + " | ".join(heading(n, names) for n in names) + " |", "|---" * (len(names) + 1) + "|"]
    lines += [f"| {k} | " + " | ".join(cell(n, row.get(n)) for n in names) + " |" for k, row in rows.items()]
    return "\n".join(lines) + "\n"


def per_game(measures: Sequence[Measures]) -> dict[str, Measures]:
    return {f"game {i}": m for i, m in enumerate(measures)}
