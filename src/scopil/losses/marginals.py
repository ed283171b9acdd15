"""Novelty of transitions relative to the demonstrations, by tables over one to three features.

For a marginal j, blurred histograms over its bins give

    f_jk = log (ρ_B + ε ρ_A)/(ρ_E^−k + ε ρ_A)     E demonstrations without fold k, B matched transitions of the learner,
                                                  A its newest transitions
    τ_jk = max(0, q-quantile of f_jk over the demonstrations of fold k)
    c_j  = mean_k clip(f_jk − τ_jk, 0, 1)         a table; the novelty of a transition is a look-up

A held-out demonstrated transition therefore has a cost with probability at most 1 − q. f is 0 where neither E nor B has
transitions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Shape = tuple[int, int, int]
# Bins of the three axes: one feature; two features; a limit of the second feature that depends on the first; two
# features and a category.
SHAPES: tuple[Shape, ...] = ((768, 1, 1), (96, 96, 1), (48, 192, 1), (42, 42, 5))
CELLS = max(a * b * c for a, b, c in SHAPES)
CATEGORIES = SHAPES[3][2] - 1  # demonstrated values of a category; the last bin holds all other values


class Grid(NamedTuple):
    """The bins of J marginals. An axis that a marginal does not have is one bin of a constant feature."""

    feature: Int[Array, "J 3"]
    low: Float[Array, "J 3"]
    width: Float[Array, "J 3"]  # of a bin
    bins: Int[Array, "J 3"]  # their number
    blur: Float[Array, "J 2"]  # σ in bins; 0: no blur
    limit: Bool[Array, " J"]  # whether only values beyond the demonstrated ones are novel, along the last axis


class Sample(NamedTuple):
    """Transitions, by their features, and which of them to use."""

    values: Float[Array, "M F"]
    use: Bool[Array, " M"]


class Tables(NamedTuple):
    ratio: Float[Array, "J K T"]  # f_jk − τ_jk
    demo: Float[Array, "M J"]  # c_j of demonstrated transitions, by the fold that has not seen them

    @property
    def novelty(self) -> Float[Array, "J T"]:
        """c_j"""
        return excess(self.ratio).mean(1)


def excess(ratio: Array) -> Array:
    return jnp.clip(ratio, 0.0, 1.0)


def cells_of(grid: Grid, values: Float[Array, "M F"]) -> Int[Array, "M J"]:
    """The cell of every transition in every table. Values outside the bins belong to the outermost bin."""
    place = jnp.floor((values[:, grid.feature] - grid.low[None]) / grid.width[None])
    p = jnp.clip(place, 0, grid.bins[None] - 1).astype(jnp.int32)
    return (p[..., 0] * grid.bins[None, :, 1] + p[..., 1]) * grid.bins[None, :, 2] + p[..., 2]


def look_up(table: Float[Array, "J T"], cells: Int[Array, "M J"]) -> Float[Array, "M J"]:
    return jnp.take_along_axis(table, cells.T, axis=1).T


def kernel(sigma: Float[Array, " J"], bins: int) -> Float[Array, "J N N"]:
    """Gaussian blur along an axis, as a matrix whose columns sum to 1. σ = 0 gives the identity."""
    apart = jnp.arange(bins)[:, None] - jnp.arange(bins)[None]
    weight = jnp.exp(-0.5 * (apart[None] / jnp.maximum(sigma, 1e-3)[:, None, None]) ** 2)
    return weight / weight.sum(1, keepdims=True)


def density(grid: Grid, shape: Shape, cells: Int[Array, "M J"], weight: Float[Array, "M W"]) -> Float[Array, "J W T"]:
    """Blurred histograms of every table, one per column of weights. Each sums to 1."""
    size = shape[0] * shape[1] * shape[2]
    w = weight / jnp.maximum(weight.sum(0), 1e-9)[None]
    count = jax.vmap(lambda c: jnp.zeros((size, w.shape[1])).at[c].add(w), in_axes=1)(cells)
    cube = count.reshape(-1, *shape, w.shape[1])
    cube = jnp.einsum("jab,jbckw->jackw", kernel(grid.blur[:, 0], shape[0]), cube)
    if shape[1] > 1:
        cube = jnp.einsum("jcd,jadkw->jackw", kernel(grid.blur[:, 1], shape[1]), cube)
    return jnp.swapaxes(cube.reshape(len(cube), size, -1), 1, 2)


def outermost(e: Float[Array, "J K T"], shape: Shape, limit: Bool[Array, " J"], tail: Any) -> Bool[Array, "J K T"]:
    """The cells that may be novel. In a table with a limit these are the cells at both ends of the limited axis, beyond
    which at most the share `tail` of the demonstrated transitions of the same slice lies."""
    axis = 3 if shape[1] > 1 else 2
    cube = e.reshape(*e.shape[:2], *shape)
    below = jnp.cumsum(cube, axis)
    above = jnp.flip(jnp.cumsum(jnp.flip(cube, axis), axis), axis)
    ends = jnp.minimum(below, above) <= tail * cube.sum(axis, keepdims=True)
    return ends.reshape(e.shape) | ~limit[:, None, None]


def tables(
    grid: Grid, shape: Shape, demos: Sample, fold: Int[Array, " M"], own: Sample, newest: Sample, cfg: Any
) -> Tables:
    """Tables of the marginals of one shape.

    Args:
        demos, own, newest: the transitions E, B and A.
        fold: of every demonstrated transition.
        cfg: `folds`, `quantile`, `background`.
    """
    held_out = (fold[:, None] == jnp.arange(cfg.folds)[None]) & demos.use[:, None]  # (M, K)
    shown = (~held_out & demos.use[:, None]).astype(jnp.float32)
    cells = cells_of(grid, demos.values)
    e = density(grid, shape, cells, shown)
    b, a = (density(grid, shape, cells_of(grid, s.values), s.use[:, None].astype(jnp.float32)) for s in (own, newest))
    background = cfg.background * a + 1e-7
    f = jnp.log((b + background) / (e + background))  # (J, K, T)
    f = jnp.where(outermost(e, shape, grid.limit, cfg.tail), f, jnp.minimum(f, 0.0))

    def calibrated(f: Float[Array, "K T"], cells: Int[Array, " M"]) -> tuple[Array, Array]:
        tau = jnp.nanquantile(jnp.where(held_out.T, f[:, cells], jnp.nan), cfg.quantile, axis=1)
        ratio = f - jnp.maximum(jnp.nan_to_num(tau), 0.0)[:, None]
        return ratio, jnp.take_along_axis(excess(ratio[:, cells]), fold[None], axis=0)[0]

    ratio, demo = jax.vmap(calibrated, in_axes=(0, 1))(f, cells)
    return Tables(jnp.pad(ratio, ((0, 0), (0, 0), (0, CELLS - ratio.shape[2]))), demo.T)


def mean(values: Float[Array, "M J"], use: Bool[Array, " M"]) -> Float[Array, " J"]:
    return jnp.where(use[:, None], values, 0.0).sum(0) / jnp.maximum(use.sum(), 1)


class Means(NamedTuple):
    """Means of episodes. Some numbers belong to no episode."""

    value: Float[Array, "E J"]
    there: Bool[Array, " E"]


def episode_means(values: Float[Array, "M J"], episode: Int[Array, " M"], use: Bool[Array, " M"], count: int) -> Means:
    """The mean of every episode over the transitions in use. `episode` has numbers below `count`."""
    at = jnp.where(use, episode, count)
    sums = jnp.zeros((count + 1, values.shape[1])).at[at].add(values)[:count]
    steps = jnp.zeros(count + 1).at[at].add(1.0)[:count]
    return Means(sums / jnp.maximum(steps, 1.0)[:, None], steps > 0)


def welch(a: Means, b: Means) -> tuple[Float[Array, " J"], Float[Array, " J"]]:
    """The difference of the means over episodes, a − b, and Welch's t."""

    def moments(x: Means) -> tuple[Array, Array]:
        n = jnp.maximum(x.there.sum(), 2).astype(jnp.float32)
        centre = jnp.where(x.there[:, None], x.value, 0.0).sum(0) / n
        spread = jnp.where(x.there[:, None], (x.value - centre[None]) ** 2, 0.0).sum(0) / (n - 1)
        return centre, spread / n

    (mean_a, error_a), (mean_b, error_b) = moments(a), moments(b)
    gap = mean_a - mean_b
    return gap, gap / jnp.sqrt(error_a + error_b + 1e-8)
