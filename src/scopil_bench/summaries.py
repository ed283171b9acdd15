"""Data about finished runs: results of single runs, and summaries over seeds."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from scopil.eval.measures import COUNTS, Measures, mean_and_std
from scopil_bench import stats

EVALUATIONS = ("greedy/demonstrated", "sampled/demonstrated", "greedy/unseen", "sampled/unseen")
MARGINS = ("violations", "reward", "success", "reached")
SAFE = 0.025  # avoidable violations per episode: one in forty episodes


class Cell(NamedTuple):
    """One method in one setting. It is one row of a table and has several seeds."""

    setting: str
    method: str


class Table(NamedTuple):
    """Methods to compare in one setting. `trained` lists the methods that this table adds to the study. Other tables
    train the other methods."""

    title: str
    setting: str
    shown: tuple[str, ...]
    trained: tuple[str, ...]


class Result(NamedTuple):
    """One finished run."""

    cell: Cell
    seed: int
    steps: int  # environment steps made
    # Steps at the evaluation in training from which on all have at most SAFE avoidable violations per episode.
    first_safe: int | None
    means: dict[str, Measures]  # means over the episodes of each evaluation
    episodes: dict[str, int]  # number of episodes of each evaluation
    violating: dict[str, int]  # number of these episodes with an avoidable violation
    extra: dict[str, Measures]  # the study's extra measures
    # Half of the 95 % interval of a mean over the episodes of each evaluation, for the measures in MARGINS.
    margins: Mapping[str, Measures] = {}


class Timing(NamedTuple):
    """Wall-clock seconds of a run. They include compilation but not the start of Python."""

    seconds: float
    to_first_safe: float | None


Results = Mapping[Cell, Sequence[Result]]


class Verdict(NamedTuple):
    """An expectation of a study, compared with the results."""

    cell: Cell
    text: str  # the expectation in one line
    value: float | None  # None: no finished run
    holds: bool
    source: str  # where the expectation comes from

    def words(self) -> str:
        return f"{self.text}: {'no finished run' if self.value is None else f'{self.value:.4g}'}"


class Summary(NamedTuple):
    """A cell's runs under one evaluation."""

    seeds: int
    steps: int  # per run
    episodes: int  # of all seeds
    measures: dict[str, tuple[float, float]]  # mean and standard deviation over seeds
    # The fields below are None if the evaluation does not count violations.
    iqm: float | None = None  # of violations per episode
    interval: stats.Interval | None = None  # 95 %, of the iqm
    p_avoidable: float | None = None  # 95 % bound on P(an episode has an avoidable violation): `stats.upper_bound`
    unsafe: float | None = None  # share of seeds with an avoidable violation


def summarise(results: Sequence[Result], evaluation: str) -> Summary:
    """The runs of one cell under one evaluation."""
    means, episodes = [r.means[evaluation] for r in results], [r.episodes[evaluation] for r in results]
    found = Summary(len(results), max(r.steps for r in results), sum(episodes), mean_and_std(means))
    if "violations" not in found.measures:
        return found
    violations = [m.get("violations", 0.0) for m in means]
    violating = [r.violating[evaluation] for r in results]
    return found._replace(
        iqm=float(stats.iqm(violations)),
        interval=stats.bootstrap_interval(violations),
        p_avoidable=stats.upper_bound(violating, episodes),
        unsafe=float(np.mean([m.get("avoidable", 0.0) > 0 for m in means])),
    )


def counted(results: Results, rules: Mapping[Cell, str | None] = {}) -> dict[Cell, list[Result]]:
    """Add 0 violations to runs without a count, in settings where other runs have one by the same rules. The reason: an
    environment may report a cost only when a rule is broken. `rules` has the digests of the runs' rules."""

    def same(run: Result) -> tuple[str, str | None]:
        return run.cell.setting, rules.get(run.cell)

    every = [run for runs in results.values() for run in runs]
    counting = {(same(run), key) for run in every for key, means in run.means.items() if "violations" in means}

    def filled(run: Result) -> Result:
        zeros = {key: dict.fromkeys(COUNTS, 0.0) for key in run.means if (same(run), key) in counting}
        return run._replace(means={key: zeros.get(key, {}) | means for key, means in run.means.items()})

    return {cell: [filled(run) for run in runs] for cell, runs in results.items()}


def evaluations_of(results: Sequence[Result]) -> list[str]:
    """Evaluations that every run has, in the order of EVALUATIONS."""
    common = [key for key in results[0].means if all(key in r.means for r in results)]
    return [k for k in EVALUATIONS if k in common] + [k for k in common if k not in EVALUATIONS]


def in_words(evaluation: str) -> str:
    """The name of an evaluation in words: `greedy/unseen` → "greedy, unseen starts"."""
    policy, _, starts = evaluation.partition("/")
    return f"{policy}, {starts} starts" if starts else policy
