"""Indices for batches: uniform, in range, and different for every key."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from scopil.buffers.replay import uniform_indices


def test_every_index_is_as_likely(getkey):
    """χ² on 200 000 draws; sizes that do not divide 2³² included."""
    for low, high in zip(uniform_indices(getkey(), (200_000, 7), (200_000, 64)), (7, 64)):
        counts = np.bincount(np.asarray(low), minlength=high)
        assert len(counts) == high
        assert stats.chisquare(counts).pvalue > 1e-3


def test_parts_of_one_draw_and_draws_of_two_keys_are_independent(getkey):
    first, second = uniform_indices(getkey(), (50_000, 10), (50_000, 10))
    (third,) = uniform_indices(getkey(), (50_000, 10))
    for other in (second, third):
        table = np.histogram2d(np.asarray(first), np.asarray(other), bins=10)[0]
        found: Any = stats.chi2_contingency(table)
        assert found.pvalue > 1e-3


def test_neighbouring_steps_draw_independently(getkey):
    """The loop folds the step's number into one key: index i of step t against index i of step t + 1."""
    key = getkey()
    draw = jax.jit(jax.vmap(lambda t: uniform_indices(jax.random.fold_in(key, t), (256, 5))[0]))
    steps = np.asarray(draw(jnp.arange(400)))
    table = np.histogram2d(steps[:-1].ravel(), steps[1:].ravel(), bins=5)[0]
    found: Any = stats.chi2_contingency(table)
    assert found.pvalue > 1e-3


def test_the_size_may_be_an_array(getkey):
    (index,) = jax.jit(lambda key, size: uniform_indices(key, (1_000, size)))(getkey(), jnp.int32(3))
    assert index.dtype == jnp.int32
    assert set(np.asarray(index)) == {0, 1, 2}


def test_a_lane_draws_what_it_draws_alone(getkey):
    keys = jax.random.split(getkey(), 3)
    lanes = jax.jit(jax.vmap(lambda key: uniform_indices(key, (50, 1_000))[0]))(keys)
    for lane, key in zip(lanes, keys):
        np.testing.assert_array_equal(lane, uniform_indices(key, (50, 1_000))[0])
