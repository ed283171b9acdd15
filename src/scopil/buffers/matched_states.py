"""States of the learner in matched episodes: episodes that start near a demonstrated start.

Demonstrations carry no information about states that are reachable only from other starts. An episode is matched if
its start is as near to a demonstrated start as most demonstrated starts are to their nearest neighbour. Its states are
kept by reservoir sampling: old and new states have the same probability, so that early violations stay represented.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from scopil.buffers.replay import uniform_indices
from scopil.types import PRNGKey

Scalar = float | Float[Array, ""]


class MatchedStates(NamedTuple):
    states: Float[Array, "C D"]
    offered: Int[Array, ""]  # number of states offered so far
    reach: Float[Array, ""]  # largest distance of a matched start from a demonstrated start
    playing: Bool[Array, " N"]  # whether the current episode of each environment is matched

    @property
    def kept(self) -> Int[Array, ""]:
        return jnp.minimum(self.offered, len(self.states))


def empty(capacity: int, obs_dim: int, num_envs: int) -> MatchedStates:
    return MatchedStates(
        jnp.zeros((capacity, obs_dim), jnp.float32), jnp.int32(0), jnp.float32(0.0), jnp.zeros(num_envs, bool)
    )


def begin_with(
    own: MatchedStates, states: Float[Array, "M D"], known: Bool[Array, " M"], reach: Float[Array, ""]
) -> MatchedStates:
    """Fills the buffer with the `known` demonstrated states, so that the density ratio starts at 1."""
    rows = states[jnp.argsort(~known, stable=True)][: len(own.states)]
    kept = jax.lax.dynamic_update_slice(own.states, rows, (0, 0))
    offered = jnp.minimum(known.sum(), len(rows)).astype(jnp.int32)
    return own._replace(states=kept, offered=offered, reach=reach)


def reach_of(starts: Float[Array, "S F"], group: Int[Array, " S"], within: Scalar) -> Float[Array, ""]:
    """The `within`-quantile of the distances between demonstrated starts and their nearest neighbours in other groups.
    With a single group, every episode is matched."""
    apart = jnp.where(group[:, None] == group[None], jnp.inf, _distances(starts, starts))
    reach = jnp.quantile(apart.min(1), within, method="higher")
    return jnp.minimum(reach, jnp.finfo(jnp.float32).max)  # the trainer treats ∞ as divergence


def offer(
    own: MatchedStates,
    reached: Float[Array, "N D"],
    began: Bool[Array, " N"],
    place: Float[Array, "N F"],
    known: Bool[Array, " N"],
    starts: Float[Array, "S F"],
    key: PRNGKey,
) -> MatchedStates:
    """Offers the states after one step of every environment to the buffer.

    Args:
        reached: the states after the step.
        began: whether the step was the first of its episode.
        place: the features of the states before the step.
        known: whether the demonstrations carry information about the states after the step.
        starts: the features of the demonstrated starts.
    """
    capacity = len(own.states)
    near = _distances(place, starts).min(1) <= own.reach
    playing = jnp.where(began, near, own.playing)
    taken = playing & known
    number = own.offered + jnp.cumsum(taken) - taken  # index of each matched state, from 0
    (drawn,) = uniform_indices(key, (len(taken), own.offered + 1))
    place = jnp.where(number < capacity, number, drawn)  # indices beyond the capacity are dropped
    states = own.states.at[jnp.where(taken, place, capacity)].set(reached, mode="drop")
    return MatchedStates(states, own.offered + taken.sum(), own.reach, playing)


def _distances(a: Float[Array, "N F"], b: Float[Array, "S F"]) -> Float[Array, "N S"]:
    return jnp.sqrt(((a[:, None] - b[None]) ** 2).sum(-1))
