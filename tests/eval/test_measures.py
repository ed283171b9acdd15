"""Measures counted by hand."""

import numpy as np
import pytest
from scipy.stats import binom

from scopil.data.dataset import Episode
from scopil.envs.marble_maze import MarbleMaze
from scopil.eval.measures import (
    average,
    breaks_a_rule,
    broken_rules,
    mean_and_std,
    measure,
    share_interval,
    violating_words,
    warning,
    with_margin,
)
from scopil.eval.rules import with_rules
from scopil.eval.tables import measures_grid, with_bounds
from scopil_bench.cli.demo_checks import count_violations


def episode(**changes) -> Episode:
    """Four steps. Horizontal broken in the initial state and once more, circle twice, once together with it."""
    fields = {
        "observations": np.zeros((5, 8), np.float32),
        "actions": np.zeros(4, np.int32),
        "rewards": np.array([-0.5, -0.25, -0.25, 0.0], np.float32),
        "terminated": True,
        "truncated": False,
        "info": {
            "position": np.array([(0, 0), (3, 4), (3, 4), (3, 0), (0, 0)], np.float32),
            "cost": np.array([1, 0, 1, 1, 0], np.float32),
            "cost_horizontal": np.array([1, 0, 0, 1, 0], np.float32),
            "cost_circle": np.array([0, 0, 1, 1, 0], np.float32),
        },
    }
    return Episode(**(fields | changes))


def test_margins_are_students_intervals_over_episodes():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        mean, margin = with_margin([{"reward": float(x)} for x in rng.normal(3.0, 2.0, 8)])["reward"]
        covered += abs(mean - 3.0) <= margin
    assert 0.92 <= covered / 400 <= 0.98
    assert np.isnan(with_margin([{"reward": 1.0}])["reward"][1])


@pytest.mark.parametrize("name", ["violations", "violations/far", "frequency", "avoidable"])
def test_a_count_that_is_0_in_every_episode_has_a_bound_and_no_margin(name):
    row = with_margin([{name: 0.0, "reward": 1.0}] * 40)
    assert np.isnan(row[name][1])
    assert with_bounds(row, 40) == {name: "0 (≤ 7.2 %)", "reward": (1.0, 0.0)}
    (_, shown) = measures_grid({"a": with_bounds({name: (0.0, 0.0)}, 1000)})
    assert shown == ["a", "0 (≤ 0.3 %)"]
    assert with_bounds({name: (0.1, 0.2)}, 40) == {name: (0.1, 0.2)}


def test_the_interval_of_a_share_is_exact():
    assert share_interval(0, 40) == pytest.approx((0.0, 1 - 0.025 ** (1 / 40)))
    assert share_interval(40, 40) == pytest.approx((0.025 ** (1 / 40), 1.0))
    low, high = share_interval(3, 20)
    assert binom.sf(2, 20, low) == pytest.approx(0.025)
    assert binom.cdf(3, 20, high) == pytest.approx(0.025)
    rows = [{"violations": 2.0}, {"reward": 1.0}, {"violations": 0.0}, {"violations": 0.0}]
    assert violating_words(rows).startswith("1 of 4 episodes have a violation: 25 %")
    assert violating_words([{"reward": 1.0}]) == ""


def test_an_episode_by_hand():
    assert measure(episode(), MarbleMaze().measures) == {
        "reward": -1.0,
        "steps": 4.0,
        "length": 5.0 + 0.0 + 4.0 + 3.0,
        "reached": 1.0,
        "violations": 4.0,  # both rules in one state are two
        "frequency": 1.0,
        "avoidable": 3.0,  # not the one it started in
        "violations/horizontal": 2.0,
        "frequency/horizontal": 0.5,
        "violations/circle": 2.0,
        "frequency/circle": 0.5,
    }

    assert measure(episode(terminated=False, truncated=True), MarbleMaze().measures)["reached"] == 0.0
    info = {"cost": np.array([0.0, 2.5, 0.0, 1.0, 0.0])}  # the size of a cost does not matter
    counts = {"violations": 2.0, "frequency": 0.5, "avoidable": 2.0}
    assert measure(episode(info=info)) == {"reward": -1.0, "steps": 4.0} | counts
    assert measure(episode(info={})) == {"reward": -1.0, "steps": 4.0}


def test_long_episodes_are_summed_exactly():
    rewards = np.full(100_000, 0.1, np.float32)
    exact = float(np.float64(np.float32(0.1)) * 100_000)
    assert measure(episode(rewards=rewards))["reward"] == pytest.approx(exact, rel=1e-12)


