"""Expected ranges of results, from JSON files by budget.

`scopil study --check` fails if a result is outside its *range*. The report shows whether a result
meets a *target*; the check does not fail if a target is missed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from scopil_bench.stats import mean_std
from scopil_bench.studies.paper.answers import title
from scopil_bench.summaries import Cell, Result, Results, Verdict, in_words

ROUNDING = 1e-9  # tolerance: in floating point, the mean of three values 0.025 is not 0.025
PAPER, UNSEEN = (Path(__file__).with_name(f"expected_{study}.json") for study in ("paper", "unseen"))


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """low ≤ value ≤ high, where the value is the mean or deviation of a measure over seeds."""

    setting: str
    method: str
    measure: str
    source: str  # source of the bounds
    tried: str = ""  # attempts that did not reach a target
    evaluation: str = "greedy/demonstrated"  # or `modes`: sampled actions from the paired starts
    statistic: Literal["mean", "std"] = "mean"
    over: str | None = None  # the value is divided by this method's value in the same task
    low: float | int | None = None
    high: float | int | None = None

    @property
    def cell(self) -> Cell:
        return Cell(self.setting, self.method)

    def words(self) -> str:
        """The expectation in one line."""
        over = f" / {title(self.over)}'s" if self.over else ""
        where = "sampled, paired starts" if self.evaluation == "modes" else in_words(self.evaluation)
        ends = (("≥", self.low), ("≤", self.high))
        bounds = [f"{sign} {end:g}" for sign, end in ends if end is not None]
        what = f"{self.statistic} of {self.measure}{over}"
        return f"{self.setting}, {title(self.method)}: {what} ({where}) {' and '.join(bounds)}"


def load(budget: str, file: Path = PAPER) -> tuple[list[Expectation], list[Expectation]]:
    """Ranges and targets for a budget."""
    kept = json.loads(file.read_text())[budget]
    return [Expectation(**e) for e in kept["ranges"]], [Expectation(**e) for e in kept["targets"]]


def verdicts(budget: str, results: Results, file: Path = PAPER) -> tuple[list[Verdict], list[Verdict]]:
    ranges, targets = load(budget, file)
    return judge(ranges, results), judge(targets, results)


def judge(expectations: Sequence[Expectation], results: Results) -> list[Verdict]:
    found = []
    for wanted in expectations:
        value = _value(wanted, results)
        low = float("-inf") if wanted.low is None else wanted.low - ROUNDING
        high = float("inf") if wanted.high is None else wanted.high + ROUNDING
        holds = value is not None and low <= value <= high
        tried = f"; tried: {wanted.tried}" if wanted.tried and not holds else ""
        found.append(Verdict(wanted.cell, wanted.words(), value, holds, wanted.source + tried))
    return found


def _value(wanted: Expectation, results: Results) -> float | None:
    value = _statistic(wanted, results.get(wanted.cell, ()))
    if wanted.over is None or value is None:
        return value
    base = _statistic(wanted, results.get(Cell(wanted.setting, wanted.over), ()))
    if base is None:
        return None
    return value / base if base else float("inf")


def _statistic(wanted: Expectation, runs: Sequence[Result]) -> float | None:
    measured = [(r.extra if wanted.evaluation in r.extra else r.means).get(wanted.evaluation) for r in runs]
    values = [m[wanted.measure] for m in measured if m is not None]
    return mean_std(values)[wanted.statistic == "std"] if values else None
