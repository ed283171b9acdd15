"""Action distributions: sums against NumPy, extremes that must stay finite, frequencies."""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from scopil.losses.soft import EXACT_SUM, soft_value
from scopil.nn.distributions import Categorical, SquashedGaussian
from scopil.nn.nets import MLP

LOGITS = np.random.default_rng(0).normal(scale=3.0, size=(6, 4))


def reference(logits: np.ndarray) -> np.ndarray:
    """log π in float64."""
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def test_sums_over_actions_agree_with_numpy():
    pi, log_pi = Categorical(jnp.asarray(LOGITS, jnp.float32)), reference(LOGITS)
    probs = np.exp(log_pi)
    values = np.random.default_rng(1).normal(size=LOGITS.shape)
    actions = np.array([0, 1, 2, 3, 0, 1])
    np.testing.assert_allclose(pi.probs, probs, rtol=2e-6)
    np.testing.assert_allclose(pi.log_probs, log_pi, rtol=2e-6)
    np.testing.assert_allclose(pi.entropy(), -(probs * log_pi).sum(1), rtol=2e-6)
    np.testing.assert_allclose(pi.expect(jnp.asarray(values, jnp.float32)), (probs * values).sum(1), rtol=5e-6)
    np.testing.assert_allclose(pi.log_prob(jnp.asarray(actions)), log_pi[np.arange(6), actions], rtol=2e-6)
    np.testing.assert_array_equal(pi.mode(), LOGITS.argmax(1))


@pytest.mark.parametrize("shape", [(3,), (2, 5, 3)])
def test_any_leading_axes(shape, getkey):
    logits = jax.random.normal(getkey(), shape)
    pi = Categorical(logits)
    action = pi.sample(getkey())
    assert action.shape == pi.mode().shape == pi.entropy().shape == pi.log_prob(action).shape == shape[:-1]
    flat = np.asarray(logits).reshape(-1, 3)
    np.testing.assert_allclose(
        np.ravel(pi.log_prob(action)), reference(flat)[np.arange(len(flat)), np.ravel(action)], rtol=1e-5, atol=1e-6
    )


def test_actions_may_be_the_first_axis(getkey):
    rows = Categorical(jnp.asarray(LOGITS, jnp.float32))
    cols = Categorical(jnp.asarray(LOGITS.T, jnp.float32), axis=0)
    action = jnp.array([0, 1, 2, 3, 0, 1])
    assert rows.num_actions == cols.num_actions == 4
    np.testing.assert_allclose(cols.log_probs.T, rows.log_probs, rtol=1e-6)
    for one, other in (
        (rows.entropy(), cols.entropy()),
        (rows.log_prob(action), cols.log_prob(action)),
        (rows.expect(rows.log_probs**2), cols.expect(cols.log_probs**2)),
        (rows.mode(), cols.mode()),
    ):
        np.testing.assert_allclose(one, other, rtol=2e-6)
    assert cols.sample(getkey()).shape == (6,)


@pytest.mark.parametrize("gap", [0.0, 50.0, 200.0, 1e4])
def test_a_certain_policy_has_finite_numbers_and_gradients(gap):
    z = jnp.array([[0.0], [-gap]])
    critic = eqx.tree_at(lambda m: m.biases, MLP((1, 2), jax.random.key(0)), (jnp.array([1.0, -1.0]),))

    def everything(z):
        pi = Categorical(z, axis=0)
        value = soft_value(EXACT_SUM, (critic, critic), pi, jnp.zeros((1, 1)), 0.3)
        return jnp.concatenate([pi.entropy(), value, pi.log_prob(jnp.array([1]))])

    assert np.isfinite(jax.jit(everything)(z)).all()
    assert np.isfinite(jax.jit(jax.jacobian(everything))(z)).all()
    assert float(Categorical(z, axis=0).log_prob(jnp.array([1]))[0]) == pytest.approx(-gap if gap else -np.log(2))
    assert float(Categorical(z, axis=0).entropy()[0]) == pytest.approx(np.log(2) if gap == 0 else 0.0, abs=1e-6)


def test_log_of_softmax_is_not_finite():
    """Negative control of the test above."""
    z = jnp.array([[0.0, -200.0]])
    pi = jax.nn.softmax(z)
    assert not jnp.isfinite(jnp.sum(pi * jnp.log(pi)))


def test_samples_have_the_probabilities(getkey):
    """χ² on 400 000 draws; a distribution off by two per cent would not pass."""
    logits, draws = jnp.array([1.0, 0.0, -1.0, -2.0]), 400_000
    pi = Categorical(jnp.broadcast_to(logits, (draws, 4)))
    drawn = pi.sample(getkey())
    assert not np.array_equal(drawn, pi.sample(getkey()))
    counts = np.bincount(np.asarray(drawn), minlength=4)
    expected = np.exp(reference(np.asarray(logits, np.float64))) * draws
    assert stats.chisquare(counts, expected).pvalue > 1e-3
    shifted = expected * np.array([0.98, 1.02, 1.0, 1.0])
    assert stats.chisquare(counts, shifted * draws / shifted.sum()).pvalue < 1e-3


def test_distances_of_policies_agree_with_numpy():
    """KL(π ‖ π'): a sum over discrete actions; an integral over the one component of a continuous action."""
    other = np.random.default_rng(2).normal(scale=3.0, size=LOGITS.shape)
    p, q = reference(LOGITS), reference(other)
    a, b = (Categorical(jnp.asarray(x, jnp.float32)) for x in (LOGITS, other))
    np.testing.assert_allclose(a.kl_to(b), (np.exp(p) * (p - q)).sum(1), rtol=1e-5)
    np.testing.assert_allclose(a.kl_to(a), 0.0, atol=1e-6)

    rng = np.random.default_rng(3)
    first, second = (jnp.asarray(rng.uniform(-1, 1, (5, 2)), jnp.float32) for _ in range(2))
    a, b = SquashedGaussian(first), SquashedGaussian(second)
    u = np.linspace(-30, 30, 200_001)
    for i, found in enumerate(np.asarray(a.kl_to(b))):
        ours, theirs = (cast(Any, stats.norm)(float(x.mean[i, 0]), float(np.exp(x.log_std[i, 0]))) for x in (a, b))
        wanted = np.trapezoid(ours.pdf(u) * (ours.logpdf(u) - theirs.logpdf(u)), u)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
