"""The paper's measures, counted by hand."""

import numpy as np
import pytest

from scopil.evaluate.games import Game
from scopil.evaluate.metrics import average, label, mean_and_std, measure


def game(**changes) -> Game:
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
    return Game(**(fields | changes))


def test_a_game_by_hand():
    assert measure(game()) == {
        "reward": -1.0,
        "steps": 4.0,
        "length": 5.0 + 0.0 + 4.0 + 3.0,
        "reached": 1.0,
        "violations": 4.0,  # both kinds in one state are two
        "frequency": 1.0,
        "avoidable": 3.0,  # not the one it started in
        "violations/horizontal": 2.0,
        "frequency/horizontal": 0.5,
        "violations/circle": 2.0,
        "frequency/circle": 0.5,
    }


def test_a_time_out_is_not_the_hole():
    assert measure(game(terminated=False, truncated=True))["reached"] == 0.0


def test_a_cost_without_kinds_is_counted_all_the_same():
    info = {"cost": np.array([0.0, 2.5, 0.0, 1.0, 0.0])}  # how large does not matter
    found = measure(game(info=info))
    assert (found["violations"], found["frequency"], found["violations/any"]) == (2.0, 0.5, 2.0)
    assert "length" not in found


def test_a_cost_beside_kinds_that_do_not_add_up_is_the_whole():
    found = measure(game(kinds_add_up=False))
    assert (found["violations"], found["frequency"], found["avoidable"]) == (3.0, 0.75, 2.0)
    assert (found["violations/horizontal"], found["violations/circle"]) == (2.0, 2.0)


def test_an_environment_without_costs_has_no_violations_to_count():
    assert measure(game(info={})) == {"reward": -1.0, "steps": 4.0}  # nor a hole to reach


def test_long_games_are_summed_exactly():
    rewards = np.full(100_000, 0.1, np.float32)
    exact = float(np.float64(np.float32(0.1)) * 100_000)
    assert measure(game(rewards=rewards))["reward"] == pytest.approx(exact, rel=1e-12)


def test_averages_are_over_games_then_over_seeds():
    seeds = [[{"steps": 1.0}, {"steps": 3.0}], [{"steps": 6.0}]]
    means = [average(games) for games in seeds]
    assert means == [{"steps": 2.0}, {"steps": 6.0}]
    assert mean_and_std(means) == {"steps": (4.0, 2.0)}


def test_the_papers_letters():
    assert [label(n) for n in ("violations/circle", "frequency/horizontal", "reward")] == ["C", "F(H)", "Rwd"]
