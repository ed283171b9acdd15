"""Where a learned constraint believes the law runs, drawn over the tray, with the truth outlined."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from scopil.algos import icrl
from scopil.errors import ScopilError
from scopil.report.curves import new_figure, save_figure
from scopil.report.paths import check_ending, draw_tray
from scopil.studies.marble_maze import MarbleMaze, MarbleParams
from scopil.studies.marble_maze.physics import ACTIONS, REACH, MarbleState

POINTS = 101  # a side of the grid


def cost_grid(params: MarbleParams, learner: Any, points: int = POINTS) -> Float[np.ndarray, "S S A"]:
    """c(s, a) with the ball at rest on a level tray: rows run over y, columns over x, both from −REACH to REACH."""
    if not hasattr(learner, "constraint"):
        raise ScopilError("this learner has no constraint to draw; want one of ICRL.")
    env, still = MarbleMaze(params), jnp.zeros(2, jnp.int32)

    def believed(position):
        at_rest = MarbleState(position, jnp.zeros(2), still, still, jnp.int32(0))
        obs = jnp.broadcast_to(env.observation(at_rest), (len(ACTIONS), 8))
        return icrl.cost(learner, obs, jnp.arange(len(ACTIONS)))

    ticks = jnp.linspace(-REACH, REACH, points)
    grid = jnp.stack(jnp.meshgrid(ticks, ticks), axis=-1)
    return np.asarray(jax.jit(jax.vmap(jax.vmap(believed)))(grid))


def draw_constraint_map(axes: Any, params: MarbleParams, costs: Float[np.ndarray, "S S A"]) -> Any:
    """The mean over actions as a map, into given matplotlib axes; returns the image, for a colour bar."""
    draw_tray(axes, params)
    edge = REACH * (1 + 1 / (len(costs) - 1))  # half a grid cell beyond the outermost points
    return axes.imshow(
        costs.mean(-1),
        extent=(-edge, edge, -edge, edge),
        origin="lower",
        cmap="Blues",
        vmin=0.0,
        vmax=1.0,
        zorder=0.5,  # over the tray's floor and the truth's colour, under its outline
        interpolation="bilinear",
    )


def save_constraint_map(path: str | Path, params: MarbleParams, learner: Any, title: str = "") -> None:
    """One tray with its map, as PNG, PDF or SVG by the name's ending."""
    save_constraint_maps(path, params, {title: learner})


def save_constraint_maps(path: str | Path, params: MarbleParams, learners: Mapping[str, Any]) -> None:
    """Trays side by side, each with its title and its learner's map; one colour bar for all."""
    path = check_ending(path)
    figure = new_figure(figsize=(4.6 * len(learners) + 1.0, 5.0))
    trays = figure.subplots(1, len(learners), squeeze=False)[0]
    images = []
    for axes, (title, learner) in zip(trays, learners.items()):
        images.append(draw_constraint_map(axes, params, cost_grid(params, learner)))
        axes.set_title(title, fontsize=10)
    bar = figure.colorbar(images[0], ax=trays, shrink=0.8)  # all share one scale
    bar.set_label("believed cost 1 − ζ (mean over actions, ball at rest)")
    save_figure(path, figure)
