"""The clipped surrogate against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scopil.losses import policy_gradient as surrogate


@pytest.mark.parametrize(
    ("ratio", "advantage", "wanted", "slope"),
    [
        (1.0, 2.0, 2.0, 2.0),
        (1.1, 2.0, 2.2, 2.2),
        (1.5, 2.0, 2.4, 0.0),  # better than hoped: held at 1.2 · 2, nothing more to gain
        (0.5, 2.0, 1.0, 1.0),  # worse: not held
        (0.5, -2.0, -1.6, 0.0),  # bad action already rare: held at 0.8 · −2
        (1.5, -2.0, -3.0, -3.0),  # bad action made likelier: not held
    ],
)
def test_clipped(ratio, advantage, wanted, slope):
    def objective(log_ratio):
        return surrogate.clipped(log_ratio, jnp.array([advantage]), 0.2).sum()

    value, grad = jax.value_and_grad(objective)(jnp.log(jnp.array([ratio])))
    np.testing.assert_allclose(value, wanted, rtol=1e-6)
    np.testing.assert_allclose(grad[0], slope, rtol=1e-6)  # d(ρA)/d log ρ = ρA


def test_unclipped_is_the_plain_ratio():
    got = surrogate.unclipped(jnp.log(jnp.array([0.5, 3.0])), jnp.array([2.0, -1.0]))
    np.testing.assert_allclose(got, [1.0, -3.0], rtol=1e-6)


def test_centred_and_standardised():
    x = jnp.array([1.0, 2.0, 6.0])
    np.testing.assert_allclose(surrogate.centred(x), [-2.0, -1.0, 3.0])
    np.testing.assert_allclose(surrogate.standardised(x), np.array([-2.0, -1.0, 3.0]) / np.sqrt(7), rtol=1e-6)
    assert np.isfinite(surrogate.standardised(jnp.ones(4))).all()
