"""`scopil runs FOLDER` lists the runs below a folder. It plays no episodes and imports no code that the runs name."""

import os
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table
from rich.text import Text

from scopil.cli.options import call
from scopil.errors import ScopilError
from scopil.terminal import Console
from scopil.train.run import Run, last_output

COLUMNS = ("run", "algorithm", "environment", "seed", "steps", "state", "reward", "violations")


def main(argv: list[str]) -> None:
    call(runs, "scopil runs", argv)


def runs(
    folder: Annotated[
        tyro.conf.Positional[Path], tyro.conf.arg(help="the folder to search", metavar="FOLDER")
    ] = Path(),
) -> None:
    """List runs: reward and violations are those of the last evaluation during training."""
    if not folder.is_dir():
        raise ScopilError(f"{folder} is not a folder.")
    found = sorted(file.parent for file in folder.rglob("run.json"))
    if not found:
        raise ScopilError(f"no runs in {folder}; scopil train makes one.")
    rows = [_row(each, folder) for each in found]
    console = Console()
    known = console.is_terminal or "COLUMNS" in os.environ
    width = console.width if known else 10_000  # rich takes 80 for a file or a pipe
    table = Table(box=None, pad_edge=False)
    columns = _fitted([list(COLUMNS), *rows], width)
    for name, *_ in columns:
        justify = "right" if name in ("seed", "steps", *COLUMNS[-2:]) else "left"
        table.add_column(name, justify=justify, no_wrap=name != "state")
    for row in zip(*(cells for _, *cells in columns)):
        table.add_row(*map(Text, row))
    Console(width=width).print(table)


def _fitted(rows: list[list[str]], width: int) -> list[list[str]]:
    """The columns of a table that fits the width: without the environment, and with the ends of long names, which tell
    runs apart."""
    columns = [list(column) for column in zip(*rows)]

    def excess() -> int:
        lengths = [min(max(map(len, c)), 12 if c[0] == "state" else width) for c in columns]  # the state may wrap
        return sum(lengths) + 2 * (len(columns) - 1) - width

    if excess() > 0:
        columns = [column for column in columns if column[0] != "environment"]
    room = max(8, max(map(len, columns[0])) - max(0, excess()))
    columns[0] = [name if len(name) <= room else "…" + name[1 - room :] for name in columns[0]]
    return columns


def _row(folder: Path, below: Path) -> list[str]:
    name = str(folder.relative_to(below))
    try:
        run = Run.open(folder)
    except ScopilError as error:
        return [name, "", "", "", "", f"unreadable: {error}", "", ""]
    spec = run.spec
    last: dict[str, Any] = {}
    for row in run.metrics.rows():
        last |= {key: value for key, value in row.items() if key.startswith("eval/")}
    figures = [last.get("eval/reward"), last.get("eval/violations")]
    steps = f"{run.steps_done:,} of {spec.steps:,}"
    shown = ["" if value is None else f"{value:.2f}" for value in figures]
    return [name, spec.algorithm.name, spec.env, str(spec.seed), steps, _state(run), *shown]


def _state(run: Run) -> str:
    if run.finished:
        return "finished"
    if run.training:
        return "training"
    if (line := last_output(run.folder)).startswith("error:"):
        return f"failed: {line.removeprefix('error:').strip()}"
    return "stopped" if run.begun else "not started"
