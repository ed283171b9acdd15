"""Measures counted by hand."""

import numpy as np
import pytest

from scopil.demos.dataset import Episode
from scopil.evaluate.measures import average, label, mean_and_std, measure, warning
from scopil.studies.marble_maze.paths import measures as of_marble_maze


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


def test_an_episode_by_hand():
    assert measure(episode(), of_marble_maze) == {
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


def test_a_time_out_does_not_reach_the_hole():
    assert measure(episode(terminated=False, truncated=True), of_marble_maze)["reached"] == 0.0


def test_a_cost_without_named_rules_is_counted():
    info = {"cost": np.array([0.0, 2.5, 0.0, 1.0, 0.0])}  # how large does not matter
    assert measure(episode(info=info)) == {
        "reward": -1.0,
        "steps": 4.0,
        "violations": 2.0,
        "frequency": 0.5,
        "avoidable": 2.0,
    }


def test_an_environment_without_costs_has_no_violations_to_count():
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


def test_headings_are_full_names():
    names = ("violations/circle", "frequency/horizontal", "reward", "violations", "hull_contact")
    assert [label(n) for n in names] == [
        "Violations (circle)",
        "Violations per step (horizontal)",
        "Reward",
        "Violations",
        "Hull contact",
    ]


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
