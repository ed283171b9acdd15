"""Like with like: of a learner's states, those of episodes that begin where demonstrated ones begin.

A demonstrator who starts on one side of a room says little about the other side; states that other starts lead to are
no evidence against the learner. An episode is comparable when its start is as near to a demonstrated one as most of
these are to their nearest neighbour. Its states are kept by reservoir sampling: each of them, old or new, is there with
the same probability, so that what it was like to break a rule is not forgotten.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from scopil.buffers.indices import uniform_indices
from scopil.types import PRNGKey

CAPACITY = 20_000
WITHIN = 0.9  # the share of demonstrated starts whose nearest neighbour is within reach


class Comparable(NamedTuple):
    """States of comparable episodes, and what tells which episode is one."""

    states: Float[Array, "C D"]
    offered: Int[Array, ""]  # states ever offered
    reach: Float[Array, ""]
    playing: Bool[Array, " N"]  # whether the episode being played is comparable

    @property
    def kept(self) -> Int[Array, ""]:
        return jnp.minimum(self.offered, len(self.states))


def empty(obs_dim: int, num_envs: int) -> Comparable:
    return Comparable(
        jnp.zeros((CAPACITY, obs_dim), jnp.float32), jnp.int32(0), jnp.float32(0.0), jnp.zeros(num_envs, bool)
    )


def begin_with(
    own: Comparable, states: Float[Array, "M D"], known: Bool[Array, " M"], reach: Float[Array, ""]
) -> Comparable:
    """The first states are the demonstrated ones, as far as these tell: a learner that has done nothing differs in
    nothing."""
    rows = states[jnp.argsort(~known, stable=True)][:CAPACITY]
    kept = jax.lax.dynamic_update_slice(own.states, rows, (0, 0))
    offered = jnp.minimum(known.sum(), len(rows)).astype(jnp.int32)
    return own._replace(states=kept, offered=offered, reach=reach)


def reach_of(starts: Float[Array, "S F"], group: Int[Array, " S"]) -> Float[Array, ""]:
    """How far demonstrated starts are from their nearest neighbour, most of them. With a single start there is nothing
    to compare: every episode is comparable."""
    apart = jnp.where(group[:, None] == group[None], jnp.inf, _distances(starts, starts))
    reach = jnp.quantile(apart.min(1), WITHIN, method="higher")
    return jnp.minimum(reach, jnp.finfo(jnp.float32).max)  # ∞ would be taken for divergence


def offer(
    own: Comparable,
    reached: Float[Array, "N D"],
    began: Bool[Array, " N"],
    place: Float[Array, "N F"],
    known: Bool[Array, " N"],
    starts: Float[Array, "S F"],
    key: PRNGKey,
) -> Comparable:
    """Takes in one step of every environment, to the states `reached`.

    Args:
        began: whether it was the first of its episode.
        place: the features of the states that it was made in.
        known: whether demonstrations could tell of the states that were reached.
        starts: the features of demonstrated starts.
    """
    near = _distances(place, starts).min(1) <= own.reach
    playing = jnp.where(began, near, own.playing)
    taken = playing & known
    number = own.offered + jnp.cumsum(taken) - taken  # of each comparable state, from 0
    (drawn,) = uniform_indices(key, (len(taken), own.offered + 1))
    place = jnp.where(number < CAPACITY, number, drawn)  # a place that does not exist: not kept
    states = own.states.at[jnp.where(taken, place, CAPACITY)].set(reached, mode="drop")
    return Comparable(states, own.offered + taken.sum(), own.reach, playing)


def _distances(a: Float[Array, "N F"], b: Float[Array, "S F"]) -> Float[Array, "N S"]:
    return jnp.sqrt(((a[:, None] - b[None]) ** 2).sum(-1))
