"""`scopil study NAME` runs a built-in study or a study in a file, from training to the report. `scopil reproduce` is
the same as `scopil study paper`."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import tyro

from scopil.cli.interrupts import raised
from scopil.cli.options import call, option
from scopil.errors import ConfigError
from scopil.terminal import Console
from scopil_bench import studies
from scopil_bench.cli.workers import Workers, number_of
from scopil_bench.local import Local
from scopil_bench.report.study_page import StudyReport
from scopil_bench.runner import Engine
from scopil_bench.studies.running import check_budget, run_study
from scopil_bench.summaries import Cell


def main(argv: list[str]) -> int:
    return call(study, "scopil study", argv)


def reproduce_main(argv: list[str]) -> int:
    return call(study, "scopil reproduce", ["paper", *argv])


def study(
    name: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(help=f"one of {', '.join(studies.names())}, or my_study.toml", metavar="STUDY"),
    ],
    only: Annotated[
        str, option("only these tables of the study (paper: simple,multiple,two-modes,ablation,yardsticks)", "A,B")
    ] = "",
    seeds: Annotated[int | None, option("runs per method; default: the budget's (paper: 10, short: 2)", "N")] = None,
    budget: Annotated[
        str | None, option("paper, or short (a trial of minutes); default: the study's first", "NAME")
    ] = None,
    steps: Annotated[int | None, option("environment steps per run; default: the budget's", "N")] = None,
    workers: Workers = None,
    engine: Annotated[Literal["local", "ray"], tyro.conf.arg(help="processes on this machine, or Ray")] = "local",
    address: Annotated[
        str | None, option("address of a Ray cluster; default: Ray on this machine", "HOST:PORT")
    ] = None,
    gpus: Annotated[float, tyro.conf.arg(help="share of a GPU per run (Ray)", metavar="X")] = 0.0,
    out: Annotated[
        Path | None, option("folder of runs and results; default: out/reproduce, or out/STUDY", "DIR")
    ] = None,
    check: Annotated[bool, tyro.conf.arg(help="exit with 1 if a result is outside its expected range")] = False,
) -> int:
    """Train, evaluate and report. It can be stopped at any time and continued."""
    found = studies.find(name)
    budget, workers = check_budget(found, budget), number_of(workers)
    for what, value in (("seeds", seeds), ("steps", steps)):
        if value is not None and value < 1:
            raise ConfigError(f"--{what} {value}; want at least 1.")
    if check and not (found.expectations and found.expectations(budget, {})[0]):
        raise ConfigError(f"--check: {found.name} has no expected ranges for --budget {budget}; omit --check.")
    tables = [part for part in only.split(",") if part]
    wanted = found.cells(tables)
    out = out or Path("out", "reproduce" if name == "paper" else found.name)
    console = Console()
    with raised((signal.SIGINT, signal.SIGTERM)), _engine(engine, address, gpus) as where:  # workers save on a signal
        how = {"budget": budget, "only": tables, "seeds": seeds, "steps": steps, "workers": workers}
        report = run_study(found, out, **how, engine=where, console=console)
    code = say_results(report, out, console)
    return max(code, _say_outside(report, wanted, console)) if check else code


@contextmanager
def _engine(name: str, address: str | None, gpus: float) -> Iterator[Engine]:
    if name == "local":
        if address or gpus:
            raise ConfigError("--address and --gpus are options of Ray; add --engine ray, or omit them.")
        yield Local()
        return
    from scopil_bench.ray_cluster import Cluster  # Ray is an optional dependency

    cluster = Cluster(address, gpus)
    try:
        yield cluster
    finally:
        cluster.close()


def say_results(report: StudyReport, out: Path, console: Console) -> int:
    """Print which runs failed and what was written. Returns the exit code."""
    finished = sum(map(len, report.results.values()))
    console.print(f"{finished} of {finished + len(report.missing)} runs finished")
    for run, line in report.failed.items():
        console.print(f"failed: {run}: {line}", soft_wrap=True)
    console.print(f"written: {out / 'report.html'} and report.md", soft_wrap=True)
    return int(bool(report.failed))


def _say_outside(report: StudyReport, wanted: Sequence[Cell], console: Console) -> int:
    """Print which results of the wanted cells are outside their expected ranges. Returns the exit code."""
    judged = [v for v in report.ranges if v.cell in wanted]
    outside = [v for v in judged if not v.holds]
    for verdict in outside:
        console.print(f"outside its range: {verdict.words()}", soft_wrap=True)
    if not outside:
        console.print(f"all {len(judged)} expected ranges hold")
    return int(bool(outside))
