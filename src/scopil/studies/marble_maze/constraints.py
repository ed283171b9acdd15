"""Constraints are data: a class with numbers and one function, `margin`.

A new kind is one class here (or in your own code) and no edit elsewhere: costs, the planner's clearance and the
renderer all work from the margin. See `Rectangle`.
"""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Constraint(eqx.Module):
    """A law on the ball's position that has no physical effect."""

    kind: ClassVar[str]  # violations are reported as info["cost_<kind>"]

    @abstractmethod
    def margin(self, position: Float[Array, "2"]) -> Float[Array, ""]:
        """Signed distance in px to the unlawful region: positive outside it, negative inside."""

    def violated(self, position: Float[Array, "2"]) -> Bool[Array, ""]:
        return self.margin(position) < 0


class HorizontalLine(Constraint):
    """Lawful above `y` (below it when `above` is −1)."""

    kind: ClassVar[str] = "horizontal"
    y: float | Array
    above: float | Array = 1.0

    def margin(self, position: Float[Array, "2"]) -> Float[Array, ""]:
        return self.above * (position[1] - self.y)


class VerticalLine(Constraint):
    """Lawful to the right of `x` (to its left when `right` is −1)."""

    kind: ClassVar[str] = "vertical"
    x: float | Array
    right: float | Array = 1.0

    def margin(self, position: Float[Array, "2"]) -> Float[Array, ""]:
        return self.right * (position[0] - self.x)


class Circle(Constraint):
    """Lawful outside the circle."""

    kind: ClassVar[str] = "circle"
    x: float | Array
    y: float | Array
    radius: float | Array

    def margin(self, position: Float[Array, "2"]) -> Float[Array, ""]:
        return jnp.hypot(position[0] - self.x, position[1] - self.y) - self.radius


class Rectangle(Constraint):
    """Lawful outside an axis-parallel rectangle given by its centre and its half-sizes."""

    kind: ClassVar[str] = "rectangle"
    x: float | Array
    y: float | Array
    half_width: float | Array
    half_height: float | Array

    def margin(self, position: Float[Array, "2"]) -> Float[Array, ""]:
        dx = jnp.abs(position[0] - self.x) - self.half_width
        dy = jnp.abs(position[1] - self.y) - self.half_height
        outside = jnp.hypot(jnp.maximum(dx, 0.0), jnp.maximum(dy, 0.0))
        return outside + jnp.minimum(jnp.maximum(dx, dy), 0.0)


def kinds(constraints: tuple[Constraint, ...]) -> tuple[str, ...]:
    """The kinds present, in order of first appearance."""
    return tuple(dict.fromkeys(c.kind for c in constraints))


def costs(constraints: tuple[Constraint, ...], position: Float[Array, "2"]) -> dict[str, Array]:
    """`cost` (any law broken) and `cost_<kind>`, each 0.0 or 1.0."""
    by_kind = {k: jnp.array(False) for k in kinds(constraints)}
    for c in constraints:
        by_kind[c.kind] = by_kind[c.kind] | c.violated(position)
    broken = jnp.any(jnp.stack([*by_kind.values(), jnp.array(False)]))
    return {"cost": broken * 1.0} | {f"cost_{k}": v * 1.0 for k, v in by_kind.items()}


def lawful_margin(constraints: tuple[Constraint, ...], position: Float[Array, "2"]) -> Float[Array, ""]:
    """Distance to the nearest unlawful region (+∞ without constraints)."""
    return jnp.min(jnp.stack([jnp.asarray(c.margin(position)) for c in constraints] + [jnp.array(jnp.inf)]))
