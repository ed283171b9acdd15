"""How far the hole is from every point of the tray, around what is forbidden. The planner is guided by it.

The distance solves the eikonal equation |∇D| = w on a grid, with w = 1 on open tray and more near a constraint, so
that the way keeps its distance before it has to.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scopil.envs.marble_maze.physics import HOLE_RADIUS, REACH

SPACING = 4.0  # px between grid points
SWEEPS = 2000  # far more than a front needs to cross the grid; the loop ends when nothing changes


class Route(NamedTuple):
    """Distance to the hole and its slope on a grid over the tray."""

    distance: Float[Array, "n n"]  # weighted px, first index x
    slope: Float[Array, "n n 2"]  # ∇D of length 1


def grid() -> np.ndarray:
    points = int(np.ceil(2 * REACH / SPACING)) + 1
    return np.linspace(-REACH, REACH, points)


def find_route(weight: Callable[[Float[Array, "2"]], Float[Array, ""]], hole: tuple[float, float]) -> Route:
    """Jacobi sweeps of the upwind scheme until nothing changes."""
    axis = grid()
    x, y = np.meshgrid(axis, axis, indexing="ij")
    points = jnp.asarray(np.stack([x, y], -1), jnp.float32)
    w = np.asarray(jax.jit(jax.vmap(jax.vmap(weight)))(points), np.float64)
    spacing = axis[1] - axis[0]
    away = np.hypot(x - hole[0], y - hole[1])
    near = away <= HOLE_RADIUS
    distance = np.where(near, away, np.inf)
    for _ in range(SWEEPS):
        wide = np.pad(distance, 1, constant_values=np.inf)
        a = np.minimum(wide[:-2, 1:-1], wide[2:, 1:-1])
        b = np.minimum(wide[1:-1, :-2], wide[1:-1, 2:])
        new = np.where(near, distance, np.minimum(distance, _upwind(a, b, w * spacing)))
        if np.array_equal(new, distance):
            break
        distance = new
    slope = np.stack([np.gradient(distance, spacing, axis=k) for k in (0, 1)], -1)
    slope /= np.maximum(np.linalg.norm(slope, axis=-1, keepdims=True), 1e-6)
    return Route(jnp.asarray(distance, jnp.float32), jnp.asarray(slope, jnp.float32))


def _upwind(a: np.ndarray, b: np.ndarray, step: np.ndarray) -> np.ndarray:
    """The D that satisfies (D−a)₊² + (D−b)₊² = step² for the smaller neighbours a (along x) and b (along y)."""
    low, high = np.minimum(a, b), np.maximum(a, b)
    gap = np.where(np.isfinite(high), high, 0.0) - np.where(np.isfinite(low), low, 0.0)
    both = np.isfinite(high) & (gap < step)
    root = np.sqrt(np.maximum(2 * step**2 - gap**2, 0.0))
    return np.where(both, (np.where(both, low + high, 0.0) + root) / 2, low + step)


def look_up(table: Float[Array, "n n *rest"], position: Float[Array, "2"]) -> Float[Array, "*rest"]:
    """Bilinear interpolation of a grid table."""
    last = table.shape[0] - 1
    at = (position + REACH) * (last / (2 * REACH))
    i, j = jnp.clip(at.astype(jnp.int32), 0, last - 1)
    s, t = at - jnp.stack([i, j])
    below = (1 - t) * table[i, j] + t * table[i, j + 1]
    above = (1 - t) * table[i + 1, j] + t * table[i + 1, j + 1]
    return (1 - s) * below + s * above
