import pytest
from scopil.experiments.expected import Expectation, judge, load
from scopil.experiments.paper import BUDGETS, GROUPS, PRINTED, Cell

from made_results import cell_of

RESULTS = cell_of("scopil", [0.025, 0.075]) | cell_of("sac", [2.0, 1.0])
WANTED = {"setting": "simple", "algorithm": "scopil", "measure": "violations", "source": "test"}


def verdict(**changes):
    (found,) = judge([Expectation(**(WANTED | changes))], RESULTS)
    return found


@pytest.mark.parametrize(
    ("changes", "value", "holds"),
    [
        ({"high": 0.05}, 0.05, True),
        ({"high": 0.0499}, 0.05, False),
        ({"low": 0.06, "high": 1}, 0.05, False),
        ({"statistic": "std", "high": 0.03}, 0.025, True),
        ({"algorithm": "sac", "over": "scopil", "low": 10}, 30.0, True),
        ({"algorithm": "sac", "over": "scopil", "low": 31}, 30.0, False),
        ({"evaluation": "sampled/test", "low": 0.01}, 0.05, True),
    ],
)
def test_inside_or_outside(changes, value, holds):
    found = verdict(**changes)
    assert found.value == pytest.approx(value)
    assert found.holds is holds


@pytest.mark.parametrize(
    "changes", [{"algorithm": "icrl"}, {"over": "icrl"}, {"evaluation": "modes", "measure": "both"}]
)
def test_without_a_run_nothing_holds(changes):
    found = verdict(high=100, **changes)
    assert found.value is None
    assert not found.holds
    assert found.words().endswith(": no finished run")


def test_a_verdict_in_words():
    said = verdict(algorithm="sac", over="scopil", low=10, high=20).words()
    assert said == "simple, SAC: mean of violations / SCOPIL's (greedy, train) ≥ 10 and ≤ 20: 30"


def test_modes_are_looked_up():
    modes = {"both": 0.95, "divergence": 0.1, "lawful": 1.0}
    results = cell_of("scopil", [0.025], setting="two-modes", modes=modes)
    wanted = Expectation(
        **(WANTED | {"setting": "two-modes", "evaluation": "modes", "measure": "both", "low": 0.9})
    )
    assert judge([wanted], results)[0].holds


@pytest.mark.parametrize("budget", BUDGETS)
def test_shipped_expectations_are_of_things_that_exist(budget):
    for wanted in (e for kind in load(budget) for e in kind):
        assert wanted.cell in [Cell(g.setting, a) for g in GROUPS.values() for a in g.trained]
        known = {*PRINTED[wanted.setting]["scopil"], "reached"}
        assert wanted.measure in known or wanted.evaluation == "modes"
        assert wanted.low is not None or wanted.high is not None
