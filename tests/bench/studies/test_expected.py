"""Expected ranges: results inside and outside, and missing results."""

from typing import Any

import pytest

from made_results import cell_of
from scopil_bench.studies import unseen
from scopil_bench.studies.paper import study as paper
from scopil_bench.studies.paper.expected import PAPER, UNSEEN, Expectation, judge, load
from scopil_bench.studies.paper.published import PRINTED

WANTED: dict[str, Any] = {"setting": "simple", "method": "scopil", "measure": "violations", "source": "test"}


def verdict(**changes):
    results = cell_of("scopil", [0.025, 0.075]) | cell_of("sac", [2.0, 1.0])
    (found,) = judge([Expectation(**(WANTED | changes))], results)
    return found


@pytest.mark.parametrize(
    ("changes", "value", "holds"),
    [
        ({"high": 0.05}, 0.05, True),
        ({"high": 0.0499}, 0.05, False),
        ({"low": 0.06, "high": 1}, 0.05, False),
        ({"statistic": "std", "high": 0.03}, 0.025, True),
        ({"method": "sac", "over": "scopil", "low": 10}, 30.0, True),
        ({"method": "sac", "over": "scopil", "low": 31}, 30.0, False),
        ({"evaluation": "sampled/unseen", "low": 0.01}, 0.05, True),
    ],
)
def test_inside_or_outside(changes, value, holds):
    found = verdict(**changes)
    assert found.value == pytest.approx(value)
    assert found.holds is holds


@pytest.mark.parametrize("changes", [{"method": "icrl"}, {"over": "icrl"}, {"evaluation": "modes", "measure": "both"}])
def test_without_a_run_nothing_holds(changes):
    found = verdict(high=100, **changes)
    assert found.value is None
    assert not found.holds


def test_modes_are_looked_up():
    modes = {"both": 0.95, "divergence": 0.1, "lawful": 1.0}
    results = cell_of("scopil", [0.025], setting="two-modes", extra={"modes": modes})
    wanted = Expectation(**(WANTED | {"setting": "two-modes", "evaluation": "modes", "measure": "both", "low": 0.9}))
    assert judge([wanted], results)[0].holds


@pytest.mark.parametrize(
    ("study", "file", "budget"),
    [(paper.STUDY, PAPER, b) for b in paper.STUDY.budgets] + [(unseen.STUDY, UNSEEN, b) for b in unseen.STUDY.budgets],
)
def test_shipped_expectations_are_of_things_that_exist(study, file, budget):
    for wanted in (e for each in load(budget, file) for e in each):
        assert wanted.cell in study.cells()
        known = {*PRINTED[wanted.setting.removesuffix("-simulated")]["scopil"], "reached"}
        assert wanted.measure in known or wanted.evaluation == "modes"
        assert wanted.low is not None or wanted.high is not None
