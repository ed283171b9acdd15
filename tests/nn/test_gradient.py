"""Adam steps against optax's own and against the written-out recursion; multipliers."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from reference.soft_numpy import Adam
from scopil.losses.constraints import ascend, hold
from scopil.nn.gradient import gradient_step, trainable

START = {"w": np.array([[0.3, -1.2], [2.0, 0.1]], np.float32), "b": np.array([0.5, -0.5], np.float32)}


def loss(params):
    value = jnp.sum(params["w"] ** 4) + jnp.sum(jnp.sin(params["b"]))
    return value, {"seen": params["b"][0]}


def test_a_gradient_step_is_adam():
    rate, adam = 0.03, optax.adam(0.03)
    ours = jax.jit(lambda learner: gradient_step(learner, loss, rate))

    @jax.jit
    def theirs(params, opt):
        updates, opt = adam.update(jax.grad(lambda p: loss(p)[0])(params), opt, params)
        return optax.apply_updates(params, updates), opt

    learner, params = trainable(jax.tree.map(jnp.asarray, START)), jax.tree.map(jnp.asarray, START)
    opt = adam.init(params)
    twin = Adam([np.zeros((2, 2)), np.zeros(2)], [np.zeros((2, 2)), np.zeros(2)])
    numbers = [START["w"].astype(np.float64), START["b"].astype(np.float64)]
    for _ in range(5):
        before = learner
        learner, value, extras = ours(learner)
        assert float(value) == pytest.approx(float(loss(before.params)[0]), rel=1e-6)  # before the step
        assert float(extras["seen"]) == float(before.params["b"][0])
        params, opt = theirs(params, opt)
        numbers = twin.step(numbers, [4 * numbers[0] ** 3, np.cos(numbers[1])], rate)
    for name, number in zip(("w", "b"), numbers):
        np.testing.assert_allclose(learner.params[name], params[name], rtol=1e-6)
        np.testing.assert_allclose(learner.params[name], number, rtol=1e-5, atol=1e-6)
        assert not np.allclose(learner.params[name], START[name], atol=0.05)


def test_the_rate_may_be_an_array_and_zero_holds_still():
    learner = trainable(jax.tree.map(jnp.asarray, START))
    a, _, _ = gradient_step(learner, loss, 0.03)
    b, _, _ = gradient_step(learner, loss, jnp.float32(0.03))
    still, _, _ = gradient_step(learner, loss, 0.0)
    np.testing.assert_array_equal(a.params["w"], b.params["w"])
    np.testing.assert_array_equal(still.params["w"], START["w"])


@pytest.mark.parametrize(
    ("lam", "violation", "rate", "after"),
    [
        (1.0, 0.5, 0.1, 1.05),
        (1.0, -0.5, 0.1, 0.95),
        (0.01, -0.5, 0.1, 0.0),
        (0.0, -3.0, 1.0, 0.0),
        (0.0, 2.0, 0.5, 1.0),
        (1e6, 1e6, 1.0, 2e6),  # no upper bound
    ],
)
def test_a_multiplier_rises_with_the_violation_and_stops_at_zero(lam, violation, rate, after):
    assert float(ascend(lam, violation, rate)) == pytest.approx(after)
    assert float(hold(lam, violation, rate)) == np.float32(lam)


def test_a_multiplier_keeps_nan():
    assert np.isnan(ascend(jnp.float32(1.0), jnp.float32(jnp.nan), 0.1))
