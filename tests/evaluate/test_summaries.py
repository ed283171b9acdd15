"""Summaries of several seeds."""

from scopil.evaluate.measures import Measures
from scopil.evaluate.summaries import Cell, Result, summarise


def result(seed: int, violating: int, **means: float) -> Result:
    named: Measures = {name.replace("__", "/"): value for name, value in means.items()}
    return Result(Cell("task", "sac"), seed, 10, None, {}, {"e": named}, {"e": 4}, {"e": violating}, {})


BROKEN = {"violations": 2.0, "avoidable": 1.0, "frequency": 0.5, "violations__far": 2.0}


def test_a_rule_that_only_a_later_seed_broke_is_summarised():
    runs = [result(0, 0, reward=1.0), result(1, 3, reward=3.0, lap=8.0, **BROKEN)]
    for order in (runs, runs[::-1]):
        found = summarise(order, "e")
        assert found.measures == {
            "reward": (2.0, 1.0),
            "lap": (8.0, 0.0),  # of the seed that has it
            "violations": (1.0, 1.0),
            "avoidable": (0.5, 0.5),
            "frequency": (0.25, 0.25),
            "violations/far": (1.0, 1.0),
        }
        assert (found.iqm, found.unsafe) == (1.0, 0.5)


def test_without_rules_there_is_nothing_to_bound():
    found = summarise([result(0, 0, reward=1.0), result(1, 0, reward=2.0)], "e")
    assert found.measures == {"reward": (1.5, 0.5)}
    assert (found.iqm, found.interval, found.p_avoidable, found.unsafe) == (None, None, None, None)
