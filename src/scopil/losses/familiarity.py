"""Familiarity of states: the share of held-out demonstrated states that are at least as novel, by the tables."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from scopil.losses.features import Features
from scopil.losses.marginals import Grid, cells_of


class Monitor(NamedTuple):
    """The data that `familiarity` needs. It does not need the learner."""

    features: Features
    values: Float[Array, "D C"]  # demonstrated values of categories
    grid: Grid  # of J tables of state features
    ratio: Float[Array, "J K T"]  # f_jk − τ_jk
    shown: Float[Array, "K M"]  # scores of the demonstrated states of fold k, ascending; −∞ for the others
    known: Int[Array, " K"]  # the number of states of fold k


def scores(monitor: Monitor, obs: Float[Array, "B D"]) -> Float[Array, "K B"]:
    """max_j (f_jk − τ_jk): a state is as novel as in the table where it is most novel."""
    f = monitor.features
    action = jnp.zeros((obs.shape[0], max(f.actions, 1)))  # `len` would refuse a batch of any size
    cells = cells_of(monitor.grid, f(obs, action, obs, monitor.values))  # (B, J)
    found = jax.vmap(lambda table, at: table[:, at], in_axes=(0, 1))(monitor.ratio, cells)  # (J, K, B)
    return found.max(0)


def familiarity(monitor: Monitor, obs: Float[Array, "B D"]) -> Float[Array, " B"]:
    """In [0, 1]: per fold the share of its held-out states with at least this score, then the mean over folds. 1 if
    there is no table of state features."""
    if len(monitor.grid.feature) == 0:
        return jnp.ones(obs.shape[0])
    rows = monitor.shown.shape[1]
    above = rows - jax.vmap(jnp.searchsorted)(monitor.shown, scores(monitor, obs))
    some = monitor.known > 0
    shares = jnp.where(some[:, None], above / jnp.maximum(monitor.known, 1)[:, None], 0.0)
    return shares.sum(0) / jnp.maximum(some.sum(), 1)
