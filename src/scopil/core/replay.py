"""A ring of transitions, one packed float32 row each: one write and one gather a step."""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Row = TypeVar("Row")  # a Transition, or any other tree of arrays


class Replay(NamedTuple):
    rows: Float[Array, "capacity row"]
    added: Int[Array, ""]  # transitions ever added; the ring holds the newest `capacity` of them

    @property
    def size(self) -> Int[Array, ""]:
        return jnp.minimum(self.added, self.rows.shape[0])


def empty(capacity: int, example: Any) -> Replay:
    """A ring for transitions like `example` (one of them, without a batch axis)."""
    width = sum(jnp.size(leaf) for leaf in jax.tree.leaves(example))
    return Replay(jnp.zeros((capacity, width), jnp.float32), jnp.int32(0))


def add(replay: Replay, batch: Any) -> Replay:
    """Append N transitions, N dividing the capacity: a block never straddles the ring's end."""
    block = _packed(batch)
    n, capacity = len(block), replay.rows.shape[0]
    assert capacity % n == 0, (capacity, n)
    rows = jax.lax.dynamic_update_slice(replay.rows, block, (replay.added % capacity, jnp.int32(0)))
    return Replay(rows, replay.added + n)


def begin_with(replay: Replay, batch: Any) -> Replay:
    """An empty ring's first transitions."""
    # The barrier keeps XLA from computing the whole ring while it compiles, where the batch is a constant.
    rows, ring = jax.lax.optimization_barrier((_packed(batch), replay.rows))
    return Replay(jax.lax.dynamic_update_slice(ring, rows, (0, 0)), jnp.int32(len(rows)))


def take(replay: Replay, index: Int[Array, " B"], like: Row) -> Row:
    """The transitions at some places, in the shapes and types of `like` (one transition)."""
    return unpack(replay.rows[index], like)


def _packed(batch: Any) -> Float[Array, "N row"]:
    leaves = jax.tree.leaves(batch)
    return jnp.concatenate([leaf.reshape(leaf.shape[0], -1).astype(jnp.float32) for leaf in leaves], axis=1)


def unpack(rows: Float[Array, "B row"], like: Row) -> Row:
    leaves, at = [], 0
    for leaf in jax.tree.leaves(like):
        width = jnp.size(leaf)
        leaves.append(rows[:, at : at + width].reshape((-1, *jnp.shape(leaf))).astype(leaf.dtype))
        at += width
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
