"""`scopil reproduce`: the paper's experiments, from training to the report card."""

import json
import os
import shlex
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

# Before JAX starts: evaluation then computes what training computed (see scopil.cli.train).
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import tyro
from rich.console import Console
from rich.progress import Progress

from scopil.cli.options import option
from scopil.errors import ConfigError
from scopil.experiments import expected, paper, results
from scopil.experiments.execute import Engine, execute_with_progress, name, prepare
from scopil.experiments.local import Local
from scopil.experiments.paper import BUDGETS, Cell
from scopil.report import card, figures
from scopil.report.compare import shown_groups
from scopil.report.curves import new_figure
from scopil.report.page import Picture
from scopil.train.run import Run

DRIFTED = 1


def main(argv: list[str]) -> int:
    return tyro.cli(reproduce, prog="scopil reproduce", args=argv, config=(tyro.conf.FlagCreatePairsOff,))


def reproduce(
    only: Annotated[str, option(f"some of {','.join(paper.GROUPS)}; default: all", "A,B")] = "",
    seeds: Annotated[int | None, option("runs a method; default: 10 (paper) or 2 (short)", "N")] = None,
    budget: Annotated[
        Literal["paper", "short"], tyro.conf.arg(help="the paper's, or minutes to try the machinery")
    ] = "paper",
    workers: Annotated[int, tyro.conf.arg(help="runs at a time, one core each", metavar="N")] = 2,
    engine: Annotated[
        Literal["local", "ray"], tyro.conf.arg(help="this machine's processes, or Ray")
    ] = "local",
    address: Annotated[
        str | None, option("of a Ray cluster; default: Ray on this machine", "HOST:PORT")
    ] = None,
    gpus: Annotated[float, tyro.conf.arg(help="share of a GPU that a run asks Ray for", metavar="X")] = 0.0,
    out: Annotated[Path, tyro.conf.arg(help="where runs and results go", metavar="DIR")] = Path(
        "out/reproduce"
    ),
    check: Annotated[
        bool, tyro.conf.arg(help="exit with 1 when a result lies outside its expected range")
    ] = False,
) -> int:
    """Train, evaluate and report. Stop it at any time; called again it goes on where it was."""
    seeds = BUDGETS[budget].seeds if seeds is None else seeds
    for what, value in (("seeds", seeds), ("workers", workers)):
        if value < 1:
            raise ConfigError(f"--{what} {value}; want at least 1.")
    if check and not expected.load(budget)[0]:
        raise ConfigError(f"--check: no expected ranges are kept for --budget {budget}; leave it out.")
    new_figure()  # refuses before hours of training when matplotlib is missing
    console = Console()
    wanted = paper.cells([part for part in only.split(",") if part])
    todo = [run for runs in _runs(out, budget, wanted, seeds).values() for run in runs]
    todo.sort(key=lambda run: run.spec.seed)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # workers save, as after Ctrl-C
    try:
        with _engine(engine, address, gpus) as where:
            failed = execute_with_progress(todo, workers, console, where)
    finally:
        signal.signal(signal.SIGTERM, before)
    tell = {name(run): words for run in todo if (words := failed.get(run.folder))}
    options = {"--only": only, "--seeds": str(seeds), "--budget": budget, "--out": str(out)}
    command = shlex.join(["scopil", "reproduce", *(w for k, v in options.items() if v for w in (k, v))])
    report = _write(out, budget, command, _found(out, budget), tell, console)
    return _verdict(report, wanted, check, console)


def is_reproduction(folder: Path) -> bool:
    return any(_run_files(folder))


def _run_files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.glob("runs/*/*/run.json") if file.parents[1].name in paper.PRINTED)


def report_card(out: Path, console: Console) -> None:
    """The page of what is finished in a folder of `scopil reproduce`; nothing is trained."""
    first = Run.open(next(file.parent for file in _run_files(out)))
    cell = Cell(first.folder.parent.name, first.spec.algorithm)
    for budget, rules in BUDGETS.items():
        if rules.spec(cell, first.spec.seed).steps == first.spec.steps:
            command = shlex.join(["scopil", "reproduce", "--budget", budget, "--out", str(out)])
            _write(out, budget, command, _found(out, budget), {}, console)
            console.print(f"written: {out / 'report.html'} and report.md")
            return
    raise ConfigError(f"{first.folder} has {first.spec.steps:,} steps, as no budget of scopil reproduce has.")


