"""Plain data about finished runs: what studies produce, and reports show."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scopil.eval.measures import COUNTS, Measures, mean_and_std
from scopil_bench import stats

EVALUATIONS = ("greedy/demonstrated", "sampled/demonstrated", "greedy/unseen", "sampled/unseen")
SAFE = 0.025  # avoidable violations per episode: one in forty episodes


class Cell(NamedTuple):
    """One method in one setting: a row of a table, several seeds."""

    setting: str
    method: str


class Table(NamedTuple):
    """Methods side by side in one setting. `trained` are those that this table adds; the others
    belong to another table."""

    title: str
    setting: str
    shown: tuple[str, ...]
    trained: tuple[str, ...]


class Result(NamedTuple):
    """One finished run."""

    cell: Cell
    seed: int
    steps: int  # environment steps made
    first_safe: (
        int | None
    )  # steps at the first evaluation in training with at most SAFE avoidable violations per episode
    peaks: dict[str, float]  # of the multipliers, in the second half of training
    means: dict[str, Measures]  # by evaluation, over its episodes
    episodes: dict[str, int]  # played, by evaluation
    violating: dict[str, int]  # of these, with an avoidable violation
    extra: dict[str, Measures]  # what the study measures besides
    made_from: str = ""  # a digest of the run's settings; empty in files of before there was one


class Timing(NamedTuple):
    """Wall-clock seconds of a run, compilation included and the start of Python not."""

    seconds: float
    to_first_safe: float | None


Results = Mapping[Cell, Sequence[Result]]


class Verdict(NamedTuple):
    """An expectation and what was found."""

    cell: Cell
    text: str  # what is expected, in one line
    value: float | None  # None: no finished run
    holds: bool
    source: str  # where the expectation comes from

    def words(self) -> str:
        return f"{self.text}: {'no finished run' if self.value is None else f'{self.value:.4g}'}"


class Summary(NamedTuple):
    """A cell's runs under one evaluation."""

    seeds: int
    steps: int  # per run
    measures: dict[str, tuple[float, float]]  # mean ± deviation over seeds
    iqm: float | None  # of violations per episode; None where the environment has none to count
    interval: stats.Interval | None  # 95 %, of the iqm
    p_avoidable: float | None  # 95 % upper bound on the probability that an episode has an avoidable violation
    unsafe: float | None  # share of seeds with one


def summarise(results: Sequence[Result], evaluation: str) -> Summary:
    means = [r.means[evaluation] for r in results]
    summary = Summary(
        seeds=len(results),
        steps=max(r.steps for r in results),
        measures=mean_and_std(means),
        iqm=None,
        interval=None,
        p_avoidable=None,
        unsafe=None,
    )
    if "violations" not in summary.measures:
        return summary
    violations = [m.get("violations", 0.0) for m in means]
    return summary._replace(
        iqm=float(stats.iqm(violations)),
        interval=stats.bootstrap_interval(violations),
        p_avoidable=stats.upper_bound(
            [r.violating[evaluation] for r in results], [r.episodes[evaluation] for r in results]
        ),
        unsafe=stats.unsafe_share([m.get("avoidable", 0.0) for m in means]),
    )


def counted(results: Results) -> dict[Cell, list[Result]]:
    """An environment may report a cost only where a rule is broken: where some run of a setting has violations, one
    that reports none has 0."""
    counting = {
        (cell.setting, key)
        for cell, runs in results.items()
        for run in runs
        for key, means in run.means.items()
        if "violations" in means
    }

    def filled(run: Result) -> Result:
        zeros = {key: dict.fromkeys(COUNTS, 0.0) for key in run.means if (run.cell.setting, key) in counting}
        return run._replace(means={key: zeros.get(key, {}) | means for key, means in run.means.items()})

    return {cell: [filled(run) for run in runs] for cell, runs in results.items()}


def evaluations_of(results: Sequence[Result]) -> list[str]:
    """Those that every run has, in their usual order."""
    common = [key for key in results[0].means if all(key in r.means for r in results)]
    return [k for k in EVALUATIONS if k in common] + [k for k in common if k not in EVALUATIONS]


def in_words(evaluation: str) -> str:
    """`greedy/unseen` → greedy, unseen starts."""
    policy, _, starts = evaluation.partition("/")
    return f"{policy}, {starts} starts" if starts else policy
