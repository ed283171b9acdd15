"""Soft values, targets and the imitation constraint, one number a sample, against hand-computed ones."""

import jax.numpy as jnp
import numpy as np
import pytest

from scopil.core import soft
from scopil.core.distributions import Categorical, pick
from scopil.core.imitation import entropic_constraint, nll_constraint

P = np.array([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]])
Q = np.array([[1.0, 3.0], [2.0, -1.0], [0.0, 0.5]])
PI = Categorical(jnp.asarray(np.log(P).T, jnp.float32), axis=0)
QS = jnp.asarray(Q.T, jnp.float32)
H = -(P * np.log(P)).sum(1)


def test_the_soft_value_adds_the_entropy():
    """Erratum 1: V = Σ π Q + αH, with a plus."""
    np.testing.assert_allclose(soft.soft_value(PI, QS, 0.3), (P * Q).sum(1) + 0.3 * H, rtol=1e-6)
    np.testing.assert_allclose(soft.policy_objective(PI, QS, 0.3), (P * Q).sum(1) + 0.3 * H, rtol=1e-6)


def test_only_a_termination_cuts_the_future():
    reward, v = jnp.array([1.0, 1.0, 1.0]), jnp.array([10.0, 10.0, -4.0])
    y = soft.td_target(reward, jnp.array([False, True, False]), v, 0.5)
    np.testing.assert_allclose(y, [6.0, 1.0, -1.0])


def test_an_infinite_future_behind_a_termination_is_not_seen():
    y = soft.td_target(jnp.array([1.0]), jnp.array([True]), jnp.array([jnp.inf]), 0.9)
    np.testing.assert_array_equal(y, [1.0])


def test_the_td_loss_is_half_a_square_of_the_taken_action():
    action, y = jnp.array([1, 0, 1]), jnp.array([0.0, 4.0, 0.5])
    np.testing.assert_allclose(pick(QS, action, axis=0), [3.0, 2.0, 0.5])
    np.testing.assert_allclose(soft.td_loss(QS, action, y), [4.5, 2.0, 0.0])


@pytest.mark.parametrize("slack", [0.0, 0.25])
def test_the_constraint_with_and_without_entropy(slack):
    action = jnp.array([0, 0, 1])
    nll = -np.log([0.5, 0.9, 0.8])
    np.testing.assert_allclose(nll_constraint(PI, action, 0.4, slack), nll - slack, rtol=1e-5)
    np.testing.assert_allclose(entropic_constraint(PI, action, 0.4, slack), nll - 0.4 * H - slack, rtol=1e-5)
