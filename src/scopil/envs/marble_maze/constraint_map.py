"""Where a learned cost is high, drawn over the tray, with the true constraints outlined."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scopil.envs.marble_maze import MarbleMaze, MarbleParams
from scopil.envs.marble_maze.paths import draw_tray
from scopil.envs.marble_maze.physics import ACTIONS, REACH, MarbleState

POINTS = 101  # a side of the grid
Cost = Callable[[Array, Array], Array]  # (observations, actions) → cost of each


def cost_grid(cost: Cost, params: MarbleParams, points: int = POINTS) -> Float[np.ndarray, "S S A"]:
    """c(s, a) with the ball at rest on a level tray: rows run over y, columns over x, both from −REACH to REACH."""
    env, still = MarbleMaze(params), jnp.zeros(2, jnp.int32)

    def at(position):
        at_rest = MarbleState(position, jnp.zeros(2), still, still, jnp.int32(0))
        obs = jnp.broadcast_to(env.observation(at_rest), (len(ACTIONS), 8))
        return cost(obs, jnp.arange(len(ACTIONS)))

    ticks = jnp.linspace(-REACH, REACH, points)
    grid = jnp.stack(jnp.meshgrid(ticks, ticks), axis=-1)
    return np.asarray(jax.jit(jax.vmap(jax.vmap(at)))(grid))


def draw_cost(axes: Any, cost: Cost, params: MarbleParams) -> Any:
    """The cost's mean over actions as a map, into given matplotlib axes; returns the image, for a colour bar."""
    return draw_grid(axes, cost_grid(cost, params), params)


def draw_grid(axes: Any, costs: Float[np.ndarray, "S S A"], params: MarbleParams) -> Any:
    draw_tray(axes, params)
    edge = REACH * (1 + 1 / (len(costs) - 1))  # half a grid cell beyond the outermost points
    return axes.imshow(
        costs.mean(-1),
        extent=(-edge, edge, -edge, edge),
        origin="lower",
        cmap="Blues",
        vmin=0.0,
        vmax=1.0,
        zorder=0.5,  # over the tray's floor and the tint of the forbidden region, under its outline
        interpolation="bilinear",
    )
