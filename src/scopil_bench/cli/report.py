"""`scopil report RUN…`: write one page about the policies of runs, with training curves and episodes.

For a folder of `scopil study`, the command writes the study's report.
"""

import os
import re
import shlex
import unicodedata
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.progress import Progress

from scopil.cli.options import RulesOption, TrustEnv, call, option
from scopil.cli.rules import found_rules
from scopil.errors import ConfigError
from scopil.eval.episodes import measure_demonstrations
from scopil.eval.measures import Measures, mean_and_std
from scopil.eval.pictures import new_figure, save_costs
from scopil.eval.rules import Rules, load_rules
from scopil.eval.tables import NEVER, Value, measures_grid, print_measures, rules_not_known, with_bounds
from scopil.terminal import Console
from scopil.train.run import Run
from scopil_bench import results
from scopil_bench.planning import is_study_folder
from scopil_bench.report.page import Block, Fold, Grid, Items, Picture, Text
from scopil_bench.report.rule_maps import save_map
from scopil_bench.report.study_page import StudyReport, write
from scopil_bench.report.study_tables import Layout
from scopil_bench.report.summary import VIOLATING
from scopil_bench.report.views import views_of
from scopil_bench.results import Evaluator
from scopil_bench.summaries import Cell, Result, in_words

MEANS = (
    "Mean over episodes, then mean ± standard deviation over seeds; of a single run, ± half of the 95 % interval over "
    "its episodes."
)
MAPS = (
    "Orange: the novelty of transitions. Black points or grey bars: demonstrated transitions. Blue: the region that "
    "the sentence says is avoided."
)
COSTS = 4  # largest number of learned-cost maps in a row

Groups = Mapping[str, Sequence[Run]]  # runs by title; the runs of a group differ only in their seed


def main(argv: list[str]) -> None:
    call(report, "scopil report", argv)


def report(
    runs: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(help="run folders, or one folder of scopil study", metavar="RUN…"),
    ],
    out: Annotated[
        Path | None, option("folder for the report; default: the run's folder for one run, else ./report", "DIR")
    ] = None,
    rules: RulesOption = None,
    trust_env: TrustEnv = False,
) -> None:
    """Report on runs. Seeds of one algorithm become a mean with a band; each algorithm has its colour."""
    if not runs:
        raise ConfigError("no run folders; want at least one: scopil report RUN…")
    if out is not None and out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file; want a folder.")
    new_figure()  # raises if matplotlib is missing, before an evaluation that takes minutes
    console, folder = Console(), runs[0]
    alone = len(runs) == 1 and not (folder / "run.json").exists()
    if alone and is_study_folder(folder):
        if out is not None:
            raise ConfigError(f"the report of {folder} is written into that folder; omit --out.")
        if rules is not None:
            raise ConfigError(f"{folder} holds a study, which has its own rules; omit --rules.")
        from scopil_bench.studies.running import report_study

        report_study(folder, console, trust_env)
        console.print(f"written: {folder / 'report.html'} and report.md")
        return
    opened = [Run.open(folder, trust_env=trust_env) for folder in dict.fromkeys(runs)]
    for run in opened:
        run.newest_policy()  # raises if the run has no policy
    out = out or (opened[0].folder if len(opened) == 1 else Path("report"))
    given = [*(("--rules", rules) if rules else ()), *(("--trust-env",) if trust_env else ())]
    command = shlex.join(["scopil", "report", *map(str, runs), "--out", str(out), *given])
    with Evaluator(rules=None if rules is None else load_rules(rules)) as evaluator:
        made = _report(opened, out, command, evaluator, console)
    results.save(out, "", "", results.all_of(made.results), {})
    write(out, made)
    console.print(f"written: {out / 'report.html'}, report.md, results.json and results.csv")


