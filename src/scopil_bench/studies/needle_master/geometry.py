"""Polygons, boxes, segments and rays in the plane, for compiled programs. Points are (x, y) in px, y downwards."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Point = Float[Array, "2"]
Polygon = Float[Array, "V 2"]  # corners in order; a repeated corner adds an edge of length 0, which changes nothing
Number = Float[Array, ""]


def inside(point: Point, polygon: Polygon) -> Bool[Array, ""]:
    """Whether a ray from the point crosses an odd number of edges."""
    (x, y), (x1, y1), (x2, y2) = point, polygon.T, jnp.roll(polygon, -1, axis=0).T
    spans = (y1 > y) != (y2 > y)
    crossing = x1 + (y - y1) / jnp.where(spans, y2 - y1, 1.0) * (x2 - x1)
    return jnp.sum(spans & (x < crossing)) % 2 == 1


def nearest(point: Point, polygon: Polygon) -> Point:
    """The nearest point of the boundary."""

    def on_edge(a: Point, b: Point) -> Point:
        share = jnp.sum((point - a) * (b - a)) / jnp.maximum(jnp.sum((b - a) ** 2), 1e-9)
        return a + jnp.clip(share, 0.0, 1.0) * (b - a)

    found = jax.vmap(on_edge)(polygon, jnp.roll(polygon, -1, axis=0))
    return found[jnp.argmin(jnp.sum((found - point[None]) ** 2, axis=1))]


def span(p: Array, q: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """The first and last share of the way from p to q, on one axis, that lies between two bounds. The segment has a
    point in a box if the spans on both axes and (0, 1) overlap."""
    still = p == q
    to_low, to_high = ((bound - p) / jnp.where(still, 1.0, q - p) for bound in (low, high))
    never = still & ((p < low) | (p > high))
    first = jnp.where(still, jnp.where(never, jnp.inf, 0.0), jnp.minimum(to_low, to_high))
    return first, jnp.where(still, 1.0, jnp.maximum(to_low, to_high))


def overlap(*spans: tuple[Array, Array]) -> Array:
    """Whether all spans and (0, 1) have a share in common."""
    first, last = jnp.zeros(()), jnp.ones(())
    for begin, end in spans:
        first, last = jnp.maximum(first, begin), jnp.minimum(last, end)
    return first <= last


def ray(origin: Point, direction: Point, a: Float[Array, "E 2"], b: Float[Array, "E 2"]) -> Number:
    """The distance along a ray of unit direction to the nearest of the segments a–b; infinite if it meets none."""
    edge, to_a = b - a, a - origin[None]
    across = cross(direction[None], edge)
    parallel = jnp.abs(across) < 1e-9
    across = jnp.where(parallel, 1.0, across)
    distance, share = cross(to_a, edge) / across, cross(to_a, direction[None]) / across
    hit = ~parallel & (distance >= 0) & (share >= 0) & (share <= 1)
    return jnp.min(jnp.where(hit, distance, jnp.inf))


def cross(a: Float[Array, "*n 2"], b: Float[Array, "*m 2"]) -> Array:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