def test_averages_are_over_episodes_then_over_seeds():
    seeds = [[{"steps": 1.0}, {"steps": 3.0}], [{"steps": 6.0}]]
    means = [average(episodes) for episodes in seeds]
    assert means == [{"steps": 2.0}, {"steps": 6.0}]
    assert mean_and_std(means) == {"steps": (4.0, 2.0)}


def test_a_missing_count_is_zero_and_any_other_measure_is_not():
    runs = [
        {"reward": 4.0, "violations": 1.0, "violations/far": 1.0, "frequency/far": 0.5, "avoidable": 1.0},
        {"reward": 8.0, "lap_time": 30.0},
    ]
    assert mean_and_std(runs) == {
        "reward": (6.0, 2.0),
        "violations": (0.5, 0.5),
        "violations/far": (0.5, 0.5),
        "frequency/far": (0.25, 0.25),
        "avoidable": (0.5, 0.5),
        "lap_time": (30.0, 0.0),
    }


def test_where_rules_are_named_cost_is_not_counted_beside_them():
    info = {"cost": np.ones(5), "cost_far": np.array([0, 1, 0, 0, 0]), "cost_low": np.array([0, 1, 0, 2, 0])}
    assert {k: v.tolist() for k, v in broken_rules(episode(info=info)).items()} == {
        "far": [False, True, False, False, False],
        "low": [False, True, False, True, False],
    }
    assert breaks_a_rule(episode(info=info)).tolist() == [False, True, False, True, False]
    assert breaks_a_rule(episode(info={"cost": np.array([0, 0.5, 0, 0, 0])})).sum() == 1
    assert breaks_a_rule(episode(info={})).tolist() == [False] * 5


def test_demonstrations_are_counted_by_the_rules_of_all_episodes():
    of_rule = [episode(info={f"cost_{name}": np.array([1, 0, 0, 1, 0])}) for name in ("far", "low", "low")]
    assert count_violations(of_rule) == "far 2, low 4; 3 in initial states, 3 later; 15 states visited"
    unnamed = episode(info={"cost": np.array([0, 0, 0, 1, 0])})
    assert count_violations([unnamed]) == "cost 1; 0 in initial states, 1 later; 5 states visited"
    assert count_violations([episode(info={})]) == "the environment reports no costs"


def test_how_well_familiarity_warns():
    """Four lawful states and two that break a rule; of the eight pairs one is in the wrong order and one is a tie."""
    costs, familiar = np.array([0, 0, 0, 0, 1, 1]), np.array([0.9, 0.5, 0.3, 0.05, 0.05, 0.4])
    info = {"cost": costs, "familiarity": familiar}
    episode = Episode(observations=np.zeros((6, 1)), actions=np.zeros(5), info=info)
    got = warning([episode])
    # 0.05 is below three lawful ones and ties with one; 0.4 is below two
    assert got["auc"] == pytest.approx((3.5 + 2) / 8)
    assert (got["flagged, breaking a rule"], got["flagged, lawful"], got["precision"]) == (0.5, 0.25, 0.5)
    assert measure(episode)["unfamiliar"] == pytest.approx(2 / 6)
    assert warning([Episode(observations=np.zeros((6, 1)), actions=np.zeros(5), info={"cost": costs})]) == {}
    # Without unfamiliar states there is no precision: NaN is no JSON.
    info = {"cost": np.array([0, 1]), "familiarity": np.array([0.9, 0.8])}
    found = warning([Episode(observations=np.zeros((2, 1)), actions=np.zeros(1), info=info)])
    assert found == {"auc": 1.0, "flagged, breaking a rule": 0.0, "flagged, lawful": 0.0}


def test_familiarity_warns_of_rules_with_names():
    familiar = np.array([0.9, 0.5, 0.05, 0.05])
    info = {"cost": np.zeros(4), "familiarity": familiar}
    played = Episode(observations=np.arange(4.0)[:, None], actions=np.zeros(3), info=info)
    named = {"far": lambda obs, action, next_obs: next_obs[0] > 2, "off": lambda obs, action, next_obs: 0}
    unnamed = with_rules([played], named["far"])
    assert warning(with_rules([played], named)) == warning(unnamed) != {}
    lawful = Episode(observations=np.zeros((2, 1)), actions=np.zeros(1), info={"familiarity": np.ones(2)})
    assert warning([*unnamed, lawful])["flagged, lawful"] == 1 / 5  # it broke no rule, so none is reported
    assert warning([lawful]) == {}
