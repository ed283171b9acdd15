"""Runs a study, from training to the report."""

import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress

from scopil.errors import ConfigError
from scopil.eval.measures import Measures, label
from scopil.eval.pictures import new_figure
from scopil.files import write_atomically
from scopil.terminal import Console
from scopil.train.run import Run
from scopil_bench import planning, results
from scopil_bench.report import study_page
from scopil_bench.report.page import Block, Fold, Grid, Text
from scopil_bench.report.study_page import StudyReport
from scopil_bench.report.study_tables import Layout
from scopil_bench.report.views import views_of
from scopil_bench.runner import Engine, execute_with_progress, name, outlook
from scopil_bench.studies import find, find_installed
from scopil_bench.studies.base import Study
from scopil_bench.summaries import Cell, Results
from scopil_bench.tuning import read_trials

REFERENCES = "references.json"  # measures of the demonstrators, by task


def run_study(
    study: str | Study,
    out: str | Path,
    *,
    budget: str | None = None,
    only: Sequence[str] = (),
    seeds: int | None = None,
    steps: int | None = None,
    workers: int = 2,
    engine: Engine | None = None,
    console: Console | None = None,
    command: str | None = None,
) -> StudyReport:
    """Train, evaluate and report a study. It can be stopped at any time; a second call continues it.

    Args:
        study: a name, or a `Study`.
        out: folder of runs, results and the report.
        budget: the name of one of the study's budgets; by default the first.
        only: the names of the tables to run; by default all.
        seeds: runs per method; by default the number in the budget.
        steps: environment steps per run; by default the number in the budget.
        workers: the number of parallel runs, one core each.
        engine: starts the runs; by default they are processes on this machine.
        console: receives progress and messages.
        command: the command that repeats the study, for the report; by default `scopil study`.
    """
    study = find(study) if isinstance(study, str) else study
    budget, out, console = check_budget(study, budget), Path(out), console or Console()
    seeds = study.budgets[budget].seeds if seeds is None else seeds
    for what, value in (("seeds", seeds), ("workers", workers)):
        if value < 1:
            raise ConfigError(f"{what} = {value}; want at least 1.")
    wanted = study.cells(only)
    new_figure()  # fails before the training if matplotlib is missing
    todo = planning.create(study, out, budget, wanted, seeds, steps)
    console.print(outlook(todo, workers), soft_wrap=True)
    failed = execute_with_progress(todo, workers, console, engine)
    lines = {name(run): line for run in todo if (line := failed.get(run.folder))}
    options = {"--only": ",".join(only), "--seeds": str(seeds), "--budget": budget, "--out": str(out)}
    options |= {} if steps is None else {"--steps": str(steps)}
    return write_report(study, out, command or command_for(study, options), lines, console)


def report_study(out: Path, console: Console, trust_env: bool = False) -> StudyReport:
    """Write the report of the finished runs in a study's folder, without training. A study in a file is code: without
    `trust_env` it is refused unless this user made the folder and the code is unchanged."""
    note = planning.read_note(out)
    if note.source is not None and not trust_env:
        planning.refuse_foreign(out, note)
    if not any((out / "runs").glob("*/*/run.json")):  # the report would replace results.json by an empty one
        raise ConfigError(f"{out} has no run folders; the report that was made from them stays as it is.")
    study = find_installed(note.study) if note.source is None else find(note.source)
    options = {"--budget": note.budget, "--out": str(out)}
    options |= {} if note.steps is None else {"--steps": str(note.steps)}
    return write_report(study, out, command_for(study, options), {}, console)


def command_for(study: Study, options: Mapping[str, str]) -> str:
    """The command that repeats the study."""
    words = ["scopil", "study", study.source or study.name]
    return shlex.join([*words, *(word for pair in options.items() if pair[1] for word in pair)])


def check_budget(study: Study, budget: str | None) -> str:
    if budget is None:
        return next(iter(study.budgets))
    if budget not in study.budgets:
        raise ConfigError(f"{study.name} has no budget {budget!r}; it has {', '.join(study.budgets)}.")
    return budget


