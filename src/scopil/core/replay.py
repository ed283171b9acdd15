"""A ring of transitions, one packed float32 row each: one write and one gather a step."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from scopil.types import PRNGKey, Transition


class Replay(NamedTuple):
    rows: Float[Array, "capacity row"]
    added: Int[Array, ""]  # transitions ever added; the ring holds the newest `capacity` of them

    @property
    def size(self) -> Int[Array, ""]:
        return jnp.minimum(self.added, self.rows.shape[0])


def empty(capacity: int, example: Transition) -> Replay:
    """A ring for transitions like `example` (one of them, without a batch axis)."""
    width = sum(jnp.size(leaf) for leaf in example)
    return Replay(jnp.zeros((capacity, width), jnp.float32), jnp.int32(0))


def add(replay: Replay, batch: Transition) -> Replay:
    """Append N transitions, N dividing the capacity: a block never straddles the ring's end."""
    n = batch.reward.shape[0]
    capacity = replay.rows.shape[0]
    assert capacity % n == 0, (capacity, n)
    block = jnp.concatenate([leaf.reshape(n, -1).astype(jnp.float32) for leaf in batch], axis=1)
    rows = jax.lax.dynamic_update_slice(replay.rows, block, (replay.added % capacity, jnp.int32(0)))
    return Replay(rows, replay.added + n)


def sample(replay: Replay, key: PRNGKey, size: int, like: Transition) -> Transition:
    """`size` transitions, uniform with replacement, in the shapes and types of `like` (one transition)."""
    index = jax.random.randint(key, (size,), 0, replay.size)
    return unpack(replay.rows[index], like)


def unpack(rows: Float[Array, "B row"], like: Transition) -> Transition:
    leaves, at = [], 0
    for leaf in like:
        width = jnp.size(leaf)
        leaves.append(rows[:, at : at + width].reshape((-1, *jnp.shape(leaf))).astype(leaf.dtype))
        at += width
    return Transition(*leaves)
