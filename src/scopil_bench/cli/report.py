"""`scopil report RUN…`: one page on what the policies do, with training curves and episodes to look into.

Of a folder that `scopil study` filled it writes the study's report."""

import os
import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import Progress

from scopil.cli.options import RulesOption, TrustEnv, call, option
from scopil.errors import ConfigError
from scopil.eval.demonstrator import measure_demonstrations
from scopil.eval.env_hooks import cost_drawing, drawing
from scopil.eval.measures import Measures, average
from scopil.eval.pictures import new_figure, save_costs, save_rows
from scopil.eval.rules import Rules, load_rules, with_rules
from scopil.eval.tables import measures_grid, print_measures
from scopil.train.run import Run
from scopil_bench.planning import is_study_folder
from scopil_bench.report import views
from scopil_bench.report.page import Block, Fold, Grid, Items, Picture, Text
from scopil_bench.report.run_groups import IN_A_ROW, episode_rows, evaluation_rows, grouped
from scopil_bench.report.study_page import StudyReport, write_page
from scopil_bench.report.study_tables import Layout
from scopil_bench.report.training_curves import behaviour_panels, inner_panels, save_curves
from scopil_bench.results import Evaluator
from scopil_bench.summaries import Cell, Result, Results, counted

MEANS = "Mean over episodes, then mean ± standard deviation over seeds."


def main(argv: list[str]) -> None:
    call(report, "scopil report", argv)


def report(
    runs: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(help="run folders, or one folder of scopil study", metavar="RUN…"),
    ],
    out: Annotated[
        Path | None, option("where the report goes; default: the run's folder for one run, else ./report", "DIR")
    ] = None,
    rules: RulesOption = None,
    trust_env: TrustEnv = False,
) -> None:
    """Report on runs. Seeds of one algorithm become a mean with a band; each algorithm has its colour."""
    if not runs:
        raise ConfigError("no run folders; want at least one: scopil report RUN…")
    new_figure()  # refuses before minutes of play when matplotlib is missing
    console = Console()
    if len(runs) == 1 and (is_study_folder(runs[0]) or (runs[0] / "results.json").exists()):
        if out is not None:
            raise ConfigError(f"the report of {runs[0]} is written into that folder; omit --out.")
        if rules is not None:
            raise ConfigError(f"{runs[0]} holds a study, which has rules of its own; omit --rules.")
        return _study(runs[0], console, trust_env)
    opened = [Run.open(folder, trust_env=trust_env) for folder in dict.fromkeys(runs)]
    for run in opened:
        run.newest_policy()  # refuses a run without one
    out = out or (opened[0].folder if len(opened) == 1 else Path("report"))
    evaluator = Evaluator(rules=None if rules is None else load_rules(rules))
    given = [*(("--rules", rules) if rules else ()), *(("--trust-env",) if trust_env else ())]
    command = shlex.join(["scopil", "report", *map(str, runs), "--out", str(out), *given])
    try:
        write_page(out, _report(opened, out, command, evaluator, console))
    finally:
        evaluator.close()
    console.print(f"written: {out / 'report.html'}, report.md, report.json and pictures")


def _study(folder: Path, console: Console, trust_env: bool) -> None:
    """From the runs in a study's folder, or where there are none, from its results.json."""
    from scopil_bench.studies.running import report_results, report_study

    report_study(folder, console, trust_env) if is_study_folder(folder) else report_results(folder)
    console.print(f"written: {folder / 'report.html'}, report.md and report.json")


def _report(opened: Sequence[Run], out: Path, command: str, evaluator: Evaluator, console: Console) -> StudyReport:
    """Every environment is a setting, and runs that differ only in their seed are a method."""
    envs = list(dict.fromkeys(run.spec.env for run in opened))
    by_env = {env: grouped([run for run in opened if run.spec.env == env]) for env in envs}
    runs = {Cell(env, name): group for env, groups in by_env.items() for name, group in groups.items()}
    results = _evaluate(runs, evaluator, console)
    draws = {e: draw for e in envs if (draw := drawing(evaluator.env(_first(by_env[e])))) is not None}

    def judged(env: str, episodes: Sequence[Any]) -> Sequence[Any]:
        run = _first(by_env[env])
        rules = evaluator.rules(run)
        return episodes if rules is None else with_rules(episodes, rules, evaluator.env(run))

    pictures, extra, references = {}, {}, {}
    for env, groups in by_env.items():
        tail = f"-{_slug(env.rpartition('/')[2])}" if len(envs) > 1 else ""
        pictures[env] = _pictures(env, groups, out, tail, evaluator)
        references[env] = _demonstrator_rows([r for group in groups.values() for r in group], evaluator)
        rows = references[env] | evaluation_rows(groups)
        print_measures(rows, env, console)
        head, *lines = measures_grid(rows)
        extra[env] = [
            Fold("All measures", [Grid(head, lines), Text(MEANS), *_legend(rows, evaluator.rules(_first(groups)))]),
            *_costs_shown(groups, out, tail, evaluator),
            Fold("Run folders", [_list_of_runs([run for group in groups.values() for run in group])]),
            *(Text(line) for group in groups.values() for run in group if (line := _backward_steps(run))),
        ]
    titles = {cell.method: cell.method for cell in runs}
    return StudyReport(
        title="Report",
        about="",
        layout=Layout({}, titles.__getitem__, references=references, extra=lambda env, _: extra.get(env, [])),
        budget="",
        full_budget="",
        seeds=None,
        command=command,
        results=results,
        missing={},
        failed={},
        answers=[],
        glossary=[],
        method_notes=[],
        ranges=[],
        targets=[],
        timings={},
        versions={},
        pictures=pictures,
        views=views.Views(
            views.curves(runs), views.trays(runs, draws, judged, {}), views.curves(runs, views.of_the_learner)
        ),
        folders={cell: [os.path.relpath(run.folder, out) for run in mine] for cell, mine in runs.items()},
    )


