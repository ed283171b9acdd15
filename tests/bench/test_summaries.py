"""Summaries of several seeds."""

import numpy as np

from scopil.data.dataset import Episode
from scopil.eval.measures import Measures, average, measure_all
from scopil_bench.report import summary
from scopil_bench.summaries import Cell, Result, counted, summarise


def result(seed: int, violating: int, **means: float) -> Result:
    named: Measures = {name.replace("__", "/"): value for name, value in means.items()}
    return Result(Cell("task", "sac"), seed, 10, None, {"e": named}, {"e": 4}, {"e": violating}, {})


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
    found = summarise([result(0, 0, reward=1.0), result(1, 0, reward=2.0)], "e")  # nothing counts violations
    assert found.measures == {"reward": (1.5, 0.5)}
    assert (found.iqm, found.interval, found.p_avoidable, found.unsafe) == (None, None, None, None)


def test_runs_that_never_break_a_rule_have_zero_violations():
    """Rules that name only what is broken, and environments that report a cost only then."""

    def fast(obs, action, next_obs):
        return {"fast": 1.0} if next_obs[0] > 1 else {}

    def played(speed: float) -> Episode:
        return Episode(observations=np.full((4, 1), speed), actions=np.zeros(3, int), rewards=np.zeros(3))

    lawful = average(measure_all([played(0.5)], None, fast))
    assert (lawful["violations"], lawful["avoidable"]) == (0.0, 0.0)
    broken = average(measure_all([played(2.0)], None, fast))
    runs = [result(0, 1, **_plain(broken)), result(1, 0, **lawful), result(2, 0, reward=0.0, steps=3.0)]
    elsewhere = result(0, 0, reward=0.0)._replace(cell=Cell("other", "sac"))
    found = counted({runs[0].cell: runs, elsewhere.cell: [elsewhere]})
    figure = summary.figure_of(found[runs[0].cell], "e", "violations")
    assert figure is not None
    assert list(figure.values) == [3.0, 0.0, 0.0]
    assert "violations" not in found[elsewhere.cell][0].means["e"]  # nothing is counted there


def _plain(means: Measures) -> dict[str, float]:
    return {name.replace("/", "__"): value for name, value in means.items()}
