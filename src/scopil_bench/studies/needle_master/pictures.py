"""Pictures of levels: the sheet of all levels with episodes, in matplotlib, and frames of one level, in NumPy."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from scopil.data.dataset import Episode
from scopil.eval.measures import breaks_a_rule
from scopil_bench.studies.needle_master.env import COLUMNS, TILE, NeedleState, tile_of
from scopil_bench.studies.needle_master.levels import HEIGHT, WIDTH, Gate, Level

SCALE = 3  # px of the screen per pixel of a frame, which is 640 × 360
NEEDLE = 45.0  # px: the length of the drawn needle
PAPER, TISSUE, DEEP = (251, 248, 241), (245, 214, 200), (206, 112, 84)
GATE, NEXT, INK = (206, 226, 211), (150, 205, 162), (36, 41, 47)
NAVY, RED, GREEN = (34, 52, 98), (207, 34, 46), (26, 127, 55)


def parts_of(gate: Gate) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Corners of the gate's opening and of its bars, (4, 2) each."""
    axis = np.array(gate.axis)
    across = np.array([-axis[1], axis[0]])

    def box(low: float, high: float) -> np.ndarray:
        ends = [(-1, low), (1, low), (1, high), (-1, high)]
        return np.array([np.array(gate.centre) + u * gate.half_depth * across + w * axis for u, w in ends])

    return (
        box(-gate.opening, gate.opening),
        box(gate.opening, gate.half_height),
        box(-gate.half_height, -gate.opening),
    )


# --- the sheet --------------------------------------------------------------------------------------------------------


def draw_episodes(axes: Any, levels: Sequence[Level], episodes: Sequence[Episode]) -> None:
    """All levels side by side, with the paths of the episodes; steps that break a rule are red. The limits are a
    square, as reports want them."""
    for number, level in enumerate(levels):
        _draw_level(axes, level, TILE * np.array(tile_of(number)))
    for episode in episodes:
        at, broken = episode.info["position"], breaks_a_rule(episode)
        axes.plot(*at.T, color=_web(NAVY), linewidth=0.6, alpha=0.7, zorder=3)
        axes.scatter(*at[broken].T, s=14, color=_web(RED), marker="x", linewidths=1.0, zorder=5)
        axes.scatter(*at[:1].T, s=12, facecolors="none", edgecolors=_web(INK), linewidths=0.6, zorder=4)
    columns, rows = min(len(levels), COLUMNS), -(-len(levels) // COLUMNS)
    width, height = TILE * (columns, rows)
    side, middle = max(width, height) / 2, (np.array([width, height]) - TILE + (WIDTH, HEIGHT)) / 2
    axes.set(xlim=(middle[0] - side, middle[0] + side), ylim=(middle[1] + side, middle[1] - side), xticks=[], yticks=[])
    axes.set_aspect("equal")
    for side_line in axes.spines.values():
        side_line.set_visible(False)


def _draw_level(axes: Any, level: Level, corner: np.ndarray) -> None:
    screen = np.array([(0, 0), (WIDTH, 0), (WIDTH, HEIGHT), (0, HEIGHT)])
    axes.fill(*(screen + corner).T, facecolor=_web(PAPER), edgecolor=_web(INK), linewidth=0.5, zorder=0)
    for surface in level.surfaces:
        axes.fill(*(np.array(surface.corners) + corner).T, color=_web(DEEP if surface.deep else TISSUE), zorder=1)
    for number, gate in enumerate(level.gates, 1):
        opening, *bars = parts_of(gate)
        axes.fill(*(opening + corner).T, color=_web(GATE), zorder=2)
        for bar in bars:
            axes.fill(*(bar + corner).T, color=_web(INK), zorder=2)
        axes.text(*(gate.centre + corner), str(number), fontsize=5, ha="center", va="center", color=_web(GREEN))
    axes.text(*(corner + np.array([20, -25])), f"level {level.name}", fontsize=6, color=_web(INK))


def _web(colour: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


# --- frames -----------------------------------------------------------------------------------------------------------


class Drawn(NamedTuple):
    """A level with the path so far."""

    canvas: np.ndarray
    last: np.ndarray  # px


def frame(level: Level, state: NeedleState, drawn: Drawn | None) -> tuple[Drawn, np.ndarray]:
    """The path extended by `state`, and the picture of `state`. A red needle has broken a rule in its last step."""
    at = np.asarray(state.position, np.float64)
    canvas, last = (_background(level), at) if drawn is None else drawn
    canvas = canvas.copy()
    _line(canvas, last, at, 4.0, NAVY)
    image = canvas.copy()
    if (number := int(state.gate)) < len(level.gates):
        image[_mask(parts_of(level.gates[number])[0])] = NEXT
        _line(image, last, at, 4.0, NAVY)
    heading = float(state.heading)
    tail = at - NEEDLE * np.array([np.cos(heading), np.sin(heading)])
    _line(image, tail, at, 7.0, RED if np.any(state.broken) else INK)
    return Drawn(canvas, at), image


def _background(level: Level) -> np.ndarray:
    image = np.full((int(HEIGHT) // SCALE, int(WIDTH) // SCALE, 3), PAPER, np.uint8)
    for surface in level.surfaces:
        image[_mask(np.array(surface.corners))] = DEEP if surface.deep else TISSUE
    for gate in level.gates:
        opening, *bars = parts_of(gate)
        image[_mask(opening)] = GATE
        for bar in bars:
            image[_mask(bar)] = INK
    return image


def _grid() -> tuple[np.ndarray, np.ndarray]:
    """The places of a frame's pixels on the screen: a row of x, a column of y."""
    x, y = (np.arange(int(size) // SCALE) * SCALE + SCALE / 2 for size in (WIDTH, HEIGHT))
    return x[None, :], y[:, None]


def _mask(corners: np.ndarray) -> np.ndarray:
    """The pixels inside a polygon."""
    x, y = _grid()
    odd = np.zeros(np.broadcast(x, y).shape, bool)
    for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, -1, axis=0)):
        if y1 != y2:
            odd ^= ((y1 > y) != (y2 > y)) & (x < x1 + (y - y1) / (y2 - y1) * (x2 - x1))
    return odd


def _line(image: np.ndarray, a: np.ndarray, b: np.ndarray, width: float, colour: tuple[int, int, int]) -> None:
    x, y = _grid()
    way = b - a
    share = np.clip(((x - a[0]) * way[0] + (y - a[1]) * way[1]) / max(float(way @ way), 1e-9), 0, 1)
    image[np.hypot(x - a[0] - share * way[0], y - a[1] - share * way[1]) <= width / 2 + SCALE / 2] = colour