def _report(opened: Sequence[Run], out: Path, command: str, evaluator: Evaluator, console: Console) -> StudyReport:
    """Evaluate the runs. In the report, each environment is a setting and each group of runs is a method."""
    envs = list(dict.fromkeys(run.spec.env for run in opened))
    by_env = {env: grouped([run for run in opened if run.spec.env == env]) for env in envs}
    runs = {Cell(env, name): group for env, groups in by_env.items() for name, group in groups.items()}
    for groups in by_env.values():
        _refuse_other_rules([run for group in groups.values() for run in group], evaluator)
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("evaluating", total=len(opened))
        found = results.evaluate_runs(evaluator, runs, lambda: bar.advance(task))
        bar.add_task("drawing", total=None)
        views = views_of(runs, found, evaluator)
    extra: dict[str, list[Block]] = {}
    references: dict[str, dict[str, Measures]] = {}
    for env, groups in by_env.items():
        mine = [run for group in groups.values() for run in group]
        references[env] = _demonstrator_rows(mine, evaluator)
        shown = {name: {n: v for n, v in row.items() if n != VIOLATING} for name, row in references[env].items()}
        rows = shown | evaluation_rows({name: found[Cell(env, name)] for name in groups})
        print_measures(rows, env, console)
        console.print(MEANS, highlight=False, soft_wrap=True)
        if unknown := rules_not_known(rows):
            console.print(unknown, soft_wrap=True)
        head, *lines = measures_grid(rows)
        tail = f"-{_slug(env.rpartition('/')[2])}" if len(envs) > 1 else ""
        extra[env] = [
            *([Text(unknown)] if unknown else []),
            Fold(
                "All measures", [Grid(head, lines), Text(f"{MEANS} {NEVER}"), *_legend(rows, evaluator.rules(mine[0]))]
            ),
            *_learned_costs(groups, out, tail, evaluator),
            *_learned_rules(groups, out, tail),
            Fold("Run folders", [_list_of_runs(mine, evaluator)]),
        ]
    return StudyReport(
        title="Report",
        layout=Layout({}, lambda method: method, references=references, extra=lambda env, _: extra.get(env, [])),
        results=found,
        command=command,
        views=views,
        folders={cell: [os.path.relpath(run.folder, out) for run in mine] for cell, mine in runs.items()},
    )


def _refuse_other_rules(runs: Sequence[Run], evaluator: Evaluator) -> None:
    """Raise if runs on one environment count violations by different rules. Warn if their environments differ."""
    by_rules = {rules.digest: run.folder for run in runs if (rules := evaluator.rules(run)) is not None}
    if len(by_rules) > 1:
        one, other, *_ = by_rules.values()
        raise ConfigError(f"{one} and {other} count violations by different rules; give those for all: --rules FILE.")
    by_env = {run.env_name(): run.folder for run in runs}
    if len(by_env) > 1:
        one, other, *_ = by_env.values()
        warnings.warn(f"{one} and {other} hold different versions of {runs[0].spec.env}.", stacklevel=2)


def grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Groups of runs that differ only in their seed, by title. The title is the algorithm's; if its runs have different
    settings, steps or demonstrations, the title also states those values."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        mine, algorithm = _settings(run), run.spec.algorithm
        peers = [_settings(peer) for peer in runs if peer.spec.algorithm.name == algorithm.name]
        differing = [f"{key}={value}" for key, value in mine.items() if any(p.get(key) != value for p in peers)]
        groups.setdefault(", ".join([algorithm.title, *differing]), []).append(run)
    return {name: sorted(group, key=lambda run: run.spec.seed) for name, group in groups.items()}


def _settings(run: Run) -> dict[str, Any]:
    return run.settings | {"demos": run.spec.demos, "rules": run.spec.rules, "steps": run.spec.steps}


def evaluation_rows(groups: Mapping[str, Sequence[Result]]) -> dict[str, Mapping[str, Value]]:
    """A row for each group and evaluation: the mean over seeds with the standard deviation; of a single run, the mean
    with half of its interval over episodes, where it is known."""
    rows: dict[str, Mapping[str, Value]] = {}
    for name, group in groups.items():
        for key in dict.fromkeys(key for result in group for key in result.means):
            each = [result.means[key] for result in group if key in result.means]
            margins = group[0].margins.get(key, {})
            alone = {n: (value, margins[n]) if n in margins else value for n, value in each[0].items()}
            episodes = sum(result.episodes[key] for result in group if key in result.means)
            rows[f"{name}, {in_words(key)}"] = with_bounds(alone if len(each) == 1 else mean_and_std(each), episodes)
    return rows


