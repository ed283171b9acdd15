"""Advantages against their definition and a closed form; the clipped surrogate against values computed by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from reference import ppo_numpy as ref
from scopil.losses.policy_gradient import centred, clipped, gae, standardised, unclipped


def rollout(seed: int, steps: int = 12, envs: int = 3):
    rng = np.random.default_rng(seed)
    terminated = rng.random((steps, envs)) < 0.2
    truncated = (rng.random((steps, envs)) < 0.2) & ~terminated
    assert terminated.any()
    assert truncated.any()
    reward, value, next_value = rng.normal(size=(3, steps, envs)).astype(np.float32)
    return reward, value, next_value, terminated, truncated


@pytest.mark.parametrize(("gamma", "lam"), [(0.99, 0.95), (0.9, 0.0), (0.9, 1.0), (1.0, 1.0)])
def test_equal_to_the_definition(gamma, lam):
    data = rollout(0)
    reward, value, next_value, terminated, truncated = map(jnp.asarray, data)
    got = gae(reward, value, next_value, terminated, truncated, gamma, lam)
    np.testing.assert_allclose(got, ref.advantages(*data, gamma, lam), rtol=1e-5, atol=1e-5)


def test_constant_reward_has_the_closed_form():
    """Reward 1, values 0, no ending: A_t = Σ_{k<T−t} (γλ)^k = (1 − (γλ)^{T−t}) / (1 − γλ)."""
    steps, gamma, lam = 20, 0.9, 0.8
    zeros, no = jnp.zeros((steps, 1)), jnp.zeros((steps, 1), bool)
    got = gae(jnp.ones((steps, 1)), zeros, zeros, no, no, gamma, lam)[:, 0]
    left = np.arange(steps, 0, -1)
    np.testing.assert_allclose(got, (1 - (gamma * lam) ** left) / (1 - gamma * lam), rtol=1e-5)


def test_an_ending_cuts_the_future_and_a_timeout_keeps_its_value():
    one, v_next = jnp.ones((2, 1)), jnp.full((2, 1), 10.0)
    yes, no = jnp.array([[True], [False]]), jnp.zeros((2, 1), bool)
    terminated = gae(one, 0 * one, v_next, yes, no, 0.9, 1.0)
    truncated = gae(one, 0 * one, v_next, no, yes, 0.9, 1.0)
    going_on = gae(one, 0 * one, v_next, no, no, 0.9, 1.0)
    np.testing.assert_allclose(terminated[:, 0], [1.0, 10.0], rtol=1e-6)
    np.testing.assert_allclose(truncated[:, 0], [10.0, 10.0], rtol=1e-6)
    np.testing.assert_allclose(going_on[:, 0], [10.0 + 0.9 * 10.0, 10.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "wanted", "slope"),
    [
        (1.0, 2.0, 2.0, 2.0),
        (1.1, 2.0, 2.2, 2.2),
        (1.5, 2.0, 2.4, 0.0),  # clipped at 1.2 · 2
        (0.5, 2.0, 1.0, 1.0),  # not clipped
        (0.5, -2.0, -1.6, 0.0),  # clipped at 0.8 · −2
        (1.5, -2.0, -3.0, -3.0),  # not clipped
    ],
)
def test_clipped(ratio, advantage, wanted, slope):
    def objective(log_ratio):
        return clipped(log_ratio, jnp.array([advantage]), 0.2).sum()

    value, grad = jax.value_and_grad(objective)(jnp.log(jnp.array([ratio])))
    np.testing.assert_allclose(value, wanted, rtol=1e-6)
    np.testing.assert_allclose(grad[0], slope, rtol=1e-6)  # d(ρA)/d log ρ = ρA


def test_unclipped_is_the_plain_ratio():
    got = unclipped(jnp.log(jnp.array([0.5, 3.0])), jnp.array([2.0, -1.0]))
    np.testing.assert_allclose(got, [1.0, -3.0], rtol=1e-6)


def test_centred_and_standardised():
    x = jnp.array([1.0, 2.0, 6.0])
    np.testing.assert_allclose(centred(x), [-2.0, -1.0, 3.0])
    np.testing.assert_allclose(standardised(x), np.array([-2.0, -1.0, 3.0]) / np.sqrt(7), rtol=1e-6)
    assert np.isfinite(standardised(jnp.ones(4))).all()
