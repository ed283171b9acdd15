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
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 10_000  # rich takes 80 for a file or a pipe
    table = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        numbers = name in ("seed", "steps", "reward", "violations")
        table.add_column(name, justify="right" if numbers else "left", no_wrap=numbers, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


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
