"""Left or right of a circle, as the Two-modes demonstrations and the mode coverage of a policy define it."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scopil.envs.marble_maze.constraints import Circle, Constraint

SIDES = ("left", "right")
HALF_ANGLE = np.pi / 9  # of the wedge that closes one side; too wide to be jumped in one step


def passing_side(positions: np.ndarray, circle: Circle, hole: tuple[float, float]) -> str:
    """The side of the circle an episode passes on its way to the hole, from its positions (T+1, 2) in px.

    Let θ_t be the direction of the ball as seen from the circle's centre, followed without jumps from the start to
    the hole. The episode passes left when it turns counter-clockwise about the centre (Σ Δθ > 0), right otherwise.
    With the hole to the lower left of the circle these are the circle's upper-left and lower-right sides.
    """
    path = np.vstack([np.asarray(positions, np.float64), hole])
    theta = np.arctan2(path[:, 1] - float(circle.y), path[:, 0] - float(circle.x))
    turn = (np.diff(theta) + np.pi) % (2 * np.pi) - np.pi
    return "left" if turn.sum() > 0 else "right"


class Wedge(Constraint):
    """Allowed outside an infinite wedge. The planner closes one side of a circle with it; no environment has one."""

    rule: ClassVar[str] = "wedge"
    x: float | Array  # apex
    y: float | Array
    direction: float | Array  # of its axis, rad
    half_angle: float | Array = HALF_ANGLE  # rad, below π/2

    def margin(self, position: Float[Array, "2"]) -> Float[Array, ""]:
        dx, dy = position[0] - self.x, position[1] - self.y
        along = dx * jnp.cos(self.direction) + dy * jnp.sin(self.direction)
        across = jnp.abs(dy * jnp.cos(self.direction) - dx * jnp.sin(self.direction))
        flank = across * jnp.cos(self.half_angle) - along * jnp.sin(self.half_angle)
        behind = along * jnp.cos(self.half_angle) + across * jnp.sin(self.half_angle) < 0
        return jnp.where(behind, jnp.hypot(dx, dy), flank)


def closed_to(side: str, circle: Circle, hole: tuple[float, float]) -> Wedge:
    """A wedge across the *other* side, at right angles to the line from the circle's centre to the hole."""
    to_hole = np.arctan2(hole[1] - float(circle.y), hole[0] - float(circle.x))
    return Wedge(circle.x, circle.y, float(to_hole + (np.pi / 2 if side == "left" else -np.pi / 2)))
