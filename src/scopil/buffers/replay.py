"""The replay buffer: a ring with one packed float32 row per transition, and random indices for batches.

A training step makes one write and one gather. Image pixels are stored as bytes in a second ring.
"""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from scopil.types import PRNGKey

Row = TypeVar("Row")  # a Transition, or any other tree of arrays


class Replay(NamedTuple):
    rows: Float[Array, "capacity row"]
    added: Int[Array, ""]  # total number of transitions added; the ring holds the newest `capacity`
    pixels: UInt8[Array, "capacity bytes"] | None = None  # None if transitions have no pixels

    @property
    def size(self) -> Int[Array, ""]:
        return jnp.minimum(self.added, self.rows.shape[0])


def empty(capacity: int, example: Any) -> Replay:
    """An empty ring for transitions like `example` (one transition, without a batch axis)."""
    numbers, pixels = _widths(example)
    return Replay(
        jnp.zeros((capacity, numbers), jnp.float32),
        jnp.int32(0),
        jnp.zeros((capacity, pixels), jnp.uint8) if pixels else None,
    )


def bytes_per_row(example: Any) -> int:
    """Memory of one transition, in bytes."""
    numbers, pixels = _widths(example)
    return 4 * numbers + pixels


def add(replay: Replay, batch: Any) -> Replay:
    """Append N transitions. N must divide the capacity, so that a block never crosses the end of the ring."""
    n, capacity = len(jax.tree.leaves(batch)[0]), replay.rows.shape[0]
    assert capacity % n == 0, (capacity, n)
    return _write(replay, batch, replay.added % capacity, replay.added + n)


def begin_with(replay: Replay, batch: Any) -> Replay:
    """Write the first transitions into an empty ring."""
    # The batch is a constant: without the barrier XLA would compute the whole ring at compile time.
    batch, replay = jax.lax.optimization_barrier((batch, replay))
    return _write(replay, batch, jnp.int32(0), jnp.int32(len(jax.tree.leaves(batch)[0])))


def take(replay: Replay, index: Int[Array, " B"], like: Row) -> Row:
    """The transitions at `index`, with the shapes and types of `like` (one transition)."""
    return unpack(replay.rows[index], like, None if replay.pixels is None else replay.pixels[index])


def newest_rows(replay: Replay, since: int) -> list[np.ndarray]:
    """The rows that were added after the first `since` transitions, in the memory of the ring (on a CPU)."""
    rows, added = np.asarray(replay.rows), int(replay.added)
    capacity = len(rows)
    if added - since >= capacity:
        return [rows]
    first, end = since % capacity, added % capacity
    return [rows[first:end]] if first <= end else [rows[first:], rows[:end]]


def _write(replay: Replay, batch: Any, at: Int[Array, ""], added: Int[Array, ""]) -> Replay:
    leaves = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(batch)]
    numbers = [leaf.astype(jnp.float32) for leaf in leaves if leaf.dtype != jnp.uint8]
    rows = jax.lax.dynamic_update_slice(replay.rows, jnp.concatenate(numbers, axis=1), (at, jnp.int32(0)))
    if replay.pixels is None:
        return Replay(rows, added)
    pixels = jnp.concatenate([leaf for leaf in leaves if leaf.dtype == jnp.uint8], axis=1)
    return Replay(rows, added, jax.lax.dynamic_update_slice(replay.pixels, pixels, (at, jnp.int32(0))))


def unpack(rows: Float[Array, "B row"], like: Row, pixels: UInt8[Array, "B bytes"] | None = None) -> Row:
    leaves, at, pixel = [], 0, 0
    for leaf in jax.tree.leaves(like):
        width = jnp.size(leaf)
        if leaf.dtype == jnp.uint8:
            assert pixels is not None
            part, pixel = pixels[:, pixel : pixel + width], pixel + width
        else:
            part, at = rows[:, at : at + width].astype(leaf.dtype), at + width
        leaves.append(part.reshape((-1, *jnp.shape(leaf))))
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _widths(example: Any) -> tuple[int, int]:
    """The number of float32 values and of bytes in a row."""
    leaves = jax.tree.leaves(example)
    pixels = sum(leaf.size for leaf in leaves if leaf.dtype == jnp.uint8)
    return sum(leaf.size for leaf in leaves) - pixels, pixels


def uniform_indices(key: PRNGKey, *wanted: tuple[int, int | Int[Array, ""]]) -> tuple[Int[Array, " _"], ...]:
    """For each (count, size): `count` indices below `size`, uniform with replacement, all from one draw.

    The generator is XLA's own (JAX's `rbg` keys): on a CPU, threefry would take a tenth of a gradient step. The modulo
    operation favours small indices by less than size / 2³².
    """
    total = sum(count for count, _ in wanted)

    @jax.custom_batching.sequential_vmap  # under vmap, XLA's generator uses the first key for the whole batch
    def draw(words: Array) -> Array:
        key = jax.random.wrap_key_data(jnp.concatenate([words, words]), impl="rbg")
        return jax.random.bits(key, (total,), jnp.uint32)

    bits = draw(jax.random.key_data(key))
    out, at = [], 0
    for count, size in wanted:
        part = bits[at : at + count] % jnp.asarray(size, jnp.uint32)
        out.append(part.astype(jnp.int32))
        at += count
    return tuple(out)