def _demonstrator_rows(runs: Sequence[Run], evaluator: Evaluator) -> dict[str, Measures]:
    """Measures of the demonstrations: one row for each set that a run learned from."""
    first: dict[str | None, Run] = {}
    for run in runs:
        if run.demos_file.exists():
            first.setdefault(run.spec.demos, run)
    rows: dict[str, Measures] = {}
    for run in first.values():
        if (demos := evaluator.demos(run)) is not None:
            found = measure_demonstrations(demos, evaluator.env(run), evaluator.rules(run))
            which = f" {demos.name}" if len(first) > 1 else ""
            rows[f"Demonstrator{which} ({len(demos)} episodes)"] = results.reference(found)
    return rows


def _learned_costs(groups: Groups, out: Path, tail: str, evaluator: Evaluator) -> list[Block]:
    """Maps of the learned costs of the first seeds of each group; empty if no algorithm learns a cost."""
    draw, shown = evaluator.env(next(iter(groups.values()))[0]).drawing("draw_cost"), []
    for name, group in groups.items():
        costs = {f"seed {run.spec.seed}": run.learned_cost() for run in group[:COSTS] if draw is not None}
        known = {title: cost for title, cost in costs.items() if cost is not None}
        if draw is not None and known:
            file = out / f"constraint-{_slug(name)}{tail}.png"
            save_costs(file, draw, known)
            shown.append(Picture(file, f"The cost that {name} has learned, with the true constraints outlined"))
    return [Fold("Learned costs", shown)] if shown else []


def _learned_rules(groups: Groups, out: Path, tail: str) -> list[Block]:
    """The rules that the first seed of each group has learned, each with its table; empty if no group learns any."""
    shown: list[Block] = []
    for name, (run, *_) in groups.items():
        if getattr(run.spec.algorithm, "marginals", None) is None or not run.demos_file.exists():
            continue
        found = found_rules(run.folder, trust_env=run.trust_env)
        if not found:
            shown.append(Text(f"{name}, seed {run.spec.seed}: no rule was found."))
        for i, rule in enumerate(found, 1):
            file, text = out / f"rule-{_slug(name)}-{i}{tail}.png", f"{name}: {rule.sentence} ({rule.evidence})"
            shown.append(Picture(file, text) if save_map(file, rule) else Text(text))
    if any(isinstance(block, Picture) for block in shown):
        shown.append(Text(MAPS))
    return [Fold("Learned rules", shown)] if shown else []


def _list_of_runs(runs: Sequence[Run], evaluator: Evaluator) -> Grid:
    lines = []
    for run in runs:
        rows = evaluator.rows(run)
        done = rows[-1]["env_steps"] if rows else 0
        state = "finished" if run.finished else f"of {run.spec.steps:,}, unfinished"
        lines.append([str(run.folder), run.spec.algorithm.name, str(run.spec.seed), f"{done:,}", state])
    return Grid(["run", "algorithm", "seed", "steps", ""], lines)


def _slug(name: str) -> str:
    """A file name. Non-ASCII letters are replaced by their names, so that SCOPIL-ρ and SCOPIL get different files."""
    spelt = "".join(c if c.isascii() else unicodedata.name(c, "").rpartition(" ")[2] for c in name)
    return re.sub(r"[^a-z0-9.=]+", "-", spelt.lower()).strip("-")


def _legend(rows: Mapping[str, Mapping[str, Any]], rules: Rules | None) -> list[Block]:
    """A description of each rule; empty if no row has violations of a rule."""
    names = {name.partition("/")[2] for row in rows.values() for name in row if name.startswith("violations/")}
    if not names:
        return []
    about = {} if rules is None else rules.about
    lines = [f"{name}: {about[name]}" for name in sorted(names) if name in about]
    head = Text("Violations (rule): the number of states of an episode that break the rule.")
    return [head, Items(lines)] if lines else [head]
