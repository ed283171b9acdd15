"""The ring against a Python list, the packing of every kind of field, and the indices of batches."""

from collections import deque
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from scopil.buffers import replay as ring
from scopil.buffers.replay import uniform_indices
from scopil.types import Transition

LIKE = Transition(jnp.zeros(3), jnp.int32(0), jnp.float32(0), jnp.zeros(3), jnp.array(False), jnp.array(False))

add = jax.jit(ring.add)


def block(first: int, n: int) -> Transition:
    """Transitions numbered from `first`; the number is in every field."""
    i = np.arange(first, first + n)
    obs = np.stack([i, i + 0.1, -i / 3], axis=1).astype(np.float32)
    return Transition(
        *map(jnp.asarray, (obs, (i % 7).astype(np.int32), (i / 7).astype(np.float32), obs * 2, i % 2 == 0, i % 3 == 0))
    )


def same(got: Transition, want: Transition) -> None:
    for name, a, b in zip(Transition._fields, got, want):
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.parametrize("n", [1, 3, 12])
def test_the_ring_keeps_the_newest(n):
    replay, kept = ring.empty(12, LIKE), deque(maxlen=12)
    unpack = jax.jit(lambda rows: ring.unpack(rows, LIKE))
    table = jax.device_get(block(0, 5 * 12))
    for first in range(0, 5 * 12, n):
        replay = add(replay, block(first, n))
        kept.extend(range(first, first + n))
        assert int(replay.size) == len(kept)
        assert int(replay.added) == first + n
        held = np.asarray(replay.rows)[: len(kept), 0].astype(int)
        assert sorted(held) == list(kept)
        whole = jax.device_get(unpack(replay.rows))
        for got, want in zip(whole, table):  # every row whole: no field left from an older transition
            np.testing.assert_array_equal(got[: len(kept)], want[held])


@pytest.mark.parametrize("since", [0, 5, 11, 12, 20, 24])
@pytest.mark.parametrize("n", [1, 3, 12])
def test_the_rows_added_since_a_count(n, since):
    replay = ring.empty(12, LIKE)
    for first in range(0, 24, n):
        replay = add(replay, block(first, n))
    got = np.concatenate(ring.newest_rows(replay, since))[:, 0].astype(int)
    assert sorted(got) == list(range(max(since, 12), 24))
    young = add(ring.empty(12, LIKE), block(0, n))
    assert np.isin(np.arange(n), np.concatenate(ring.newest_rows(young, 0))[:, 0]).all()


def test_every_field_comes_back_bit_for_bit(getkey):
    rng = np.random.default_rng(0)
    n = 8
    real = rng.normal(size=(n, 3)).astype(np.float32) * np.float32(10.0) ** rng.integers(-30, 30, (n, 1))
    real[0] = [np.finfo(np.float32).tiny, np.finfo(np.float32).max, -0.0]
    action = np.array([0, 1, 255, 256, 65_535, 2**20 + 1, 2**24 - 1, -1], np.int32)
    flags = rng.integers(2, size=(2, n)).astype(bool)
    whole = Transition(*map(jnp.asarray, (real, action, real[:, 0], -real, *flags)))
    replay = ring.add(ring.empty(n, LIKE), whole)
    same(ring.unpack(replay.rows, LIKE), whole)
    assert np.signbit(ring.unpack(replay.rows, LIKE).obs[0, 2])


def test_real_vector_actions_and_images_keep_their_shapes():
    like = LIKE._replace(obs=jnp.zeros((2, 2)), next_obs=jnp.zeros((2, 2)), action=jnp.zeros(2))
    rng = np.random.default_rng(1)
    obs, action = rng.normal(size=(4, 2, 2)).astype(np.float32), rng.normal(size=(4, 2)).astype(np.float32)
    whole = block(0, 4)._replace(obs=jnp.asarray(obs), next_obs=jnp.asarray(obs + 1), action=jnp.asarray(action))
    same(ring.unpack(ring.add(ring.empty(4, like), whole).rows, like), whole)


def test_pixels_are_kept_as_bytes():
    rng = np.random.default_rng(2)
    like = LIKE._replace(obs=jnp.zeros((3, 3), jnp.uint8), next_obs=jnp.zeros((3, 3), jnp.uint8))
    obs = rng.integers(256, size=(2, 12, 3, 3)).astype(np.uint8)
    whole = block(0, 12)._replace(obs=jnp.asarray(obs[0]), next_obs=jnp.asarray(obs[1]))
    first, rest = (jax.tree.map(lambda leaf, part=part: leaf[part], whole) for part in (slice(6), slice(6, 12)))
    replay = add(jax.jit(ring.begin_with)(ring.empty(12, like), first), rest)
    same(ring.take(replay, jnp.arange(12), like), whole)
    assert replay.pixels is not None
    assert replay.pixels.nbytes + replay.rows.nbytes == 12 * ring.bytes_per_row(like) == 12 * (2 * 9 + 4 * 4)


@pytest.mark.parametrize(("added", "size"), [(1, 1), (5, 5), (16, 16), (23, 16)])
def test_samples_are_uniform_over_the_written_rows(added, size, getkey):
    replay = ring.empty(16, LIKE)
    replay = replay._replace(rows=jnp.full_like(replay.rows, jnp.nan))  # never written, never sampled
    for i in range(added):
        replay = add(replay, block(i + 1, 1))
    draws = 4_000
    (index,) = uniform_indices(getkey(), (draws, replay.size))
    batch = ring.take(replay, index, LIKE)
    numbers = np.asarray(batch.obs[:, 0]).astype(int)
    assert set(numbers) == set(range(added - size + 1, added + 1))
    counts = np.bincount(numbers - (added - size + 1), minlength=size)
    if size > 1:
        assert stats.chisquare(counts).pvalue > 1e-3
    table = block(0, added + 1)
    same(batch, Transition(*(leaf[numbers] for leaf in table)))


def test_a_ring_with_first_transitions():
    begun = jax.jit(ring.begin_with)(ring.empty(12, LIKE), block(0, 6))
    assert int(begun.size) == 6
    same(ring.take(begun, jnp.arange(6), LIKE), block(0, 6))
    after = add(begun, block(6, 3))
    same(ring.take(after, jnp.arange(9), LIKE), block(0, 9))


# --- indices for batches --------------------------------------------------------------------------------------------


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


def test_draws_under_vmap_are_those_of_each_key(getkey):
    keys = jax.random.split(getkey(), 3)
    lanes = jax.jit(jax.vmap(lambda key: uniform_indices(key, (50, 1_000))[0]))(keys)
    for lane, key in zip(lanes, keys):
        np.testing.assert_array_equal(lane, uniform_indices(key, (50, 1_000))[0])
