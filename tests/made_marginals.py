"""Constraints with known answers: demonstrated episodes that keep out of a region, and a learner that does not."""

import numpy as np
from scipy.ndimage import gaussian_filter

from scopil.marginal import Axis, Marginal

X, Y = Axis("x", "next_obs[0]"), Axis("y", "next_obs[1]")
SPEED = Axis("speed", "next_obs[2]")
FLAG = Axis("flag", "next_obs[3]", values=(0.0, 1.0))
ACTION = Axis("action", "action", values=(0, 1, 2, 3, None))


def path(rng: np.random.Generator, axes: tuple[Axis, ...], steps: int) -> np.ndarray:
    """A curve from a random point to another in [0, 1]; a category keeps its value, an action changes at each step."""
    t = np.linspace(0, 1, steps)[:, None]
    a, b, c = rng.uniform(0, 1, (3, len(axes)))
    points = (1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c + rng.normal(0, 0.01, (steps, len(axes)))
    for i, axis in enumerate(axes):
        if axis.values is not None:
            known = sum(value is not None for value in axis.values)
            points[:, i] = rng.integers(known, size=steps if axis.name == "action" else 1)
    return points


def around(rng, points, axes, forbidden) -> np.ndarray:
    """The points, those in the region moved to the nearest of some allowed ones. Forbidden actions are left out."""
    if axes[-1].name == "action":
        return points[~forbidden(points)]
    numbers = [i for i, axis in enumerate(axes) if axis.values is None]
    for i in np.flatnonzero(forbidden(points)):
        tried = np.repeat(points[i : i + 1], 400, axis=0)
        tried[:, numbers] += rng.normal(0, 1, (400, len(numbers))) * np.linspace(0, 0.5, 400)[:, None]
        free = tried[~forbidden(tried)]
        points[i] = free[np.argmin(((free - points[i]) ** 2).sum(1))]
    return points


def episodes(rng, axes, count, forbidden) -> tuple[np.ndarray, np.ndarray]:
    found = [around(rng, path(rng, axes, 30), axes, forbidden) for _ in range(count)]
    return np.concatenate(found), np.repeat(np.arange(count), [len(p) for p in found])


def density(points: np.ndarray, edges: list[np.ndarray], blur: list[float]) -> np.ndarray:
    count = gaussian_filter(np.histogramdd(points, edges)[0], blur, mode="constant")
    return count / count.sum()


def cells(points: np.ndarray, edges: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(np.clip(np.searchsorted(e, points[:, i], "right") - 1, 0, len(e) - 2) for i, e in enumerate(edges))


def marginal_of(
    seed: int, axes: tuple[Axis, ...], forbidden, scale=None, folds: int = 4, count: int = 40, snap=lambda p: p
) -> Marginal:
    """The constraint on demonstrations that keep out of a region and a learner that does not. `scale`: low and high of
    each number."""
    rng = np.random.default_rng(seed)
    numbers = [i for i, axis in enumerate(axes) if axis.values is None]
    scale = scale or [(0.0, 1.0)] * len(numbers)

    def grown(points):
        points = points.copy()
        for i, (low, high) in zip(numbers, scale):
            points[:, i] = low + (high - low) * points[:, i]
        return snap(points)

    region = lambda points: forbidden(grown(points))  # noqa: E731
    demo, episode = episodes(rng, axes, count, region)
    own, _ = episodes(rng, axes, 400, lambda points: np.zeros(len(points), bool))
    demo, own = grown(demo), grown(own)
    bins = 768 if len(axes) == 1 else 96 if len(numbers) == len(axes) else 42
    edges, blur = [], []
    for i, axis in enumerate(axes):
        if axis.values is None:
            low, high = demo[:, i].min(), demo[:, i].max()
            grid = np.linspace(low - 0.25 * (high - low), high + 0.25 * (high - low), bins + 1)
            edges, blur = [*edges, grid], [*blur, (0.008 if len(axes) == 1 else 0.02) * bins]
        else:
            edges, blur = [*edges, np.arange(len(axis.values) + 1) - 0.5], [*blur, 0.0]
    clipped = np.stack([np.clip(own[:, i], e[0], e[-1]) for i, e in enumerate(edges)], axis=1)
    b, newest = density(clipped, edges, blur), density(clipped[-4_000:], edges, blur)
    tables, novelty = [], []
    for k in range(folds):
        out = episode % folds == k
        back = 0.1 * newest + 1e-7
        f = np.log((b + back) / (density(demo[~out], edges, blur) + back))
        held_out = f[cells(demo[out], edges)]
        tables.append(np.clip(f - max(0.0, np.quantile(held_out, 0.7)), 0, 1))
        novelty.append(np.clip(held_out - max(0.0, np.quantile(held_out, 0.7)), 0, 1))
    table = np.mean(tables, axis=0)
    shown = float(np.concatenate(novelty).mean())
    named = tuple(Axis(a.name, a.code, None if a.values else e, a.values) for a, e in zip(axes, edges))
    return Marginal(named, table, 1.0, 0.5 * shown, shown, float(table[cells(own, edges)].mean()), demo, episode, own)


def nothing(points: np.ndarray) -> np.ndarray:
    return np.zeros(len(points), bool)