def write_report(study: Study, out: Path, command: str, failed: Mapping[str, str], console: Console) -> StudyReport:
    """Evaluate the runs that have no evaluation yet, and write results, tables and the page."""
    note = planning.read_note(out)
    budget = check_budget(study, note.budget)
    runs = planning.found(study, out)
    finished = results.finished(runs)
    missing = {name(r): results.state(r) for rs in runs.values() for r in rs if not r.finished}
    with Progress(console=console, transient=True) as bar, results.Evaluator(study) as evaluator:
        task = bar.add_task("evaluating", total=sum(map(len, finished.values())))
        played = results.evaluate_runs(evaluator, finished, lambda: bar.advance(task))
        layout = layout_of(study, _references(study, out, played))
        bar.add_task("drawing", total=None)
        shown = views_of(finished, played, evaluator)
    results.save(out, study.name, budget, results.all_of(played), missing)
    timings = results.save_timings(out, finished, played)
    report = _report(
        study,
        budget,
        played,
        runs,
        note.steps,
        command=command,
        layout=layout,
        missing=missing,
        timings=timings,
        views=shown,
        folders={cell: [os.path.relpath(run.folder, out) for run in each] for cell, each in finished.items()},
        failed=failed,
        versions=_versions([r for rs in finished.values() for r in rs]),
        tuning=_tuning(out),
    )
    study_page.write(out, report)
    return report


def _report(
    study: Study, budget: str, played: Results, cells: Iterable[Cell], steps: int | None = None, **more: Any
) -> StudyReport:
    """`cells` are those with runs, finished or not; the others' expected ranges are left out. `more` are the fields of
    the report that the study does not give."""
    ranges, targets = study.expectations(budget, played) if study.expectations else ([], [])
    judged = set(cells)
    return StudyReport(
        title=study.title,
        about=study.about,
        question=study.question,
        budget=budget if steps is None else f"{budget}, {steps:,} steps",
        full_budget=next(iter(study.budgets)),
        seeds=study.budgets[budget].seeds,
        results=played,
        answers=study.answers(played) if study.answers else [],
        glossary=study.glossary,
        method_notes=study.method_notes,
        ranges=[v for v in ranges if v.cell in judged],
        targets=[v for v in targets if v.cell in judged],
        **more,
    )


def _tuning(out: Path) -> list[Block]:
    """The trials of `scopil tune` in this folder, sorted from best to worst."""
    trials = sorted((t for t in read_trials(out) if t.done), key=lambda t: -t["value"])
    if not trials:
        return []
    names, measures = list(trials[0]["settings"]), list(trials[0]["measures"])[:4]
    text = (
        f"{len(trials)} trials by scopil tune, the best first. Their seeds and starts are not those of other figures "
        f"on this page."
    )
    rows = []
    for number, trial in enumerate(trials[:10], 1):
        chosen = [str(trial["settings"][n]) for n in names]
        found = [f"{trial['measures'][m]:.4g}" for m in measures]
        rows.append([str(number), f"{trial['value']:.4g}", *chosen, *found])
    head = ["", "Value", *names, *map(label, measures)]
    return [Fold("Settings that were searched", [Text(text), Grid(head, rows)])]


def layout_of(study: Study, references: Mapping[str, Mapping[str, Measures]] | None = None) -> Layout:
    published = study.published
    return Layout(
        tables=study.tables,
        title_of=study.title_of,
        source=published.source if published else "",
        printed=published.printed if published else {},
        references=references or {},
        extra=study.extra_tables,
    )


def _references(study: Study, out: Path, played: Results) -> dict[str, dict[str, Measures]]:
    """The demonstrators' measures, cached in the folder. For a study from a file they are computed every time, because
    the files that it names may change."""
    kept = {} if study.source is not None else _read_references(out)
    settings = dict.fromkeys(cell.setting for cell in played)
    if new := {s: results.demonstrator_measures(study, s) for s in settings if s not in kept}:
        kept |= new
        if study.source is None:
            write_atomically(out / REFERENCES, json.dumps(kept, indent=1, sort_keys=True).encode() + b"\n")
    return {setting: kept[setting] for setting in settings}


def _read_references(out: Path) -> dict[str, dict[str, Measures]]:
    try:
        return json.loads((out / REFERENCES).read_text())
    except (OSError, ValueError):
        return {}


def _versions(runs: Sequence[Run]) -> dict[str, list[str]]:
    """For each package, all versions that the runs were created with."""
    seen: dict[str, set[str]] = {}
    for run in runs:
        for package, version in json.loads((run.folder / "versions.json").read_text()).items():
            seen.setdefault(package, set()).add(version)
    return {package: sorted(versions) for package, versions in seen.items()}
