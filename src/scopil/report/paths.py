"""Games drawn on the tray from above, as the paper's figures show them: lawful states green, unlawful ones red."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from scopil.errors import ScopilError
from scopil.evaluate.games import Game
from scopil.files import write_atomically
from scopil.studies.marble_maze.constraints import min_margin as lawful_margin
from scopil.studies.marble_maze.physics import CELL, HOLE_RADIUS
from scopil.studies.marble_maze.settings import MarbleParams

FLOOR = 4.5 * CELL  # px; the ball's rim reaches this far
GREEN, RED, INK = "#1a7f37", "#cf222e", "#24292f"
FORMATS = (".png", ".pdf", ".svg")


def draw_paths(axes: Any, params: MarbleParams, games: Sequence[Game]) -> None:
    """All games on one tray, into given matplotlib axes."""
    draw_tray(axes, params)
    for game in games:
        at = game.info["position"]
        broken = game.info["cost"] > 0
        axes.plot(at[:, 0], at[:, 1], color=INK, linewidth=0.5, alpha=0.25, zorder=2)
        axes.scatter(*at[~broken].T, s=5, color=GREEN, linewidths=0, alpha=0.8, zorder=3)
        axes.scatter(*at[broken].T, s=16, color=RED, marker="x", linewidths=1.1, zorder=5)
        axes.scatter(*at[0], s=16, facecolors="none", edgecolors=INK, linewidths=0.7, zorder=4)


def draw_tray(axes: Any, params: MarbleParams) -> None:
    """Floor, hole and whatever the laws forbid: the regions are read off the margins, so any kind will do."""
    ticks = np.linspace(-FLOOR, FLOOR, 401, dtype=np.float32)
    margin = _margins(params, ticks)
    axes.set(
        xlim=(-FLOOR, FLOOR), ylim=(-FLOOR, FLOOR), aspect="equal", xticks=[], yticks=[], facecolor="#fbf8f1"
    )
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
    return np.asarray(jax.vmap(jax.vmap(lambda p: lawful_margin(params.constraints, p)))(grid))


def check_ending(path: str | Path) -> Path:
    """Refuse a name we cannot draw into; callers ask before they play a thousand games."""
    if Path(path).suffix.lower() not in FORMATS:
        raise ScopilError(f"{path}: pictures end in {', '.join(FORMATS)}; give it one of these endings.")
    return Path(path)


def save_paths(path: str | Path, params: MarbleParams, games: Sequence[Game], title: str = "") -> None:
    """One tray with its games, as PNG, PDF or SVG by the name's ending."""
    save_panels(path, params, {title: games})


def save_panels(path: str | Path, params: MarbleParams, panels: Mapping[str, Sequence[Game]]) -> None:
    """Trays side by side, each with its title and its games."""
    path = check_ending(path)
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ScopilError('pictures of games need matplotlib: pip install "scopil[plots]".') from error
    figure = Figure(figsize=(5.0 * len(panels), 5.4), layout="constrained")
    for axes, (title, games) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items()):
        draw_paths(axes, params, games)
        axes.set_title(title, fontsize=10 if len(panels) == 1 else 14)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix[1:].lower(), dpi=200 if len(panels) == 1 else 110)
    write_atomically(path, buffer.getvalue())
