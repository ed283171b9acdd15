"""Novelty of transitions relative to the demonstrations, by tables over one to three features.

For a marginal j, blurred histograms over its bins give

    f_jk = log (ρ_B + ε ρ_A)/(ρ_E^−k + ε ρ_A)     E demonstrations without fold k, B matched transitions of the learner,
                                                  A its newest transitions
    τ_jk = max(0, q-quantile of f_jk over the demonstrations of fold k)
    c_j  = mean_k clip(f_jk − τ_jk, 0, 1)         a table; the novelty of a transition is a look-up

A held-out demonstrated transition therefore has a cost with probability at most 1 − q. f is 0 where neither E nor B has
transitions.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Shape = tuple[int, int, int]
# Bins of the three axes: one feature; two features; a limit of the second feature that depends on the first; two
# features and a category.
SHAPES: tuple[Shape, ...] = ((768, 1, 1), (96, 96, 1), (48, 192, 1), (42, 42, 5))
LIMITS = (0, 2)  # shapes in which only values beyond the demonstrated ones may be novel
LOW, HIGH = 1, 2  # beyond which end of them; a sum: beyond both
CELLS = max(a * b * c for a, b, c in SHAPES)
CATEGORIES = SHAPES[3][2] - 1  # demonstrated values of a category; the last bin holds all other values


class Grid(NamedTuple):
    """The bins of J marginals. An axis that a marginal does not have is one bin of a constant feature."""

    feature: Int[Array, "J 3"]
    low: Float[Array, "J 3"]
    width: Float[Array, "J 3"]  # of a bin
    bins: Int[Array, "J 3"]  # their number
    blur: Float[Array, "J 2"]  # σ in bins; 0: no blur
    limit: Int[Array, " J"]  # ends of the last axis beyond which values are novel: LOW, HIGH, their sum; 0: all are


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


def kernel(sigma: Float[Array, ""], bins: int) -> Float[Array, "N N"]:
    """Gaussian blur along an axis, as a matrix whose columns sum to 1. σ = 0 gives the identity."""
    apart = jnp.arange(bins)[:, None] - jnp.arange(bins)[None]
    weight = jnp.exp(-0.5 * (apart / jnp.maximum(sigma, 1e-3)) ** 2)
    return weight / weight.sum(0, keepdims=True)


def density(grid: Grid, shape: Shape, cells: Int[Array, " M"], weight: Float[Array, "M W"]) -> Float[Array, "W T"]:
    """Blurred histograms of one table (a row of `grid`), one per column of weights. Each sums to 1."""
    w = weight / jnp.maximum(weight.sum(0), 1e-9)[None]
    cube = jnp.zeros((shape[0] * shape[1] * shape[2], w.shape[1])).at[cells].add(w).reshape(*shape, w.shape[1])
    cube = jnp.einsum("ab,bckw->ackw", kernel(grid.blur[0], shape[0]), cube)
    if shape[1] > 1:
        cube = jnp.einsum("cd,adkw->ackw", kernel(grid.blur[1], shape[1]), cube)
    return cube.reshape(-1, w.shape[1]).T


def outermost(
    e: Float[Array, "K T"], b: Float[Array, "1 T"], shape: Shape, limit: Int[Array, ""], cfg: Any
) -> Bool[Array, "K T"]:
    """The cells at the ends `limit` of the last axis beyond which at most the share `tail` of the demonstrated
    transitions of the same slice lies. In a table with a limit only these may be novel. A slice with few demonstrated
    transitions, relative to the learner's, has no such cells: how far the demonstrator goes there is not known."""
    axis = 2 if shape[1] > 1 else 1
    cube, own = e.reshape(-1, *shape), b.reshape(-1, *shape)
    below = jnp.cumsum(cube, axis)
    above = jnp.flip(jnp.cumsum(jnp.flip(cube, axis), axis), axis)
    shown = cube.sum(axis, keepdims=True)
    known = shown > cfg.limit_known * own.sum(axis, keepdims=True)
    low, high = (((limit & end) > 0) & (beyond <= cfg.tail * shown) for end, beyond in ((LOW, below), (HIGH, above)))
    return (known & (low | high)).reshape(e.shape)


