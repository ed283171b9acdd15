"""Expected ranges, kept in expected.json, and whether results lie in them.

A *range* is what `scopil reproduce --check` holds results to. A *target* is what we aim for; the report says whether
it is met.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, NamedTuple

from scopil.evaluate.stats import mean_std
from scopil.experiments.paper import Cell
from scopil.experiments.results import Result

ROUNDING = 1e-9  # the mean of three times 0.025 is not 0.025
Results = Mapping[Cell, Sequence[Result]]


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """low ≤ value ≤ high, the value being the mean or deviation over seeds of a measure."""

    setting: str
    algorithm: str
    measure: str
    source: str  # where the bounds come from
    tried: str = ""  # towards a target that is missed
    evaluation: str = "greedy/train"  # or `modes`: sampled play from the paired starts
    statistic: Literal["mean", "std"] = "mean"
    over: str | None = None  # the value is divided by this algorithm's in the same setting
    low: float | int | None = None
    high: float | int | None = None

    @property
    def cell(self) -> Cell:
        return Cell(self.setting, self.algorithm)

    def words(self) -> str:
        """What is expected, in a line."""
        over = f" / {Cell(self.setting, self.over).title}'s" if self.over else ""
        where = "paired starts, sampled" if self.evaluation == "modes" else self.evaluation.replace("/", ", ")
        ends = (("≥", self.low), ("≤", self.high))
        bounds = [f"{sign} {end:g}" for sign, end in ends if end is not None]
        what = f"{self.statistic} of {self.measure}{over}"
        return f"{self.setting}, {self.cell.title}: {what} ({where}) {' and '.join(bounds)}"


class Verdict(NamedTuple):
    expectation: Expectation
    value: float | None  # None: there is no finished run to tell
    holds: bool

    def words(self) -> str:
        value = "no finished run" if self.value is None else f"{self.value:.4g}"
        return f"{self.expectation.words()}: {value}"


def load(budget: str) -> tuple[list[Expectation], list[Expectation]]:
    """Ranges and targets for a budget."""
    kept = json.loads((files("scopil.experiments") / "expected.json").read_text())[budget]
    return [Expectation(**e) for e in kept["ranges"]], [Expectation(**e) for e in kept["targets"]]


def judge(expectations: Sequence[Expectation], results: Results) -> list[Verdict]:
    verdicts = []
    for wanted in expectations:
        value = _value(wanted, results)
        low = float("-inf") if wanted.low is None else wanted.low - ROUNDING
        high = float("inf") if wanted.high is None else wanted.high + ROUNDING
        verdicts.append(Verdict(wanted, value, value is not None and low <= value <= high))
    return verdicts


def _value(wanted: Expectation, results: Results) -> float | None:
    value = _statistic(wanted, results.get(wanted.cell, ()))
    if wanted.over is None or value is None:
        return value
    base = _statistic(wanted, results.get(Cell(wanted.setting, wanted.over), ()))
    if base is None:
        return None
    return value / base if base else float("inf")


def _statistic(wanted: Expectation, runs: Sequence[Result]) -> float | None:
    measured = [r.modes if wanted.evaluation == "modes" else r.means[wanted.evaluation] for r in runs]
    values = [m[wanted.measure] for m in measured if m is not None]
    return mean_std(values)[wanted.statistic == "std"] if values else None
