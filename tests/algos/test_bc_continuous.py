"""Behaviour cloning of continuous actions, saturated ones among them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scopil.algos import bc_continuous
from scopil.algos.base import Bounds, Pairs, Spaces

CONFIG = bc_continuous.Config(hidden=(32,), learning_rate=3e-3)
BOX = Bounds((0.0, -1.0), (4.0, 1.0))


def demonstrator(obs: np.ndarray) -> np.ndarray:
    """Half of what it does is saturated, at both ends."""
    return np.stack([2 + np.clip(4 * obs[:, 0], -2, 2), np.clip(obs[:, 1], -1, 1)], axis=-1)


def test_it_does_what_was_shown_inside_the_box_and_at_its_bounds():
    obs = np.random.default_rng(0).uniform(-1.5, 1.5, (256, 2)).astype(np.float32) * (1.0, 1.0)
    obs[:, 0] += 100.0  # normalisation is part of it
    shown = demonstrator(obs - (100.0, 0.0)).astype(np.float32)
    demo = Pairs(jnp.asarray(obs, jnp.float32), jnp.asarray(shown))
    assert 0.3 < np.mean(np.abs(shown - (2, 0)) >= (2, 1)) < 0.7

    @jax.jit
    def train(key):
        state = bc_continuous.init(key, Spaces(2, BOX), CONFIG)
        _, first = bc_continuous.update(state, demo, CONFIG)
        state = jax.lax.fori_loop(0, 3_000, lambda _, s: bc_continuous.update(s, demo, CONFIG)[0], state)
        return state, first, bc_continuous.update(state, demo, CONFIG)[1]

    state, first, last = train(jax.random.key(0))
    assert float(last["demo/accuracy"]) > 0.9
    assert float(last["demo/error"]) < 0.03
    assert 0.0 <= float(last["demo/nll"]) < 0.5 < float(first["demo/nll"])
    greedy = bc_continuous.ALGORITHM.policy(state, demo.obs).mode()
    np.testing.assert_allclose(greedy, shown, atol=0.5)
    assert float(np.abs(greedy - shown).mean()) == pytest.approx(0.0, abs=0.1)