@contextmanager
def _engine(name: str, address: str | None, gpus: float) -> Iterator[Engine]:
    if name == "local":
        if address or gpus:
            raise ConfigError("--address and --gpus are Ray's; add --engine ray, or leave them out.")
        yield Local()
        return
    from scopil.experiments.cluster import Cluster  # Ray is an extra

    cluster = Cluster(address, gpus)
    try:
        yield cluster
    finally:
        cluster.close()


def _runs(out: Path, budget: str, wanted: Sequence[Cell], seeds: int) -> dict[Cell, list[Run]]:
    runs: dict[Cell, list[Run]] = {}
    for cell, folder, spec in paper.plan(out, BUDGETS[budget], wanted, seeds):
        runs.setdefault(cell, []).append(prepare(folder, spec))
    return runs


def _found(out: Path, budget: str) -> dict[Cell, list[Run]]:
    """Every run in the folder, whichever call began it."""
    runs: dict[Cell, list[Run]] = {}
    for cell in paper.cells():
        files = (out / "runs" / cell.setting).glob(f"{cell.algorithm}-[0-9]*/run.json")
        for seed in sorted(int(file.parent.name.rpartition("-")[2]) for file in files):
            spec = BUDGETS[budget].spec(cell, seed)
            runs.setdefault(cell, []).append(prepare(paper.folder(out, cell, seed), spec))
    return runs


def _write(
    out: Path,
    budget: str,
    command: str,
    runs: Mapping[Cell, Sequence[Run]],
    failed: Mapping[str, str],
    console: Console,
) -> card.Report:
    finished = {
        cell: [r for r in rs if r.finished] for cell, rs in runs.items() if any(r.finished for r in rs)
    }
    missing = {name(r): results.state(r) for rs in runs.values() for r in rs if not r.finished}
    evaluator = results.Evaluator()
    played: dict[Cell, list[results.Result]] = {}
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("playing", total=sum(map(len, finished.values())))
        for cell, mine in finished.items():
            for run in mine:
                played.setdefault(cell, []).append(evaluator.result(cell, run))
                bar.advance(task)
        task = bar.add_task("drawing", total=None)
        pictures = _pictures(out, played, finished, evaluator)
    all_results = [r for rs in played.values() for r in rs]
    results.save(out, budget, all_results, missing)
    timings = results.timings([r for rs in finished.values() for r in rs])
    results.save_timings(out, timings)
    ranges, targets = (expected.judge(e, played) for e in expected.load(budget))
    report = card.Report(
        budget=budget,
        command=command,
        results=played,
        missing=missing,
        failed=failed,
        ranges=[v for v in ranges if v.expectation.cell in runs],
        targets=[v for v in targets if v.expectation.cell in runs],
        timings=timings,
        versions=_versions([r for rs in finished.values() for r in rs]),
        pictures=pictures,
    )
    card.write(out, report)
    return report


def _pictures(
    out: Path,
    played: Mapping[Cell, Sequence[results.Result]],
    finished: figures.Runs,
    evaluator: results.Evaluator,
) -> list[Picture]:
    gallery = figures.Gallery(out / "figures")
    pictures = []
    for setting in dict.fromkeys(cell.setting for cell in finished):
        run = next(mine[0] for cell, mine in finished.items() if cell.setting == setting)
        pictures.append(figures.demonstrations(gallery, setting, run))
    for group in shown_groups(played):
        pictures += figures.curves(gallery, group, finished)
    pictures += [figures.trays(gallery, cell, mine, evaluator) for cell, mine in finished.items()]
    return pictures


def _versions(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Of every package, all that runs were begun with."""
    seen: dict[str, set[str]] = {}
    for run in runs:
        for package, version in json.loads((run.folder / "versions.json").read_text()).items():
            seen.setdefault(package, set()).add(version)
    return {package: sorted(versions) for package, versions in seen.items()}


def _verdict(report: card.Report, wanted: Sequence[Cell], check: bool, console: Console) -> int:
    console.print(f"{sum(map(len, report.results.values()))} finished runs, {len(report.missing)} unfinished")
    for run, words in report.failed.items():
        console.print(f"failed: {run}: {words}", markup=False, soft_wrap=True)
    judged = [v for v in report.ranges if v.expectation.cell in wanted] if check else []
    drifted = [v for v in judged if not v.holds]
    for verdict in drifted:
        console.print(f"outside its range: {verdict.words()}", markup=False, soft_wrap=True)
    if check and not drifted:
        console.print(f"all {len(judged)} expected ranges hold")
    return DRIFTED if drifted or report.failed else 0
