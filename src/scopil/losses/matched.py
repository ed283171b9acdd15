"""Matched episodes: episodes that start near a demonstrated start.

Demonstrations carry no information about states that are reachable only from other starts. An episode is matched if
its start is as near to a demonstrated start as most demonstrated starts are to their nearest neighbour.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def reach_of(starts: Float[Array, "S D"], group: Int[Array, " S"], within: float | Array) -> Float[Array, ""]:
    """The `within`-quantile of the distances between demonstrated starts and their nearest neighbours in other groups.
    With a single group, every episode is matched."""
    apart = jnp.where(group[:, None] == group[None], jnp.inf, _distances(starts, starts))
    reach = jnp.quantile(apart.min(1), within, method="higher")
    return jnp.minimum(reach, jnp.finfo(jnp.float32).max)  # the trainer treats ∞ as divergence


def matches(places: Float[Array, "N D"], starts: Float[Array, "S D"], reach: Float[Array, ""]) -> Bool[Array, " N"]:
    """Whether a place is near a demonstrated start."""
    return _distances(places, starts).min(1) <= reach


def _distances(a: Float[Array, "N D"], b: Float[Array, "S D"]) -> Float[Array, "N S"]:
    return jnp.sqrt(((a[:, None] - b[None]) ** 2).sum(-1))
