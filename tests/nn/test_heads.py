"""Between a network's outputs, the learner's actions and the environment's."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from scopil.algos.base import head_for, spaces_of
from scopil.errors import EnvError
from scopil.nn.distributions import Categorical, SquashedGaussian
from scopil.nn.heads import BoxHead, DiscreteHead

LOW, HIGH = (-1.0, 0.0, -0.1), (3.0, 0.5, 1000.0)


def box(low=LOW, high=HIGH) -> BoxHead:
    return BoxHead(jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32))


# --- a box ---------------------------------------------------------------------------------------------------------


def test_a_lopsided_box_maps_to_the_unit_cube_and_back():
    head = box()
    corners = jnp.asarray([LOW, HIGH, [1.0, 0.25, 499.95]])
    np.testing.assert_allclose(head.to_learner(corners), [[-1] * 3, [1] * 3, [0] * 3], atol=1e-6)
    np.testing.assert_allclose(head.to_env(head.to_learner(corners)), corners, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(head.to_env(jnp.zeros((2, 4, 3)))[1, 2], [1.0, 0.25, 499.95], rtol=1e-5)


def test_no_action_leaves_the_box_by_a_rounding_error():
    rng = np.random.default_rng(0)
    for _ in range(50):
        low, high = np.sort(rng.normal(size=(2, 3)).astype(np.float32) * 10, axis=0)
        head = box(low, high)
        sure = np.full((1, 3), 100.0, np.float32)  # tanh of it is 1
        for sign, inside in ((1, lambda x, high=high: x <= high), (-1, lambda x, low=low: x >= low)):
            assert inside(np.asarray(head.to_env(jnp.full((1, 3), sign * 1.0)))).all()
            assert inside(head.act_numpy(np.concatenate([sign * sure, 0 * sure], -1), None)).all()
        outside = head.to_learner(jnp.asarray([low - 1, high + 1]))
        np.testing.assert_array_equal(outside, [[-1.0] * 3, [1.0] * 3])


def test_a_box_takes_two_outputs_per_component():
    head = box()
    assert head.continuous
    assert (head.num_actions, head.num_outputs) == (3, 6)
    pi = head(jnp.arange(6.0)[None])
    assert isinstance(pi, SquashedGaussian)
    np.testing.assert_array_equal(pi.mean, [[0.0, 1.0, 2.0]])


def test_numpy_draws_are_tanh_of_a_gaussian():
    """Kolmogorov–Smirnov on 20 000 draws of a known mean and deviation."""
    head, rng = box((-3.0,), (1.0,)), np.random.default_rng(0)
    raw = -1.5 + 3.5 * np.arctanh((np.log(0.4) + 1.5) / 3.5)
    outputs = np.tile(np.array([0.3, raw], np.float32), (20_000, 1))
    unit = (head.act_numpy(outputs, rng)[:, 0] + 1) / 2
    assert stats.kstest(np.arctanh(unit), "norm", (0.3, 0.4)).pvalue > 1e-3
    assert stats.kstest(np.arctanh(unit), "norm", (0.3, 0.42)).pvalue < 1e-3
    np.testing.assert_allclose(head.act_numpy(outputs[:1], None), [[2 * np.tanh(0.3) - 1]], rtol=1e-5)


# --- numbers -------------------------------------------------------------------------------------------------------


def test_numbered_actions_are_counted_from_zero_by_learners_and_from_start_by_environments():
    head = DiscreteHead(4, start=-2)
    assert not head.continuous
    assert (head.num_actions, head.num_outputs) == (4, 4)
    outputs = np.eye(4, dtype=np.float32)
    pi = head(jnp.asarray(outputs))
    assert isinstance(pi, Categorical)
    np.testing.assert_array_equal(head.to_env(pi.mode()), [0, 1, 2, 3])
    np.testing.assert_array_equal(head.to_learner(jnp.arange(4)), [0, 1, 2, 3])
    np.testing.assert_array_equal(head.act_numpy(outputs, None), [-2, -1, 0, 1])
    assert int(head.act_numpy(outputs[3], None)) == 1


def test_numpy_draws_of_numbers_come_as_often_as_they_should():
    logits = np.array([1.0, 0.0, -1.0])
    drawn = DiscreteHead(3, start=5).act_numpy(np.tile(logits, (50_000, 1)), np.random.default_rng(0)) - 5
    expected = np.exp(logits) / np.exp(logits).sum() * len(drawn)
    assert stats.chisquare(np.bincount(drawn, minlength=3), expected).pvalue > 1e-3


# --- spaces --------------------------------------------------------------------------------------------------------


def test_the_head_of_a_space():
    discrete = head_for(gym.spaces.Discrete(5, start=3))
    assert isinstance(discrete, DiscreteHead)
    assert (discrete.num_actions, discrete.start) == (5, 3)
    wide = gym.spaces.Box(np.array(LOW), np.array(HIGH), dtype=np.float64)
    spaces = spaces_of(gym.spaces.Box(-1, 1, (7,)), wide)
    assert spaces.obs_dim == 7
    assert isinstance(spaces.head, BoxHead)
    np.testing.assert_array_equal(spaces.head.low, np.array(LOW, np.float32))
    assert spaces.head.high.dtype == jnp.float32


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.MultiDiscrete([2, 3]),
        gym.spaces.Box(-1, 1, (2, 2)),
        gym.spaces.Box(0, 9, (2,), np.int32),
        gym.spaces.Box(-np.inf, 1, (2,)),
        gym.spaces.Box(np.array([0, 1], np.float32), np.array([1, 1], np.float32)),
    ],
)
def test_action_spaces_that_are_refused(space):
    with pytest.raises(EnvError, match="action space"):
        head_for(space)


@pytest.mark.parametrize("space", [gym.spaces.Discrete(3), gym.spaces.Box(-1, 1, (2, 2))])
def test_observation_spaces_that_are_refused(space):
    with pytest.raises(EnvError, match="observation space"):
        spaces_of(space, gym.spaces.Discrete(2))


def test_heads_are_pytrees_that_jit_takes(getkey):
    """The bounds are leaves, which checkpoints carry; the number of actions is structure."""
    assert len(jax.tree.leaves(box())) == 2
    assert jax.tree.leaves(DiscreteHead(3)) == []
    assert jax.tree.structure(DiscreteHead(3)) != jax.tree.structure(DiscreteHead(4))
    got = jax.jit(lambda head, x: head.to_env(x))(box(), jnp.zeros((1, 3)))
    np.testing.assert_allclose(got, [[1.0, 0.25, 499.95]], rtol=1e-5)
