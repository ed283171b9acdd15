"""Random indices for batches."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from scopil.types import PRNGKey


def uniform_indices(key: PRNGKey, *wanted: tuple[int, int | Int[Array, ""]]) -> tuple[Int[Array, " _"], ...]:
    """For each (count, size): `count` indices below `size`, uniform with replacement, all from one draw.

    By XLA's own generator (jax's `rbg` keys): threefry on a CPU is a loop of many small operations, a tenth of a whole
    gradient step. Taking remainders favours small indices by less than size / 2³².
    """
    total = sum(count for count, _ in wanted)

    @jax.custom_batching.sequential_vmap  # XLA's generator would draw for all lanes from the first one's key
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
