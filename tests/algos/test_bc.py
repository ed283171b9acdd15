"""Behaviour cloning: the gradient, the minimiser, and that only demonstrations count."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scopil.train.offpolicy import OffPolicy

import scopil
from probes import PAIRS, Probe
from reference import soft_numpy as ref
from scopil.algos import bc
from scopil.algos.base import Pairs, Spaces
from scopil.envs.functional import CompiledEnv
from scopil.errors import ConfigError, DatasetError
from scopil.types import Transition

CONFIG = bc.Config(hidden=(8,), demo_batch_size=16, learning_rate=1e-2)


class Generous(Probe):
    """The same probe with other rewards, and games of another length."""

    def reward(self, state, action, next_state, rng, params=None):
        return -100.0 * action + jax.random.normal(rng)

    def terminal(self, state, rng, params=None):
        return state.clock >= 3


def trained(env: Probe, demos: Pairs, blocks: int = 200) -> tuple[Any, Any]:
    loop = OffPolicy(bc.ALGORITHM, CompiledEnv(env), demos)
    return loop.run_blocks(loop.start(jax.random.key(0), CONFIG), CONFIG, blocks)


def bits(learner: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(learner)]


def test_updates_equal_the_hand_written_ones():
    """With α = 0 and Q = 0 the reference's Lagrangian is λ E_D[−log π]."""
    s = ref.Settings(0.9, 1e-2, 0.0, 0.0, 0.4, entropy_in_constraint=False)
    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(12, 3)), rng.integers(4, size=12)
    with jax.enable_x64(True):
        state = bc.init(jax.random.key(1), Spaces(3, 4), CONFIG)
        state = jax.tree.map(lambda x: x.astype(float) if jnp.issubdtype(x.dtype, jnp.floating) else x, state)
        params = state.actor.params
        net = [(np.asarray(w).T, np.asarray(b)) for w, b in zip(params.weights, params.biases)]
        adam = ref.Adam([np.zeros_like(p) for p in ref.flat(net)], [np.zeros_like(p) for p in ref.flat(net)])
        demo = Pairs(jnp.asarray(obs), jnp.asarray(action))
        nothing = Transition(*[jnp.full((1,), jnp.nan)] * 6)  # the replay is not looked at
        update = jax.jit(bc.update)
        for _ in range(3):
            log_pi = ref.log_softmax(ref.forward(net, obs)[0])
            state, metrics = update(state, nothing, demo, CONFIG)
            want = {
                "demo/nll": -log_pi[np.arange(12), action].mean(),
                "demo/entropy": ref.entropy(log_pi).mean(),
                "demo/accuracy": (log_pi.argmax(1) == action).mean(),
            }
            assert {k: float(v) for k, v in metrics.items()} == pytest.approx(want, rel=1e-6)
            grads = ref.lagrangian_grad(net, obs, np.zeros((12, 4)), (obs, action), 0.0, 1.0, s)
            net = ref.unflat(adam.step(ref.flat(net), ref.flat(grads), CONFIG.learning_rate))
        for (w, b), w_have, b_have in zip(net, state.actor.params.weights, state.actor.params.biases):
            np.testing.assert_allclose(w_have.T, w, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(b_have, b, rtol=1e-10, atol=1e-12)


def test_the_minimiser_is_what_the_demonstrator_does():
    """One state, arm 1 in three of four pairs: π = (¼, ¾), and the loss is that choice's entropy."""
    nothing = Transition(*[jnp.full((1,), jnp.nan)] * 6)

    @jax.jit
    def train(state):
        state = jax.lax.fori_loop(0, 1500, lambda _, s: bc.update(s, nothing, PAIRS, CONFIG)[0], state)
        return bc.update(state, nothing, PAIRS, CONFIG)

    state, metrics = train(bc.init(jax.random.key(0), Spaces(1, 2), CONFIG))
    np.testing.assert_allclose(bc.ALGORITHM.policy(state, jnp.ones((1, 1))).probs, [[0.25, 0.75]], atol=1e-3)
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    assert float(metrics["demo/nll"]) == pytest.approx(entropy, abs=1e-5)
    assert float(metrics["demo/entropy"]) == pytest.approx(entropy, abs=1e-3)
    assert float(metrics["demo/accuracy"]) == 0.75


def test_neither_rewards_nor_visited_states_reach_the_learner():
    state, metrics = trained(Probe(), PAIRS)
    other, other_metrics = trained(Generous(), PAIRS)
    assert float(metrics["env/reward"]) != float(other_metrics["env/reward"])  # another world
    assert float(metrics["episode/steps"]) != float(other_metrics["episode/steps"])
    assert bits(state.learner) == bits(other.learner)
    assert int(state.learner.actor.opt.count) == 200  # one gradient step an environment step
    assert int(state.env_steps) == 201  # the loop's warm-up is a single one


@pytest.mark.slow
def test_demonstrations_do():
    state, _ = trained(Probe(), PAIRS)
    other, _ = trained(Probe(), PAIRS._replace(action=1 - PAIRS.action))
    assert bits(state.learner) != bits(other.learner)


def test_there_are_no_settings_without_effect_and_no_training_without_demonstrations():
    with pytest.raises(ConfigError, match="replay_size"):
        scopil.BC("scopil/MarbleMaze-Simple-v0", replay_size=10)
    with pytest.raises(DatasetError, match="learns from demonstrations"):
        scopil.BC("scopil/MarbleMaze-Simple-v0").learn(10)
