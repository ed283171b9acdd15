"""The budget of novel episodes: it stops training at the right row, and refuses what it cannot count."""

import jax.numpy as jnp
import pytest

import scopil
from scopil.errors import ConfigError
from scopil.train.trainer import TrainStatus


def status(stopped: float, ended: float) -> TrainStatus:
    return TrainStatus(0, {"episode/stopped": stopped, "episode/count": ended}, jnp.zeros(()))


def test_training_stops_when_the_newest_episodes_exceed_the_budget():
    budget = scopil.NovelBudget(5, 100)
    assert not budget(status(9, 41))  # too few episodes to tell
    assert budget(status(0, 50))  # 9 of 100
    assert budget.found == (9, 100)
    assert not budget(status(2, 98))  # earlier rows no longer count
    assert budget.found == (2, 100)


def test_a_share_at_the_budget_is_within_it():
    assert not scopil.NovelBudget(5, 100)(status(10, 190))
    assert scopil.NovelBudget(5, 100)(status(11, 189))


@pytest.mark.parametrize("text", ["5", "a/b", "5/5", "-1/10", "5/"])
def test_other_forms_are_refused(text):
    with pytest.raises(ConfigError):
        scopil.NovelBudget.parse(text)


def test_an_algorithm_that_stops_no_episodes_is_refused():
    with pytest.raises(ConfigError, match="SCOPIL-ρ"):
        scopil.NovelBudget(5, 100)(TrainStatus(0, {"episode/count": 3.0}, jnp.zeros(())))
