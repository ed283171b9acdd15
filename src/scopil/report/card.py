"""The report card of a reproduction: one page for somebody who has not seen the code."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scopil.experiments.expected import Verdict
from scopil.experiments.paper import BUDGETS, GROUPS, Cell
from scopil.experiments.results import SAFE, Timing
from scopil.files import write_atomically
from scopil.report.answers import answers
from scopil.report.compare import Results, shown_groups, tables
from scopil.report.page import Block, Command, Grid, Heading, Items, Picture, Text, to_html, to_markdown

TITLE = "SCOPIL: the paper's experiments, run again"
ABOUT = (
    "A ball rolls on a tray towards a hole; the player tilts the tray. Some of the tray is out of bounds, behind a "
    "line or inside circles, but no rule book says so: the learner is told the score, which only tells how fast the "
    "ball gets to the hole, and is shown 40 games of a careful player. SCOPIL is to play as well as it can while "
    "staying as lawful as the games it was shown. This page compares what it does with the published figures and "
    "with other methods."
)
WORDS = (
    "Rwd is the score of a game, normalised; Length the way of the ball in pixels; Steps the decisions of a game.",
    "H, V and C count the states of a game beyond a horizontal line, beyond a vertical line, and in a circle, the "
    "initial state included. F(·) is that count over the game's steps. Sums are written H+C.",
    "Avoidable leaves the initial state out: a game may start in a circle. The floor is what initial states add.",
    "Greedy takes the likeliest action, sampled draws from the policy. The paper does not say which it used.",
    "Train starts are the demonstrated initial states, test starts fresh ones, the same for everybody.",
    "A seed is one training from scratch. IQM is the mean of the middle half of seeds, with a bootstrap interval.",
    "P(avoidable) ≤ is the exact (Clopper–Pearson) 95 % bound on the probability that a game holds an avoidable "
    "violation, as if games were independent; those of one seed are not quite.",
    f"Steps to ≤ {SAFE:g} is the median, over seeds, of training steps until a first evaluation with at most "
    f"{SAFE:g} avoidable violations a game.",
)
METHODS = (
    "SCOPIL: soft actor-critic held to the demonstrations by a multiplier that is learned with it.",
    "SAC: soft actor-critic, no demonstrations. ICRL: learns a cost from the demonstrations, then avoids it.",
    "S-DGD: SCOPIL with a fixed multiplier. S-EiC: SCOPIL without entropy in the constraint. S-DGD-EiC: both.",
    "PPO+DGD: the same constraint on PPO instead of soft actor-critic. BC: cloning the demonstrations, no reward.",
    "Oracles are told the law: yardsticks for what can be attained, not competitors.",
)
CAUTION = (
    "These are short runs, made to try the machinery: {steps:,} steps at most, where the paper has a million. They "
    "say nothing about the method."
)


class Report(NamedTuple):
    """Everything the page is made of."""

    budget: str
    command: str
    results: Results
    missing: Mapping[str, str]  # run → where it stands
    failed: Mapping[str, str]  # run → its last words
    ranges: Sequence[Verdict]
    targets: Sequence[Verdict]
    timings: Mapping[str, Timing]
    versions: Mapping[str, Sequence[str]]
    pictures: Sequence[Picture]


def write(out: Path, report: Report) -> None:
    """tables.md (numbers alone), report.md and report.html."""
    numbers = tables(report.results, report.ranges, report.targets)
    write_atomically(out / "tables.md", to_markdown("Tables", numbers, out).encode())
    page = _page(report, numbers)
    write_atomically(out / "report.md", to_markdown(TITLE, page, out).encode())
    write_atomically(out / "report.html", to_html(TITLE, page).encode())


def _page(report: Report, numbers: Sequence[Block]) -> list[Block]:
    blocks: list[Block] = [Text(ABOUT)]
    if report.budget != "paper" and report.results:
        steps = max(r.steps for runs in report.results.values() for r in runs)
        blocks.append(Text(CAUTION.format(steps=steps)))
    questions = (
        "Three questions" if report.budget == "paper" else "Three questions, as short runs would have it"
    )
    blocks += [Heading(questions), *answers(report.results)]
    blocks += [Heading("What is missing"), *_gaps(report)]
    blocks += [Heading("How to read the tables"), Items(WORDS), Text("The methods:"), Items(METHODS)]
    blocks += [*numbers, Heading("Pictures"), *report.pictures]
    blocks += [Heading("Runs"), _sizes(report.results)]
    blocks += [Heading("Wall-clock", 3), *_clock(report)]
    blocks += [Heading("Versions", 3), Items([f"{k}: {', '.join(v)}" for k, v in report.versions.items()])]
    blocks += [Heading("To make this page again", 3), Command(report.command)]
    return blocks


def _gaps(report: Report) -> list[Block]:
    absent = [g.title for g in GROUPS.values() if g not in shown_groups(report.results)]
    lines = [f"{title}: not run." for title in absent]
    for group in shown_groups(report.results):
        cells = [Cell(group.setting, a) for a in group.shown]
        lines += [f"{group.title}: no finished run of {c.title}." for c in cells if c not in report.results]
    wanted = BUDGETS[report.budget].seeds
    for where, runs in report.results.items():
        if len(runs) < wanted:
            lines.append(f"{where.title} on {where.setting}: {wanted - len(runs)} of {wanted} seeds.")
    lines += [f"{run}: failed ({words})." for run, words in report.failed.items()]
    lines += [f"{run}: {state}." for run, state in report.missing.items() if run not in report.failed]
    if not lines:
        return [Text("Nothing: every run that belongs here has finished.")]
    return [Text("No figure on this page stands for any of these."), Items(lines)]


def _sizes(results: Results) -> Grid:
    rows = []
    for cell, runs in results.items():
        steps = ", ".join(f"{s:,}" for s in sorted({r.steps for r in runs}))
        seeds = ", ".join(str(r.seed) for r in runs)
        rows.append([f"{cell.title} on {cell.setting}", steps, seeds])
    return Grid(["", "environment steps", "seeds"], rows)


def _clock(report: Report) -> list[Block]:
    rows = []
    for cell, runs in report.results.items():
        mine = [t for r in runs if (t := report.timings.get(f"{cell.setting}/{cell.algorithm}-{r.seed}"))]
        if mine:
            safe = [np.inf if t.to_first_safe is None else t.to_first_safe for t in mine]
            median = float(np.median(safe)) if np.isfinite(np.sort(safe)[len(safe) // 2]) else None
            first = "–" if median is None else f"{median:,.0f} s"
            rows.append(
                [f"{cell.title} on {cell.setting}", f"{np.median([t.seconds for t in mine]):,.0f} s", first]
            )
    total = sum(t.seconds for t in report.timings.values())
    hours = f"All runs together: {total / 3600:.1f} core hours."
    shared = "shared with whatever else the machine did"
    text = f"One core a run, {shared}, compilation included; medians over seeds. {hours}"
    return [Text(text), Grid(["", "a run", f"to ≤ {SAFE:g} avoidable a game"], rows)]
