"""Behaviour cloning: the gradient, the minimiser, and that only demonstrations count."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import Probe, as_type, demo_steps, layers, mostly_one
from reference import soft_numpy as ref
from scopil.algos import bc
from scopil.algos.base import Data, Spaces
from scopil.config import build
from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.jax_env import CompiledEnv
from scopil.errors import ConfigError, DatasetError
from scopil.nn.heads import BoxHead, DiscreteHead
from scopil.train.loop import make_loop

CONFIG = bc.Config(hidden=(8,), demo_batch_size=16, learning_rate=1e-2)


def bits(learner: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(learner)]


def test_updates_equal_the_hand_written_ones():
    """With α = 0 and Q = 0 the reference's Lagrangian is λ E_D[−log π]."""
    s = ref.Settings(0.9, 1e-2, 0.0, 0.0, 0.0, entropy_in_constraint=False)
    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(12, 3)), rng.integers(4, size=12)
    with jax.enable_x64(True):
        state = bc.init(jax.random.key(1), Spaces(3, DiscreteHead(4)), CONFIG)
        state = as_type(state, float)
        net = layers(state.actor.params)
        adam = ref.Adam([np.zeros_like(p) for p in ref.flat(net)], [np.zeros_like(p) for p in ref.flat(net)])
        data = Data(demo_batch=demo_steps(obs, action))  # and nothing else
        update = jax.jit(bc.update)
        for _ in range(3):
            log_pi = ref.log_softmax(ref.forward(net, obs)[0])
            state, metrics = update(state, data, CONFIG, jax.random.key(0))
            want = {
                "demo/nll": -log_pi[np.arange(12), action].mean(),
                "demo/entropy": ref.entropy(log_pi).mean(),
                "demo/accuracy": (log_pi.argmax(1) == action).mean(),
            }
            assert {k: float(v) for k, v in metrics.items()} == pytest.approx(want, rel=1e-6)
            grads = ref.lagrangian_grad(net, obs, np.zeros((12, 4)), (obs, action), 0.0, 1.0, s)
            net = ref.unflat(adam.step(ref.flat(net), ref.flat(grads), CONFIG.learning_rate))
        for have, want in zip(ref.flat(layers(state.actor.params)), ref.flat(net), strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-10, atol=1e-12)


def test_the_minimiser_is_the_demonstrators_policy():
    """One state, arm 1 in three of four pairs: π = (¼, ¾), and the loss is that choice's entropy."""
    data = Data(demo_batch=mostly_one())

    @jax.jit
    def train(state):
        def improve(_, state):
            return bc.update(state, data, CONFIG, jax.random.key(0))[0]

        state = jax.lax.fori_loop(0, 1500, improve, state)
        return bc.update(state, data, CONFIG, jax.random.key(0))

    state, metrics = train(bc.init(jax.random.key(0), Spaces(1, DiscreteHead(2)), CONFIG))
    pi: Any = bc.ALGORITHM.policy(state).distribution(jnp.ones((1, 1)))
    np.testing.assert_allclose(pi.probs, [[0.25, 0.75]], atol=1e-3)
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    assert float(metrics["demo/nll"]) == pytest.approx(entropy, abs=1e-5)
    assert float(metrics["demo/entropy"]) == pytest.approx(entropy, abs=1e-3)
    assert float(metrics["demo/accuracy"]) == 0.75


# --- continuous actions --------------------------------------------------------------------------------------------


def demonstrator(obs: np.ndarray) -> np.ndarray:
    """Half of what it does is saturated, at both ends of the box [0, 4] × [−1, 1]."""
    return np.stack([2 + np.clip(4 * obs[:, 0], -2, 2), np.clip(obs[:, 1], -1, 1)], axis=-1)


def test_it_does_what_was_shown_inside_the_box_and_at_its_bounds():
    cfg = build(bc.Config, {"hidden": (32,), "learning_rate": 3e-3}, continuous=True)
    obs = np.random.default_rng(0).uniform(-1.5, 1.5, (256, 2)).astype(np.float32) * (1.0, 1.0)
    obs[:, 0] += 100.0  # normalisation is part of it
    shown = demonstrator(obs - (100.0, 0.0)).astype(np.float32)
    data = Data(demo_batch=demo_steps(jnp.asarray(obs, jnp.float32), shown))
    assert 0.3 < np.mean(np.abs(shown - (2, 0)) >= (2, 1)) < 0.7

    @jax.jit
    def train(key):
        head = BoxHead(jnp.array([0.0, -1.0]), jnp.array([4.0, 1.0]))
        state = bc.init(key, Spaces(2, head), cfg)

        def improve(_, state):
            return bc.update(state, data, cfg, jax.random.key(1))[0]

        _, first = bc.update(state, data, cfg, jax.random.key(1))
        state = jax.lax.fori_loop(0, 3_000, improve, state)
        return state, first, bc.update(state, data, cfg, jax.random.key(1))[1]

    state, first, last = train(jax.random.key(0))
    assert float(last["demo/accuracy"]) > 0.9
    assert 0.0 <= float(last["demo/nll"]) < 0.5 < float(first["demo/nll"])
    greedy = bc.ALGORITHM.policy(state).act(jnp.asarray(obs, jnp.float32))
    np.testing.assert_allclose(greedy, shown, atol=0.5)
    assert float(np.abs(greedy - shown).mean()) == pytest.approx(0.0, abs=0.1)
    unit = np.abs(np.asarray(greedy) - shown) / (2.0, 1.0)
    assert unit.mean() < 0.03


# --- the loop ------------------------------------------------------------------------------------------------------


class Untouchable(Probe):
    """A world that must not be stepped."""

    def transition(self, state, action, rng, params=None):
        raise AssertionError("cloning stepped the environment")


def one_state(actions: tuple[int, ...], reward: float = 0.0) -> Demonstrations:
    steps = len(actions)
    made = Episode(
        observations=np.ones((steps + 1, 1), np.float32),
        actions=np.array(actions),
        rewards=np.full(steps, reward, np.float32),
        terminated=True,
        truncated=False,
    )
    spaces: Any = {"observation_space": Probe.observation_space, "action_space": Probe.action_space}
    return Demonstrations(episodes=(made,), **spaces)


@pytest.fixture(scope="module")
def trained():
    def run(demos: Demonstrations) -> Any:
        loop = make_loop(bc.ALGORITHM, CompiledEnv(Untouchable()), demos)
        return loop.run_iterations(loop.start(jax.random.key(0), CONFIG), CONFIG, 200)

    return run


def test_no_environment_is_stepped_and_no_reward_reaches_the_learner(trained):
    state, metrics = trained(one_state((0, 1, 1, 1)))
    other, _ = trained(one_state((0, 1, 1, 1), reward=-100.0))
    assert state.env is None
    assert state.replay is None
    assert not any(name.startswith(("env/", "episode/")) for name in metrics)
    assert bits(state.learner) == bits(other.learner)
    assert int(state.learner.actor.opt.count) == int(state.env_steps) == 200  # a gradient step counts as a step
    different, _ = trained(one_state((1, 0, 0, 0)))
    assert bits(state.learner) != bits(different.learner)


def test_there_are_no_settings_without_effect_and_no_training_without_demonstrations():
    with pytest.raises(ConfigError, match="replay_size"):
        build(bc.Config, {"replay_size": 10})
    with pytest.raises(DatasetError, match="demonstrations"):
        make_loop(bc.ALGORITHM, CompiledEnv(Probe()))
