"""Probe environments with known soft values, trained through the real loop; each with a control that must miss.

Two actions throughout and α fixed, so a state where both actions are worth Q has V = Q + α log 2.
"""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from probes import Endless, Probe

from scopil.algos import ALGORITHMS
from scopil.envs.functional import CompiledEnv
from scopil.train.offpolicy import OffPolicy
from scopil.train.trainer import Trainer

ALPHA = 0.1
BONUS = ALPHA * math.log(2)
RATES = {"learning_rate": 3e-3, "polyak": 0.05, "alpha_lr": 0.0, "log_alpha_init": math.log(ALPHA)}
SIZES = {"hidden": (16,), "batch_size": 32, "replay_size": 1024}


class Learned:
    """SAC on a probe: its values and its policy at an observation."""

    def __init__(self, env: Probe, *, discount: float, limit: int | None = None, steps: int = 4_000, **changes: Any):
        algorithm = ALGORITHMS["sac"]
        cfg = algorithm.config(discount=discount, **(RATES | SIZES | changes))
        trainer = Trainer(OffPolicy(algorithm, CompiledEnv(env, max_episode_steps=limit)), cfg, seed=0)
        trainer.advance(steps)
        self.state, self._policy = trainer.state, algorithm.policy

    def q(self, *obs: float) -> np.ndarray:
        x = jnp.array([obs], jnp.float32)
        return np.minimum(*(np.asarray(critic(x)[0]) for critic in self.state.learner.critics.params))

    def pi(self, *obs: float) -> np.ndarray:
        return np.asarray(self._policy(self.state.learner, jnp.array([obs], jnp.float32)).probs[0])


class Sign(Probe):
    """One step; the reward is the sign one sees (or is not shown)."""

    def __init__(self, shown: bool):
        super().__init__()
        self.shown = shown

    def observation(self, state, rng, params=None):
        return jnp.where(self.shown, state.sign, 1.0)[None]

    def reward(self, state, action, next_state, rng, params=None):
        return state.sign


class TwoSteps(Probe):
    """Nothing, then a reward of 1; the observation is the clock."""

    def observation(self, state, rng, params=None):
        return state.clock.astype(jnp.float32)[None]

    def reward(self, state, action, next_state, rng, params=None):
        return jnp.where(next_state.clock == 2, 1.0, 0.0)

    def terminal(self, state, rng, params=None):
        return state.clock >= 2


class Arms(Probe):
    """One step; the reward is ½ for the action 1 and −½ for the action 0."""

    def reward(self, state, action, next_state, rng, params=None):
        return action - 0.5


class Match(Sign):
    """One step; the reward is 1 when the action is the sign one sees."""

    def reward(self, state, action, next_state, rng, params=None):
        return jnp.where((action == 1) == (state.sign > 0), 1.0, 0.0)


class EndsByTheClock(Endless):
    """The bug: the time limit is told to the learner as an ending."""

    def terminal(self, state, rng, params=None):
        return state.clock >= 8


def test_one_step_is_worth_its_reward():
    """No future, so no entropy bonus either."""
    np.testing.assert_allclose(Learned(Probe(), discount=0.9).q(1.0), [1.0, 1.0], atol=0.01)


def test_a_value_depends_on_the_observation():
    seen = Learned(Sign(shown=True), discount=0.9)
    np.testing.assert_allclose(seen.q(1.0), [1.0, 1.0], atol=0.02)
    np.testing.assert_allclose(seen.q(-1.0), [-1.0, -1.0], atol=0.02)
    hidden = Learned(Sign(shown=False), discount=0.9)  # control: nothing to tell them apart
    np.testing.assert_allclose(hidden.q(1.0), [0.0, 0.0], atol=0.4)


def test_a_later_reward_is_discounted_and_carries_the_entropy_bonus():
    learned = Learned(TwoSteps(), discount=0.5)
    np.testing.assert_allclose(learned.q(1.0), [1.0, 1.0], atol=0.02)
    want = 0.5 * (1.0 + BONUS)
    np.testing.assert_allclose(learned.q(0.0), [want, want], atol=0.01)
    assert abs(want - 0.5) > 0.03  # control: without the bonus (or with its sign wrong) the test would fail
    np.testing.assert_allclose(learned.pi(0.0), [0.5, 0.5], atol=0.05)


def test_a_value_depends_on_the_action_and_the_policy_is_its_softmax():
    learned = Learned(Arms(), discount=0.9, log_alpha_init=math.log(0.5))
    np.testing.assert_allclose(learned.q(1.0), [-0.5, 0.5], atol=0.01)
    p = 1 / (1 + math.exp(-1.0 / 0.5))
    np.testing.assert_allclose(learned.pi(1.0), [1 - p, p], atol=0.01)


def test_a_policy_depends_on_what_it_sees():
    learned = Learned(Match(shown=True), discount=0.9)
    assert learned.pi(1.0)[1] > 0.95
    assert learned.pi(-1.0)[0] > 0.95
    blind = Learned(Match(shown=False), discount=0.9)
    assert max(blind.pi(1.0)) < 0.95  # control


def test_value_passes_through_the_time_limit():
    """Reward 1 for ever: Q = 1 + γ (Q + α log 2)."""
    want = (1 + 0.9 * BONUS) / (1 - 0.9)
    learned = Learned(Endless(), discount=0.9, limit=8)
    np.testing.assert_allclose(learned.q(1.0), [want, want], rtol=0.02)
    wrong = Learned(EndsByTheClock(), discount=0.9)  # control: the bug is visible
    assert max(wrong.q(1.0)) < 0.7 * want


@pytest.mark.parametrize("limit", [None, 8])
def test_the_clock_is_really_in_the_replay(limit):
    """The probe above shows nothing unless truncations were among its transitions, and no terminations."""
    learned = Learned(Endless(), discount=0.9, limit=limit, steps=1_000)
    terminated, truncated = np.asarray(learned.state.replay.rows[:1000, -2:]).T
    assert terminated.sum() == 0
    assert truncated.sum() == (0 if limit is None else 1000 // 8)
