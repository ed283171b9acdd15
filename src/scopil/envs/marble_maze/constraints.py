"""Constraints of the tray and the paper's three settings. To add a shape, subclass `Constraint` and define
`margin`, as in `Rectangle`. Costs, the planner's clearance and the renderer use only the margin."""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

Position = Float[Array, "2"]
Number = Float[Array, ""]
Parameter = float | Array


class Constraint(eqx.Module):
    """A rule on the ball's position that has no physical effect."""

    rule: ClassVar[str]  # violations are reported as info["cost_<rule>"]

    @abstractmethod
    def margin(self, position: Position) -> Number:
        """Signed distance in px to the forbidden region: positive outside it, negative inside."""


class HorizontalLine(Constraint):
    """Allowed above `y` (below it when `above` is −1)."""

    rule: ClassVar[str] = "horizontal"
    y: Parameter
    above: Parameter = 1.0

    def margin(self, position: Position) -> Number:
        return self.above * (position[1] - self.y)


class VerticalLine(Constraint):
    """Allowed to the right of `x` (to its left when `right` is −1)."""

    rule: ClassVar[str] = "vertical"
    x: Parameter
    right: Parameter = 1.0

    def margin(self, position: Position) -> Number:
        return self.right * (position[0] - self.x)


class Circle(Constraint):
    """Allowed outside the circle."""

    rule: ClassVar[str] = "circle"
    x: Parameter
    y: Parameter
    radius: Parameter

    def margin(self, position: Position) -> Number:
        return jnp.hypot(position[0] - self.x, position[1] - self.y) - self.radius


class Rectangle(Constraint):
    """Allowed outside an axis-parallel rectangle given by its centre and its half-sizes."""

    rule: ClassVar[str] = "rectangle"
    x: Parameter
    y: Parameter
    half_width: Parameter
    half_height: Parameter

    def margin(self, position: Position) -> Number:
        dx = jnp.abs(position[0] - self.x) - self.half_width
        dy = jnp.abs(position[1] - self.y) - self.half_height
        outside = jnp.hypot(jnp.maximum(dx, 0.0), jnp.maximum(dy, 0.0))
        return outside + jnp.minimum(jnp.maximum(dx, dy), 0.0)


def rule_names(constraints: tuple[Constraint, ...]) -> tuple[str, ...]:
    """The names of the rules, in order of first appearance."""
    return tuple(dict.fromkeys(c.rule for c in constraints))


def costs(constraints: tuple[Constraint, ...], position: Position) -> dict[str, Array]:
    """`cost` (any rule violated) and `cost_<rule>`, each 0.0 or 1.0."""
    by_rule = {name: jnp.array(False) for name in rule_names(constraints)}
    for c in constraints:
        by_rule[c.rule] = by_rule[c.rule] | (c.margin(position) < 0)
    violated = jnp.any(jnp.stack([*by_rule.values(), jnp.array(False)]))
    return {"cost": violated * 1.0} | {f"cost_{name}": v * 1.0 for name, v in by_rule.items()}


def min_margin(constraints: tuple[Constraint, ...], position: Position) -> Number:
    """Signed distance to the nearest forbidden region (+∞ without constraints)."""
    return jnp.min(jnp.stack([jnp.asarray(c.margin(position)) for c in constraints] + [jnp.array(jnp.inf)]))


class MarbleParams(NamedTuple):
    """The tray as data. Pass your own to `MarbleMaze` to change the constraints."""

    constraints: tuple[Constraint, ...] = ()
    hole: tuple[float, float] = (-144.0, -144.0)  # px
    start_distance: float = 40.0  # px; episodes start at least this far from the hole
    max_steps: int = 200  # the episode is truncated if the ball has not reached the hole by then


# The paper gives its geometry only as a picture. These numbers were chosen so that an unconstrained SAC violates the
# rules about as often as in the paper.
_LINE = HorizontalLine(-160.0)

SIMPLE = MarbleParams((_LINE, Circle(-50.0, -60.0, 45.0)))
_CIRCLES = (
    *((-50.0, -60.0, 30.0), (62.0, -22.0, 28.0), (-104.0, 48.0, 26.0), (22.0, 84.0, 28.0)),
    *((-2.0, -128.0, 20.0), (124.0, 66.0, 26.0), (96.0, -112.0, 26.0)),
)
MULTIPLE = MarbleParams((_LINE, VerticalLine(-160.0), *(Circle(*circle) for circle in _CIRCLES)))
TWO_MODES = SIMPLE  # the demonstrations differ, the tray does not

SETTINGS: dict[str, MarbleParams] = {"simple": SIMPLE, "multiple": MULTIPLE, "two-modes": TWO_MODES}
