"""`scopil report RUN…`: training curves, episodes and a table of what the policies do.

Of a folder that `scopil reproduce` filled it writes the study's report."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import Progress

from scopil.cli.options import RulesOption, TrustEnv, call, option
from scopil.errors import ConfigError
from scopil.evaluate.demonstrator import measure_demonstrations
from scopil.evaluate.measures import Measures, average
from scopil.evaluate.offers import cost_drawing, drawing
from scopil.evaluate.rules import load_rules
from scopil.experiments.planning import is_study_folder
from scopil.experiments.results import Evaluator
from scopil.files import write_atomically
from scopil.report.episode_pictures import save_costs, save_rows
from scopil.report.measure_tables import legend, measures_grid, print_measures
from scopil.report.page import Block, Grid, Heading, Picture, Text, to_markdown
from scopil.report.run_groups import IN_A_ROW, episode_rows, evaluation_rows, grouped
from scopil.report.training_curves import behaviour_panels, inner_panels, new_figure, save_curves
from scopil.train.run import Run


def main(argv: list[str]) -> None:
    call(report, "scopil report", argv)


def report(
    runs: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(help="run folders, or one folder of scopil reproduce", metavar="RUN…"),
    ],
    out: Annotated[
        Path | None,
        option(
            "where pictures and report.md go; default: the run's folder for one run, else ./report", "DIR"
        ),
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
        return _study(runs[0], console, trust_env)
    opened = [Run.open(folder, trust_env=trust_env) for folder in dict.fromkeys(runs)]
    for run in opened:
        run.newest_policy()  # refuses a run without one
    out = out or (opened[0].folder if len(opened) == 1 else Path("report"))
    evaluator = Evaluator(rules=None if rules is None else load_rules(rules))
    try:
        _evaluate(opened, evaluator, console)
        page: list[Block] = []
        envs = list(dict.fromkeys(run.spec.env for run in opened))
        for env in envs:
            mine = [run for run in opened if run.spec.env == env]
            tail = f"-{_slug(env.rpartition('/')[2])}" if len(envs) > 1 else ""
            page += _section(env, mine, out, tail, evaluator, console)
    finally:
        evaluator.close()
    write_atomically(out / "report.md", to_markdown("Report", page, out).encode())
    console.print(f"written: {out / 'report.md'} and its pictures")


def _study(folder: Path, console: Console, trust_env: bool) -> None:
    """From the runs in a study's folder, or where there are none, from its results.json."""
    from scopil.studies.running import report_results, report_study

    report_study(folder, console, trust_env) if is_study_folder(folder) else report_results(folder)
    console.print(f"written: {folder / 'report.html'} and report.md")


def _evaluate(runs: Sequence[Run], evaluator: Evaluator, console: Console) -> None:
    """Play what was not played yet: the report itself only reads folders."""
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("evaluating", total=len(runs))
        for run in runs:
            evaluator.evaluation(run)
            bar.advance(task)


def _section(
    env: str, runs: Sequence[Run], out: Path, tail: str, evaluator: Evaluator, console: Console
) -> list[Block]:
    """Pictures and table of the runs on one environment; returns its part of report.md."""
    groups = grouped(runs)
    metrics = {name: [run.metrics.rows() for run in group] for name, group in groups.items()}
    pictures = [(f"curves{tail}.png", "Evaluations during training (greedy)")]
    save_curves(out / pictures[0][0], metrics, behaviour_panels(metrics), env)
    if inner := inner_panels(metrics):
        pictures.append((f"inner{tail}.png", "Inside the learner"))
        save_curves(out / pictures[1][0], metrics, inner, env)
    opened = evaluator.env(runs[0])
    for name, group in groups.items():
        if (draw := drawing(opened)) is not None and (shown := episode_rows(group)):
            file = f"episodes-{_slug(name)}{tail}.png"
            save_rows(out / file, f"{name}, greedy", draw, shown)
            pictures.append((file, f"Episodes of {name} (greedy)"))
        if (draw := cost_drawing(opened)) is not None and (costs := _costs(group)):
            file = f"constraint-{_slug(name)}{tail}.png"
            save_costs(out / file, draw, costs)
            pictures.append((file, f"The cost that {name} has learned, with the true constraints outlined"))
    rows = _demonstrator_rows(runs, evaluator) | evaluation_rows(groups)
    print_measures(rows, env, console)
    means = Text("Mean over episodes, then mean ± standard deviation over seeds.")
    shown = [Picture(out / file, caption) for file, caption in pictures]
    backward = [Text(line) for run in runs if (line := _backward_steps(run))]
    rules = legend(rows, evaluator.rules(runs[0]))
    return [Heading(env), measures_grid(rows), means, *rules, *shown, _list_of_runs(runs), *backward]


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
    return re.sub(r"[^a-z0-9.=]+", "-", name.lower()).strip("-")
