"""The needle's motion: one tick of 20 ms, as in the game's recordings."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from scopil_bench.studies.needle_master.geometry import Number, Point

MAX_SPEED = 75.0  # px per tick; faster motion is cut to it, except in tissue
MAX_TURN = 1 / 15  # rad per tick, the largest that the recordings have
TISSUE_TURN = 0.02  # rad per tick: tissue halves turns up to it, and cuts larger ones to it
TICKS = 5  # per step of 100 ms


def tick(
    position: Point, heading: Number, speed: Number, turn: Number, in_tissue: Bool[Array, ""]
) -> tuple[Point, Number]:
    """The needle turns, then moves along its new heading. `in_tissue` is of the position before the tick."""
    slowed = jnp.where(jnp.abs(turn) > TISSUE_TURN, jnp.sign(turn) * TISSUE_TURN, turn / 2)
    heading = heading + jnp.where(in_tissue, slowed, turn)
    speed = jnp.where(in_tissue, speed, jnp.clip(speed, -MAX_SPEED, MAX_SPEED))
    return position + speed * direction(heading), heading


def direction(heading: Number) -> Float[Array, "2"]:
    """0 is to the right; positive turns are clockwise on the screen."""
    return jnp.stack([jnp.cos(heading), jnp.sin(heading)])