def _first(groups: Mapping[str, Sequence[Run]]) -> Run:
    return next(iter(groups.values()))[0]


def _evaluate(runs: Mapping[Cell, Sequence[Run]], evaluator: Evaluator, console: Console) -> Results:
    """Play what was not played yet: the report itself only reads folders."""
    found: dict[Cell, list[Result]] = {}
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("evaluating", total=sum(map(len, runs.values())))
        for cell, mine in runs.items():
            for run in mine:
                found.setdefault(cell, []).append(evaluator.result(cell, run))
                bar.advance(task)
    return counted(found)


def _pictures(
    env: str, groups: Mapping[str, Sequence[Run]], out: Path, tail: str, evaluator: Evaluator
) -> list[Picture]:
    """For Markdown; the page draws the same itself."""
    metrics = {name: [run.metrics.rows() for run in group] for name, group in groups.items()}
    pictures = [Picture(out / f"curves{tail}.png", "Evaluations during training (greedy)")]
    save_curves(pictures[0].file, metrics, behaviour_panels(metrics), env)
    if inner := inner_panels(metrics):
        pictures.append(Picture(out / f"inner{tail}.png", "Inside the learner"))
        save_curves(pictures[1].file, metrics, inner, env)
    draw = drawing(evaluator.env(_first(groups)))
    for name, group in groups.items():
        if draw is not None and (shown := episode_rows(group)):
            pictures.append(Picture(out / f"episodes-{_slug(name)}{tail}.png", f"Episodes of {name} (greedy)"))
            save_rows(pictures[-1].file, f"{name}, greedy", draw, shown)
    return pictures


def _costs_shown(groups: Mapping[str, Sequence[Run]], out: Path, tail: str, evaluator: Evaluator) -> list[Block]:
    """Maps of learned costs, where there are any."""
    draw, shown = cost_drawing(evaluator.env(_first(groups))), []
    for name, group in groups.items():
        if draw is not None and (costs := _costs(group)):
            file = out / f"constraint-{_slug(name)}{tail}.png"
            save_costs(file, draw, costs)
            shown.append(Picture(file, f"The cost that {name} has learned, with the true constraints outlined"))
    return [Fold("Learned costs", shown)] if shown else []


def _demonstrator_rows(runs: Sequence[Run], evaluator: Evaluator) -> dict[str, Measures]:
    """What the demonstrations do, by the rules of the runs: a row for each set that they learned from."""
    first = {run.spec.demos: run for run in reversed(runs) if run.demos_file.exists()}
    rows: dict[str, Measures] = {}
    for run in reversed(first.values()):
        demos = run.demos()
        assert demos is not None
        found = measure_demonstrations(demos, evaluator.env(run), evaluator.rules(run))
        which = f" {demos.name}" if len(first) > 1 else ""
        rows[f"Demonstrator{which} ({len(demos)} episodes)"] = average(found)
    return rows


def _costs(group: Sequence[Run]) -> dict[str, Any]:
    """The learned costs of the first seeds; empty for algorithms that learn none."""
    found = {}
    for run in group[:IN_A_ROW]:
        cost = run.learned_cost()
        if cost is None:
            return {}
        found[f"seed {run.spec.seed}"] = cost
    return found


def _list_of_runs(runs: Sequence[Run]) -> Grid:
    lines = []
    for run in runs:
        rows = run.metrics.rows()
        done = rows[-1]["env_steps"] if rows else 0
        state = "finished" if run.finished else f"of {run.spec.steps:,}, unfinished"
        lines.append([str(run.folder), run.spec.algorithm.name, str(run.spec.seed), f"{done:,}", state])
    return Grid(["run", "algorithm", "seed", "steps", ""], lines)


def _backward_steps(run: Run) -> str | None:
    """How far the KL bounds let the constraint move; None for a run that learns none."""
    rows = run.metrics.rows()
    last = rows[-1] if rows else {}
    if "constraint/all_steps" not in last:
        return None
    steps, phases = last["constraint/all_steps"], last["constraint/phases"]
    most = phases * run.note()["config"]["backward_iters"]
    return f"{run.folder}: {steps:.0f} backward steps made in {phases:.0f} phases, of at most {most:.0f}."


def _slug(name: str) -> str:
    """For file names. Letters beyond ASCII are spelt out: SCOPIL-ρ and SCOPIL must not share a picture."""
    spelt = "".join(c if c.isascii() else unicodedata.name(c, "").rpartition(" ")[2] for c in name)
    return re.sub(r"[^a-z0-9.=]+", "-", spelt.lower()).strip("-")


def _legend(rows: Mapping[str, Mapping[str, Any]], rules: Rules | None) -> list[Block]:
    """What each rule is; empty where nothing is counted."""
    names = dict.fromkeys(
        name.partition("/")[2] for row in rows.values() for name in row if name.startswith("violations/")
    )
    if not names:
        return []
    about = {} if rules is None else rules.about
    lines = [f"{name}: {about[name]}" for name in sorted(names) if name in about]
    head = Text("Violations (rule): the states of an episode that break the rule.")
    return [head, Items(lines)] if lines else [head]
