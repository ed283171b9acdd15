"""Constraints of the tray. A new shape is one subclass of `Constraint` with a method `margin`, as in `Rectangle`.
Costs, the planner's clearance and the renderer use the margin alone.
"""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Constraint(eqx.Module):
    """A rule on the ball's position that has no physical effect."""

    rule: ClassVar[str]  # violations are reported as info["cost_<rule>"]

    @abstractmethod
    def margin(self, position: Float[Array, "2"]) -> Float[Array, ""]:
        """Signed distance in px to the forbidden region: positive outside it, negative inside."""

    def violated(self, position: Float[Array, "2"]) -> Bool[Array, ""]:
        return self.margin(position) < 0


class HorizontalLine(Constraint):
    """Allowed above `y` (below it when `above` is −1)."""

    rule: ClassVar[str] = "horizontal"
    y: float | Array
    above: float | Array = 1.0

    def margin(self, position: Float[Array, "2"]) -> Float[Array, ""]:
        return self.above * (position[1] - self.y)


class VerticalLine(Constraint):
    """Allowed to the right of `x` (to its left when `right` is −1)."""

    rule: ClassVar[str] = "vertical"
    x: float | Array
    right: float | Array = 1.0

    def margin(self, position: Float[Array, "2"]) -> Float[Array, ""]:
        return self.right * (position[0] - self.x)


class Circle(Constraint):
    """Allowed outside the circle."""

    rule: ClassVar[str] = "circle"
    x: float | Array
    y: float | Array
    radius: float | Array

    def margin(self, position: Float[Array, "2"]) -> Float[Array, ""]:
        return jnp.hypot(position[0] - self.x, position[1] - self.y) - self.radius


class Rectangle(Constraint):
    """Allowed outside an axis-parallel rectangle given by its centre and its half-sizes."""

    rule: ClassVar[str] = "rectangle"
    x: float | Array
    y: float | Array
    half_width: float | Array
    half_height: float | Array

    def margin(self, position: Float[Array, "2"]) -> Float[Array, ""]:
        dx = jnp.abs(position[0] - self.x) - self.half_width
        dy = jnp.abs(position[1] - self.y) - self.half_height
        outside = jnp.hypot(jnp.maximum(dx, 0.0), jnp.maximum(dy, 0.0))
        return outside + jnp.minimum(jnp.maximum(dx, dy), 0.0)


def rule_names(constraints: tuple[Constraint, ...]) -> tuple[str, ...]:
    """The names of the rules, in order of first appearance."""
    return tuple(dict.fromkeys(c.rule for c in constraints))


def costs(constraints: tuple[Constraint, ...], position: Float[Array, "2"]) -> dict[str, Array]:
    """`cost` (any rule violated) and `cost_<rule>`, each 0.0 or 1.0."""
    by_rule = {name: jnp.array(False) for name in rule_names(constraints)}
    for c in constraints:
        by_rule[c.rule] = by_rule[c.rule] | c.violated(position)
    violated = jnp.any(jnp.stack([*by_rule.values(), jnp.array(False)]))
    return {"cost": violated * 1.0} | {f"cost_{name}": v * 1.0 for name, v in by_rule.items()}


def min_margin(constraints: tuple[Constraint, ...], position: Float[Array, "2"]) -> Float[Array, ""]:
    """Signed distance to the nearest forbidden region (+∞ without constraints)."""
    return jnp.min(jnp.stack([jnp.asarray(c.margin(position)) for c in constraints] + [jnp.array(jnp.inf)]))
