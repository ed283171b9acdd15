"""Both operators of soft values, targets and the imitation constraint against values computed by hand."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from reference import squashed_numpy as ref
from scopil.losses import soft
from scopil.losses.constraints import entropic_constraint, nll_constraint
from scopil.losses.soft import EXACT_SUM, REPARAMETRISED, operator, soft_value
from scopil.nn.distributions import Categorical, Resolved, Sampled, SquashedGaussian, pick
from scopil.nn.heads import BoxHead, DiscreteHead
from scopil.nn.nets import MLP

P = np.array([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]])
Q = np.array([[1.0, 3.0], [2.0, -1.0], [0.0, 0.5]])
Q_OTHER = np.array([[2.0, 2.0], [1.0, 4.0], [-1.0, 0.5]])
H = -(P * np.log(P)).sum(1)
STATES = np.eye(3, dtype=np.float32)  # three states, one-hot


def linear(weight: np.ndarray, bias: np.ndarray) -> MLP:
    """A network without hidden layers; weights are (out, in)."""
    net = MLP(weight.shape[::-1], jax.random.key(0))
    arrays = (jnp.asarray(weight, jnp.float32),), (jnp.asarray(bias, jnp.float32),)
    return eqx.tree_at(lambda m: (m.weights, m.biases), net, arrays)


def table(q: np.ndarray) -> MLP:
    """A critic whose value of state i is row i."""
    return linear(q.T, np.zeros(q.shape[1]))


@pytest.fixture(scope="module")
def pi() -> Categorical:
    return Categorical(jnp.asarray(np.log(P).T, jnp.float32), axis=0)


@pytest.fixture(scope="module")
def critics() -> tuple[MLP, MLP]:
    return table(Q), table(Q_OTHER)


# --- discrete actions ----------------------------------------------------------------------------------------------


def test_the_soft_value_adds_the_entropy(pi, critics):
    """Erratum 1: V = Σ π min Q + αH, with a plus."""
    s = EXACT_SUM.states(jnp.asarray(STATES))
    want = (P * np.minimum(Q, Q_OTHER)).sum(1) + 0.3 * H
    np.testing.assert_allclose(soft_value(EXACT_SUM, critics, pi, s, 0.3), want, rtol=1e-6)
    np.testing.assert_allclose(EXACT_SUM.mean_q(critics, pi, s), (P * (Q + Q_OTHER) / 2).sum(1), rtol=1e-6)


def test_the_critic_at_the_taken_action(critics):
    action, s = jnp.array([1, 0, 1]), EXACT_SUM.states(jnp.asarray(STATES))
    np.testing.assert_allclose(pick(jnp.asarray(Q.T, jnp.float32), action, axis=0), [3.0, 2.0, 0.5])
    np.testing.assert_allclose(EXACT_SUM.q(critics[0], s, action), [3.0, 2.0, 0.5])


def test_exact_sums_draw_nothing(pi):
    actor = table(np.log(P))
    assert EXACT_SUM.noise(jax.random.key(0), 3, 2, DiscreteHead(2)) == (None, None, None)
    s = EXACT_SUM.states(jnp.asarray(STATES))
    for made in (EXACT_SUM.distribution(actor, s, None), EXACT_SUM.imitator(actor, s, None, 0.05)):
        np.testing.assert_allclose(made.log_probs, pi.log_probs, rtol=1e-6)


# --- continuous actions --------------------------------------------------------------------------------------------

# Of two critics, with three states and two actions as inputs.
WEIGHTS = np.random.default_rng(0).normal(size=(2, 1, 5)).astype(np.float32)
ACTOR = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
XI = np.array([[0.5, -1.0], [0.0, 2.0], [-0.3, 0.7]], np.float32)


def test_expectations_use_one_sampled_action():
    critics = linear(WEIGHTS[0], np.array([0.1])), linear(WEIGHTS[1], np.array([0.1]))
    s = REPARAMETRISED.states(jnp.asarray(STATES))
    pi = REPARAMETRISED.distribution(linear(ACTOR, np.zeros(4)), s, jnp.asarray(XI))
    action, log_pi = ref.sampled([(ACTOR.T.astype(float), np.zeros(4))], STATES.astype(float), XI.astype(float))
    q = [np.concatenate([STATES, action], 1) @ w[0] + 0.1 for w in WEIGHTS]
    assert (q[0] < q[1]).any()
    assert (q[0] > q[1]).any()
    np.testing.assert_allclose(
        soft_value(REPARAMETRISED, critics, pi, s, 0.3), np.minimum(*q) - 0.3 * log_pi, rtol=1e-5
    )
    np.testing.assert_allclose(REPARAMETRISED.mean_q(critics, pi, s), (q[0] + q[1]) / 2, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(pi.entropy(), -log_pi, rtol=1e-5, atol=1e-6)


def test_gradients_flow_through_the_drawn_action():
    """V's slope in the actor's outputs against central differences of the NumPy policy."""
    critics = linear(WEIGHTS[0], np.array([0.1])), linear(WEIGHTS[1], np.array([0.1]))
    s = jnp.asarray(STATES)

    def value(bias):
        pi = REPARAMETRISED.distribution(linear_of(bias), s, jnp.asarray(XI))
        return soft_value(REPARAMETRISED, critics, pi, s, 0.3).sum()

    def linear_of(bias):
        return eqx.tree_at(lambda m: m.biases, linear(ACTOR, np.zeros(4)), (bias,))

    def wanted(bias):
        net = [(ACTOR.T.astype(float), bias)]
        action, log_pi = ref.sampled(net, STATES.astype(float), XI.astype(float))
        q = [np.concatenate([STATES, action], 1) @ w[0].astype(float) + 0.1 for w in WEIGHTS]
        return float((np.minimum(*q) - 0.3 * log_pi).sum())

    slope = [(wanted(h) - wanted(-h)) / 2e-6 for h in 1e-6 * np.eye(4)]
    np.testing.assert_allclose(jax.grad(value)(jnp.zeros(4)), slope, rtol=1e-4)


def test_the_noise_of_an_update_is_one_draw_in_three_parts(getkey):
    head = BoxHead(-jnp.ones(2), jnp.ones(2))
    noise: Any = REPARAMETRISED.noise(getkey(), 500, 300, head)
    assert [x.shape for x in noise] == [(500, 2), (500, 2), (300, 2)]
    rows = np.concatenate(noise)
    assert len(np.unique(rows)) > rows.size - 5
    assert abs(rows.mean()) < 0.1
    assert rows.std() == pytest.approx(1.0, abs=0.05)
    none: Any = REPARAMETRISED.noise(getkey(), 4, 0, head).demo
    assert none.shape == (0, 2)


def test_the_operator_fits_the_head():
    head = BoxHead(-jnp.ones(2), jnp.ones(2))
    assert operator(head) is REPARAMETRISED
    assert operator(DiscreteHead(4)) is EXACT_SUM
    assert REPARAMETRISED.critic_sizes(3, (8,), head) == (5, 8, 1)
    assert EXACT_SUM.critic_sizes(3, (8,), DiscreteHead(4)) == (3, 8, 4)
    imitator = REPARAMETRISED.imitator(linear(ACTOR, np.zeros(4)), jnp.asarray(STATES), jnp.asarray(XI), 0.05)
    assert isinstance(imitator, Resolved)
    pi = REPARAMETRISED.distribution(linear(ACTOR, np.zeros(4)), jnp.asarray(STATES), jnp.asarray(XI))
    assert isinstance(pi, Sampled)


# --- both ----------------------------------------------------------------------------------------------------------


def test_only_a_termination_ends_the_future():
    """Also where the value after it is infinite."""
    reward, v = jnp.ones(4), jnp.array([10.0, 10.0, -4.0, jnp.inf])
    y = soft.td_target(reward, jnp.array([False, True, False, True]), v, 0.5)
    np.testing.assert_allclose(y, [6.0, 1.0, -1.0, 1.0])


@pytest.mark.parametrize("slack", [0.0, 0.25])
def test_the_constraint_with_and_without_entropy(slack, pi):
    action = jnp.array([0, 0, 1])
    nll = -np.log([0.5, 0.9, 0.8])
    np.testing.assert_allclose(nll_constraint(pi, action, 0.4, slack), nll - slack, rtol=1e-5)
    np.testing.assert_allclose(entropic_constraint(pi, action, 0.4, slack), nll - 0.4 * H - slack, rtol=1e-5)


@pytest.mark.parametrize("slack", [0.0, 2.5])
def test_the_constraint_of_continuous_actions_counts_cells(slack):
    """−log P(cell) and the entropy in cells of width 2ε, two components: h + … − 2 log 2ε."""
    net, eps = [(ACTOR.T.astype(float), np.zeros(4))], 0.05
    action = np.array([[0.2, -1.0], [0.99, 0.0], [-0.4, 0.6]])
    nll = -ref.log_mass(net, STATES.astype(float), action, eps)
    entropy = -ref.sampled(net, STATES.astype(float), XI.astype(float))[1] - 2 * np.log(2 * eps)
    made = Resolved(SquashedGaussian(jnp.asarray(STATES @ ACTOR.T)), jnp.asarray(XI), eps)
    shown = jnp.asarray(action, jnp.float32)
    np.testing.assert_allclose(nll_constraint(made, shown, 0.4, slack), nll - slack, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        entropic_constraint(made, shown, 0.4, slack), nll - 0.4 * entropy - slack, rtol=1e-4, atol=1e-5
    )
