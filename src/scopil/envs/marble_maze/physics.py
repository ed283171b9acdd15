"""The tray: a deterministic *update* of ball (in px) and tilt, after Lygerakis et al. (PETRA 2021).

The origin is the tray's centre and y points up. Tilt is an integer number of ticks of 0.1 rad, because
floating-point sums of 0.1 do not reach the clamp exactly.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

CELL = 43.615993  # px; the ball's diameter. The tray has 11 × 11 cells; the outer ring is wall
REACH = 4 * CELL  # the ball's centre stays in [−REACH, REACH]²
HOLE_RADIUS = CELL / 3
MAX_TICKS = 5
TICK = 0.1  # rad
UPDATES_PER_STEP = 5

# (about X, about Y) ticks per update, in the paper's order: none/up/down × none/left/right.
ACTIONS = np.array([(x, y) for x in (0, 1, -1) for y in (0, 1, -1)], dtype=np.int32)


class MarbleState(NamedTuple):
    position: Float[Array, "2"]  # px
    velocity: Float[Array, "2"]  # px per update
    tilt: Int[Array, "2"]  # ticks about X and Y, −5 … 5
    tilt_velocity: Int[Array, "2"]  # ticks per update, 0 on an axis at its clamp
    steps: Int[Array, ""]  # steps played so far


def hole_distance(position: Float[Array, "2"], hole: Float[Array, "2"]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.sum((position - hole) ** 2))


def in_hole(position: Float[Array, "2"], hole: Float[Array, "2"]) -> Bool[Array, ""]:
    return hole_distance(position, hole) <= HOLE_RADIUS


def update(state: MarbleState, turn: Int[Array, "2"]) -> MarbleState:
    """One update under the tilt ticks `turn`, with walls but without the hole."""
    tilt = jnp.clip(state.tilt + turn, -MAX_TICKS, MAX_TICKS)
    tilt_velocity = jnp.where(jnp.abs(tilt) == MAX_TICKS, 0, turn)
    # a = 0.1 (−r_y, r_x);  v ← v + 1.5 a
    r_x, r_y = TICK * tilt[0], TICK * tilt[1]
    velocity = state.velocity + 0.15 * jnp.stack([-r_y, r_x])
    # Walls, per axis: a slow ball stops, a fast one bounces with 30 % of its speed.
    leaves = jnp.abs(state.position + velocity) > REACH
    rebound = jnp.where(jnp.abs(velocity) < 0.1, 0.0, -0.3 * velocity)
    velocity = jnp.where(leaves, rebound, velocity)
    return MarbleState(state.position + velocity, velocity, tilt, tilt_velocity, state.steps)


def step(state: MarbleState, action: Int[Array, ""], hole: Float[Array, "2"]) -> MarbleState:
    """One decision: five updates under one action; the ball stays where it falls into the hole."""
    turn = jnp.asarray(ACTIONS)[action]
    for _ in range(UPDATES_PER_STEP):
        fallen = in_hole(state.position, hole)
        moved = update(state, turn)
        state = MarbleState(*(jnp.where(fallen, old, new) for old, new in zip(state, moved)))
    return state._replace(steps=state.steps + 1)
