"""Matplotlib drawings of the tray from above: episodes (violations are red) and maps of a learned cost."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scopil.data.dataset import Episode
from scopil.envs.marble_maze import MarbleMaze, MarbleParams
from scopil.envs.marble_maze.constraints import min_margin
from scopil.envs.marble_maze.env import at_rest
from scopil.envs.marble_maze.physics import ACTIONS, HOLE_RADIUS, REACH
from scopil.envs.marble_maze.render import FLOOR
from scopil.eval.measures import breaks_a_rule

GREEN, RED, INK = "#1a7f37", "#cf222e", "#24292f"
POINTS = 101  # points per side of the cost grid
Cost = Callable[[Array, Array], Array]  # (observations, actions) → costs of the pairs


def draw_episodes(axes: Any, episodes: Sequence[Episode], params: MarbleParams) -> None:
    draw_tray(axes, params)
    for episode in episodes:
        at = episode.info["position"]
        broken = breaks_a_rule(episode)
        axes.plot(at[:, 0], at[:, 1], color=INK, linewidth=0.5, alpha=0.25, zorder=2)
        axes.scatter(*at[~broken].T, s=5, color=GREEN, linewidths=0, alpha=0.8, zorder=3)
        axes.scatter(*at[broken].T, s=16, color=RED, marker="x", linewidths=1.1, zorder=5)
        axes.scatter(*at[0], s=16, facecolors="none", edgecolors=INK, linewidths=0.7, zorder=4)


def draw_tray(axes: Any, params: MarbleParams) -> None:
    """Floor, hole and forbidden regions. The regions come from `Constraint.margin`, so every constraint is drawn."""
    ticks = np.linspace(-FLOOR, FLOOR, 401, dtype=np.float32)
    grid = jnp.stack(jnp.meshgrid(jnp.asarray(ticks), jnp.asarray(ticks)), axis=-1)  # rows are y, as in matplotlib
    margin = np.asarray(jax.vmap(jax.vmap(lambda p: min_margin(params.constraints, p)))(grid))
    axes.set(xlim=(-FLOOR, FLOOR), ylim=(-FLOOR, FLOOR), aspect="equal", xticks=[], yticks=[], facecolor="#fbf8f1")
    if margin.min() < 0 < margin.max():
        axes.contourf(ticks, ticks, margin, levels=[margin.min(), 0.0], colors=["#f7d6d2"], zorder=0)
        axes.contour(ticks, ticks, margin, levels=[0.0], colors=[RED], linewidths=0.8, zorder=1)
    turn = np.linspace(0.0, 2 * np.pi, 90)
    x, y = params.hole
    axes.fill(x + HOLE_RADIUS * np.cos(turn), y + HOLE_RADIUS * np.sin(turn), color=INK, zorder=1)


def cost_grid(cost: Cost, params: MarbleParams, points: int = POINTS) -> Float[np.ndarray, "S S A"]:
    """c(s, a) with the ball at rest on a level tray: rows are y, columns are x, both from −REACH to REACH."""
    env = MarbleMaze(params)

    def at(position):
        obs = jnp.broadcast_to(env.observation(at_rest(position)), (len(ACTIONS), 8))
        return cost(obs, jnp.arange(len(ACTIONS)))

    ticks = jnp.linspace(-REACH, REACH, points)
    grid = jnp.stack(jnp.meshgrid(ticks, ticks), axis=-1)
    return np.asarray(jax.jit(jax.vmap(jax.vmap(at)))(grid))


def draw_grid(axes: Any, costs: Float[np.ndarray, "S S A"], params: MarbleParams) -> Any:
    """A map of costs, averaged over actions, with the forbidden regions outlined. Returns the image."""
    draw_tray(axes, params)
    edge = REACH * (1 + 1 / (len(costs) - 1))  # half a grid cell beyond the outermost points
    return axes.imshow(
        costs.mean(-1),
        **{"extent": (-edge, edge, -edge, edge), "origin": "lower", "interpolation": "bilinear"},
        **{"cmap": "Blues", "vmin": 0.0, "vmax": 1.0},
        zorder=0.5,  # above the floor and the tint of forbidden regions, below their outline
    )
