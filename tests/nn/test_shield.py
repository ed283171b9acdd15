"""Shields against a float64 twin, in JAX and in NumPy; shields with known answers; limits that keep all or nothing."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from reference import shield_numpy
from scopil.errors import ConfigError
from scopil.nn.heads import BoxHead, DiscreteHead
from scopil.nn.normalise import normalise
from scopil.nn.shield import points
from scopil.policy import Policy
from shields import KINDS, act, distribution, linear, linear_shield, shielded, states, with_limit

CLOSE = 1e-5  # in float32, a Q this close to the limit or to the least Q may be on either side of it


@pytest.fixture(scope="module", params=KINDS)
def policy(request) -> Policy:
    return shielded(request.param)


def assert_equal(one: Any, two: Any) -> None:
    np.testing.assert_array_equal(one, two)


def decided(q: np.ndarray, limit: float) -> bool:
    """Whether rounding to float32 cannot change which actions are kept."""
    least, second = np.sort(q)[:2]
    return bool(np.abs(q - limit).min() > CLOSE and (least < limit or second - least > CLOSE))


def twin_of(policy: Policy) -> tuple[Any, list[Any], float, np.ndarray]:
    """Observations, and critics, limit and normalised observations for the twin."""
    shield: Any = policy.shield
    obs = jnp.asarray(states(policy))
    s = np.asarray(normalise(policy.normaliser, obs), np.float64)
    return obs, [shield_numpy.layers(critic) for critic in shield.critics], float(shield.limit), s


def test_discrete_actions_are_masked_as_by_the_twin():
    policy, compared = shielded("numbered"), 0
    obs, critics, limit, rows = twin_of(policy)
    raw, pi = (np.exp(np.asarray(distribution(p, obs).log_probs, np.float64)) for p in (policy.unshielded(), policy))
    for s, before, after, action in zip(rows, raw, pi, np.asarray(act(policy, obs))):
        kept, q = shield_numpy.masked(critics, limit, s)
        if decided(q, limit):
            want = before * kept / np.sum(before * kept)
            np.testing.assert_allclose(after, want, atol=1e-6)
            assert action == np.argmax(want)
            compared += 1
    assert compared > 990


@pytest.mark.parametrize("kind", ["box", "gaussian"])
def test_continuous_actions_are_moved_as_by_the_twin(kind):
    policy, compared = shielded(kind), 0
    obs, critics, limit, rows = twin_of(policy)
    raw = np.asarray(distribution(policy.unshielded(), obs).mode(), np.float64)
    for s, before, after in zip(rows[:200], raw, np.asarray(act(policy, obs))):
        action, q = shield_numpy.moved(critics, limit, s, before)
        if decided(q, limit):
            np.testing.assert_allclose(after, [-1.0, 0.0] + np.array([2.0, 0.25]) * (action + 1.0), atol=1e-5)
            compared += 1
    assert compared > 190


def test_numpy_takes_the_actions_of_jax(policy):
    """Greedy actions are equal. Sampled ones are kept by the same mask."""
    obs, in_numpy, every = states(policy), policy.in_numpy(), np.arange(1000)
    start = policy.head.start if isinstance(policy.head, DiscreteHead) else 0
    greedy, raw = (np.asarray(act(p, jnp.asarray(obs))) for p in (policy, policy.unshielded()))
    np.testing.assert_allclose(in_numpy(obs, None) - start, greedy, atol=2e-6)
    np.testing.assert_allclose(in_numpy(obs[7], None) - start, greedy[7], atol=2e-6)
    assert 0.3 < (greedy != raw).reshape(1000, -1).any(-1).mean() < 0.7
    if isinstance(policy.head, DiscreteHead):
        probs = np.exp(np.asarray(distribution(policy, jnp.asarray(obs)).log_probs))
        drawn = [in_numpy(obs, np.random.default_rng(i)) - start for i in range(10)]
        drawn += [np.asarray(act(policy, jnp.asarray(obs), jax.random.key(i))) for i in range(10)]
        assert all((probs[every, d] > 0).all() for d in drawn)
        assert len({tuple(d) for d in drawn}) == 20


def test_an_infinite_limit_is_the_policy_without_a_shield_bit_for_bit(policy):
    both, obs = (with_limit(policy, np.inf), policy.unshielded()), states(policy)
    assert_equal(*(act(p, jnp.asarray(obs)) for p in both))
    assert_equal(*(act(p, jnp.asarray(obs), jax.random.key(1)) for p in both))
    assert_equal(*(p.act_numpy(obs) for p in both))
    assert_equal(*(p.act_numpy(obs, np.random.default_rng(1)) for p in both))
    if not policy.head.continuous:
        assert_equal(*(distribution(p, jnp.asarray(obs)).log_probs for p in both))


def test_if_no_action_is_within_the_limit_the_one_of_least_q_is_taken():
    """Q differs by less than rounding would show beside a large number."""
    shield = linear_shield(np.zeros((3, 2)), [1.02, 1.0, 1.01], limit=0.5)
    numbered = Policy(None, linear(np.zeros((3, 2)), [5.0, 0.0, 1.0]), DiscreteHead(3), shield)
    obs = np.array([[0.3, -2.0]], np.float32)
    assert numbered.act(jnp.asarray(obs)) == numbered.act_numpy(obs) == 1
    slope = linear_shield([[0.0, 0.0, 1e-3]], [1.0], limit=0.5)  # Q grows with the action
    box = Policy(None, linear(np.zeros((2, 2)), [0.4, 0.0]), BoxHead(jnp.array([-1.0]), jnp.array([1.0])), slope)
    lowest = min(shield_numpy.moved([shield_numpy.layers(c) for c in slope.critics], 0.5, obs[0], np.tanh([0.4]))[0])
    assert lowest < -0.9
    np.testing.assert_allclose(box.act(jnp.asarray(obs)), [[lowest]], atol=1e-6)
    np.testing.assert_allclose(box.act_numpy(obs), [[lowest]], atol=1e-6)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_the_points_that_are_tried_in_full_spread_over_the_range_of_each_component(width):
    targets, share = points(width)
    full = targets[share[:, 0] == 1.0]
    assert (full.min(0) < -0.4).all()
    assert (full.max(0) > 0.7).all()


def test_a_limit_that_is_not_a_number_keeps_only_the_action_of_least_q(policy):
    obs = states(policy)
    assert_equal(*(with_limit(policy, limit).act_numpy(obs) for limit in (np.nan, -np.inf)))


@pytest.mark.parametrize("kind", ["numbered", "box"])
def test_the_shield_alone_changes_the_given_actions_that_are_not_kept(kind):
    policy = shielded(kind)
    shield, rng, changes = policy.shield_in_numpy(), np.random.default_rng(0), 0
    obs, critics, limit, rows = twin_of(policy)
    for o, s in zip(np.asarray(obs), rows[:60]):
        if policy.head.continuous:
            unit = rng.uniform(-1, 1, 2)
            given = (np.array([-1.0, 0.0]) + np.array([2.0, 0.25]) * (unit + 1.0)).astype(np.float32)
            action, q = shield_numpy.moved(critics, limit, s, unit)
            same, want = np.array_equal(action, unit), [-1.0, 0.0] + np.array([2.0, 0.25]) * (action + 1.0)
        else:
            given = np.asarray(3 + rng.integers(4))
            kept, q = shield_numpy.masked(critics, limit, s)
            same, want = kept[given - 3], policy.act_numpy(o)
        taken, within = shield(o, given)
        if decided(q, limit):
            assert within == (q.min() <= limit)
            assert (taken is given) == same
            np.testing.assert_allclose(taken, given if same else want, atol=1e-5)
            changes += not same
    assert 10 < changes < 50


def test_a_policy_without_a_shield_has_none_to_apply(policy):
    with pytest.raises(ConfigError, match="no shield"):
        policy.unshielded().shield_in_numpy()
