"""Probes with known soft values, trained through the real loop, each with a control that must miss.

All probes live in one environment (an episode draws one of them, the observation says which), so one compiled
program serves them all. Two actions and a fixed α: where both actions are worth Q, V = Q + α log 2.
"""

import math
from dataclasses import replace
from functools import partialmethod
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.experimental.functional import FuncEnv

from compiling import OPTIMISED
from scopil.algos.sac import ALGORITHM as SAC
from scopil.envs.jax_env import CompiledEnv
from scopil.train.loop import Loop
from scopil.train.trainer import Trainer

ALPHA, DISCOUNT, LIMIT, STEPS = 0.2, 0.8, 8, 20_000
BONUS = ALPHA * math.log(2)


class Cell(NamedTuple):
    """A state: what it looks like, what each action earns, and where both lead (None ends the episode)."""

    look: str
    reward: tuple[float, float]
    then: int | None = None
    start: bool = True


CELLS = [
    Cell("one step", (1.0, 1.0)),
    Cell("plus", (1.0, 1.0)),  # the value depends on the observation …
    Cell("minus", (-1.0, -1.0)),
    Cell("either", (1.0, 1.0)),  # … and cannot when the observation hides it
    Cell("either", (-1.0, -1.0)),
    Cell("first", (0.0, 0.0), then=6),
    Cell("second", (1.0, 1.0), start=False),
    Cell("arms", (-0.1, 0.1)),
    Cell("match one", (0.0, 1.0)),  # the best action depends on the observation …
    Cell("match zero", (1.0, 0.0)),
    Cell("match blindly", (0.0, 1.0)),  # … and cannot when the observation hides it
    Cell("match blindly", (1.0, 0.0)),
    Cell("endless", (1.0, 1.0), then=12),  # until the time limit
    *(Cell("clocked", (1.0, 1.0), then=14 + i, start=i == 0) for i in range(LIMIT - 1)),
    Cell("clocked", (1.0, 1.0), start=False),  # the bug: the learner takes the clock for an ending
]
LOOKS = sorted({cell.look for cell in CELLS})


class Probes(FuncEnv):
    observation_space = gym.spaces.Box(0.0, 1.0, (len(LOOKS),), np.float32)
    action_space = gym.spaces.Discrete(2)

    def initial(self, rng, params=None):
        starts = jnp.array([i for i, cell in enumerate(CELLS) if cell.start])
        return starts[jax.random.randint(rng, (), 0, len(starts))]

    def transition(self, state, action, rng, params=None):
        return jnp.array([-1 if cell.then is None else cell.then for cell in CELLS])[state]

    def observation(self, state, rng, params=None):
        looks = jnp.array([LOOKS.index(cell.look) for cell in CELLS])
        return jax.nn.one_hot(looks[state], len(LOOKS)) * (state >= 0)

    def reward(self, state, action, next_state, rng, params=None):
        return jnp.array([cell.reward for cell in CELLS])[state, action]

    def terminal(self, state, rng, params=None):
        return state < 0


@pytest.fixture(scope="module")
def learned():
    """The final training state of SAC on all probes."""
    cfg = SAC.config(
        discount=DISCOUNT,
        learning_rate=3e-3,
        polyak=0.05,
        alpha_lr=0.0,
        log_alpha_init=math.log(ALPHA),
        hidden=(32,),
        batch_size=64,
        replay_size=4096,
    )
    trainer = Trainer(Loop(SAC, CompiledEnv(Probes(), max_episode_steps=LIMIT)), cfg, seed=0)
    with pytest.MonkeyPatch.context() as patch:
        fast = jax.jit(Loop.run, static_argnums=0, donate_argnums=1, compiler_options=OPTIMISED)
        patch.setattr(Loop, "_run", partialmethod(fast))
        trainer.advance(STEPS)
        # The noise of the hidden cells settles; rates are not compiled in.
        trainer.cfg = replace(cfg, learning_rate=1e-4)
        trainer.advance(2 * STEPS)
    return trainer.state


@pytest.fixture(scope="module")
def q(learned):
    """What the critics think of each look: (Q(·, 0), Q(·, 1))."""
    values = np.minimum(*(np.asarray(net(jnp.eye(len(LOOKS)))) for net in learned.learner.critics.params))
    return dict(zip(LOOKS, values))


@pytest.fixture(scope="module")
def pi(learned):
    found: Any = SAC.policy(learned.learner).distribution(jnp.eye(len(LOOKS)))
    return dict(zip(LOOKS, np.asarray(found.probs)))


def test_one_step_is_worth_its_reward(q):
    """No future, so no entropy bonus either."""
    np.testing.assert_allclose(q["one step"], [1.0, 1.0], atol=0.02)


def test_a_value_depends_on_the_observation(q):
    np.testing.assert_allclose(q["plus"], [1.0, 1.0], atol=0.02)
    np.testing.assert_allclose(q["minus"], [-1.0, -1.0], atol=0.02)
    np.testing.assert_allclose(q["either"], [0.0, 0.0], atol=0.5)  # control: nothing to tell them apart


def test_a_later_reward_is_discounted_and_carries_the_entropy_bonus(q, pi):
    np.testing.assert_allclose(q["second"], [1.0, 1.0], atol=0.02)
    want = DISCOUNT * (1.0 + BONUS)
    np.testing.assert_allclose(q["first"], [want, want], atol=0.03)
    np.testing.assert_allclose(pi["second"], [0.5, 0.5], atol=0.05)
    assert DISCOUNT * BONUS > 0.1  # control: no bonus, or one of the wrong sign, would be far off


def test_a_value_depends_on_the_action_and_the_policy_is_its_softmax(q, pi):
    np.testing.assert_allclose(q["arms"], [-0.1, 0.1], atol=0.01)
    p = 1 / (1 + math.exp(-0.2 / ALPHA))
    np.testing.assert_allclose(pi["arms"], [1 - p, p], atol=0.03)


def test_a_policy_depends_on_what_it_sees(pi):
    p = 1 / (1 + math.exp(-1.0 / ALPHA))
    np.testing.assert_allclose(pi["match one"], [1 - p, p], atol=0.01)
    np.testing.assert_allclose(pi["match zero"], [p, 1 - p], atol=0.01)
    assert max(pi["match blindly"]) < 0.95  # control


def test_value_passes_through_the_time_limit(q):
    """Reward 1 for ever: Q = 1 + γ (Q + α log 2)."""
    want = (1 + DISCOUNT * BONUS) / (1 - DISCOUNT)
    np.testing.assert_allclose(q["endless"], [want, want], rtol=0.02)
    assert max(q["clocked"]) < 0.85 * want  # control: the bug is visible


def test_the_clock_is_really_in_the_replay(learned):
    """The probe above shows nothing unless its episodes were truncated, and never terminated."""
    rows = np.asarray(learned.replay.rows)
    terminated, truncated = rows[:, -2:].T
    endless, clocked = (rows[:, LOOKS.index(look)] == 1 for look in ("endless", "clocked"))
    assert not terminated[endless].any()
    assert truncated[endless].mean() == pytest.approx(1 / LIMIT, abs=0.01)
    assert not truncated[~endless].any()
    assert terminated[clocked].mean() == pytest.approx(1 / LIMIT, abs=0.01)
