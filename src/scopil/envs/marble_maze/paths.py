"""Episodes on the tray from above, as the paper's figures show them: lawful states green, violations red."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from scopil.data.dataset import Episode
from scopil.envs.marble_maze.constraints import min_margin
from scopil.envs.marble_maze.physics import CELL, HOLE_RADIUS
from scopil.envs.marble_maze.settings import MarbleParams
from scopil.eval.measures import breaks_a_rule

FLOOR = 4.5 * CELL  # px; the ball's rim reaches this far
GREEN, RED, INK = "#1a7f37", "#cf222e", "#24292f"


def measures(episode: Episode) -> dict[str, float]:
    """The length of the ball's path in px, and whether it fell into the hole."""
    moves = np.diff(episode.info["position"].astype(np.float64), axis=0)
    length = float(np.sqrt((moves**2).sum(axis=-1)).sum())
    return {"length": length, "reached": float(episode.terminated)}


def draw_episodes(axes: Any, episodes: Sequence[Episode], params: MarbleParams) -> None:
    """All episodes on one tray, into given matplotlib axes."""
    draw_tray(axes, params)
    for episode in episodes:
        at = episode.info["position"]
        broken = breaks_a_rule(episode)
        axes.plot(at[:, 0], at[:, 1], color=INK, linewidth=0.5, alpha=0.25, zorder=2)
        axes.scatter(*at[~broken].T, s=5, color=GREEN, linewidths=0, alpha=0.8, zorder=3)
        axes.scatter(*at[broken].T, s=16, color=RED, marker="x", linewidths=1.1, zorder=5)
        axes.scatter(*at[0], s=16, facecolors="none", edgecolors=INK, linewidths=0.7, zorder=4)


def draw_tray(axes: Any, params: MarbleParams) -> None:
    """Floor, hole and whatever the rules forbid. The regions are read off the margins, so any constraint will do."""
    ticks = np.linspace(-FLOOR, FLOOR, 401, dtype=np.float32)
    margin = _margins(params, ticks)
    axes.set(xlim=(-FLOOR, FLOOR), ylim=(-FLOOR, FLOOR), aspect="equal", xticks=[], yticks=[], facecolor="#fbf8f1")
    if margin.min() < 0 < margin.max():
        axes.contourf(ticks, ticks, margin, levels=[margin.min(), 0.0], colors=["#f7d6d2"], zorder=0)
        axes.contour(ticks, ticks, margin, levels=[0.0], colors=[RED], linewidths=0.8, zorder=1)
    turn = np.linspace(0.0, 2 * np.pi, 90)
    x, y = params.hole
    axes.fill(x + HOLE_RADIUS * np.cos(turn), y + HOLE_RADIUS * np.sin(turn), color=INK, zorder=1)


def _margins(params: MarbleParams, ticks: Float[np.ndarray, " S"]) -> Float[np.ndarray, "S S"]:
    """Rows run over y, as matplotlib wants them."""
    x, y = jnp.meshgrid(jnp.asarray(ticks), jnp.asarray(ticks))
    grid = jnp.stack([x, y], axis=-1)
    return np.asarray(jax.vmap(jax.vmap(lambda p: min_margin(params.constraints, p)))(grid))