def quantile(values: Float[Array, "K M"], use: Bool[Array, "K M"], q: Any) -> Float[Array, " K"]:
    """The q-quantile of the values in use, with linear interpolation; 0 if there are none. XLA sorts whole numbers four
    times faster than floats, so the values are sorted by their bits."""
    flip = jnp.int32(0x7FFFFFFF)  # of negative floats, larger bits are smaller numbers
    bits = jax.lax.bitcast_convert_type(jnp.where(use, values, jnp.inf), jnp.int32)
    bits = jax.lax.sort(jnp.where(bits < 0, bits ^ flip, bits), dimension=1, is_stable=False)
    ranked = jax.lax.bitcast_convert_type(jnp.where(bits < 0, bits ^ flip, bits), jnp.float32)
    last = use.sum(1) - 1
    place = q * jnp.maximum(last, 0)
    below = jnp.floor(place).astype(jnp.int32)
    two = jnp.stack([below, jnp.minimum(below + 1, jnp.maximum(last, 0))], axis=1)
    low, high = jnp.take_along_axis(ranked, two, axis=1).T
    return jnp.where(last >= 0, low + (place - below) * (high - low), 0.0)


def tables(
    grid: Grid, kind: Int[Array, " J"], demos: Sample, fold: Int[Array, " M"], own: Sample, newest: Sample, cfg: Any
) -> Tables:
    """Tables of marginals.

    Args:
        grid: the bins of every marginal.
        kind: of every marginal, its place in `SHAPES`; below 0: no table is made, and nothing is novel.
        demos, own, newest: the transitions E, B and A.
        fold: of every demonstrated transition.
        cfg: `folds`, `quantile`, `background`, `tail`, `limit_known`.
    """
    held_out = (fold[:, None] == jnp.arange(cfg.folds)[None]) & demos.use[:, None]  # (M, K)
    shown = (~held_out & demos.use[:, None]).astype(jnp.float32)
    weights = shown, *(s.use[:, None].astype(jnp.float32) for s in (own, newest))

    def ratio(shape: Shape, g: Grid, *cells: Int[Array, " _"]) -> Float[Array, "K T"]:
        """f_jk, before its threshold"""
        e, b, a = (density(g, shape, at, weight) for at, weight in zip(cells, weights, strict=True))
        background = cfg.background * a + 1e-7
        f = jnp.log((b + background) / (e + background))
        rare = e < quantile(e[:, cells[0]], shown.T > 0, cfg.rare)[:, None]
        if SHAPES.index(shape) in LIMITS:
            rare = jnp.where(g.limit > 0, outermost(e, b, shape, g.limit, cfg), rare)
        f = jnp.where(rare, f, jnp.minimum(f, 0.0))
        return jnp.pad(f, ((0, 0), (0, CELLS - f.shape[1])))

    def one(g: Grid, kind: Int[Array, ""]) -> tuple[Array, Array]:
        cells = [cells_of(jax.tree.map(lambda leaf: leaf[None], g), s.values)[:, 0] for s in (demos, own, newest)]
        f = jax.lax.switch(kind, [partial(ratio, shape) for shape in SHAPES], g, *cells)
        f = f - jnp.maximum(quantile(f[:, cells[0]], held_out.T, cfg.quantile), 0.0)[:, None]
        return f, jnp.take_along_axis(excess(f[:, cells[0]]), fold[None], axis=0)[0]

    def none(g: Grid, kind: Int[Array, ""]) -> tuple[Array, Array]:
        return jnp.zeros((cfg.folds, CELLS)), jnp.zeros(len(fold))

    # One after another: all of them at once would need gigabytes, and a program for every shape of many tables.
    made = jax.lax.map(lambda row: jax.lax.cond(row[1] >= 0, one, none, *row), (grid, kind))
    return Tables(made[0], made[1].T)


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
