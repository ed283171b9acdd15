"""Images of the tray in NumPy. Every shape is a signed distance with an anti-aliased rim. The tray is drawn once per
set of params; each frame adds the newest part of the trail, the ball and the tilt gauge."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scopil.envs.marble_maze.constraints import MarbleParams, min_margin
from scopil.envs.marble_maze.physics import CELL, HOLE_RADIUS, MAX_TICKS, MarbleState

SIZE = 480  # width and height of a frame in pixels
HALF = 5.5 * CELL  # the picture shows [−HALF, HALF]², walls included (matplotlib's `extent`)
FLOOR = 4.5 * CELL
BALL = CELL / 2

PAPER, WOOD, MAPLE = (255, 255, 255), (150, 108, 72), (246, 239, 226)
RED, NAVY, WHITE, INK = (206, 32, 48), (34, 52, 98), (255, 255, 255), (30, 26, 26)
GLASS, DEEP = (92, 150, 205), (24, 62, 116)
LIGHT = np.array([-0.48, 0.60, 0.64], np.float32)  # direction of the light: upper left, above the tray


class Tray(NamedTuple):
    image: np.ndarray
    scale: float  # image pixels per px of the tray
    hole: np.ndarray
    allowed: Callable[[np.ndarray], bool]


class RenderState(NamedTuple):
    tray: Tray
    canvas: np.ndarray  # the tray with the trail so far
    trail: tuple[tuple[float, float, bool], ...] = ()  # (x, y, allowed) of every state of this episode


def begin(params: MarbleParams, size: int = SIZE) -> RenderState:
    tray = _tray(params, size)
    return RenderState(tray, tray.image)


def frame(state: MarbleState, render_state: RenderState) -> tuple[RenderState, np.ndarray]:
    """The trail extended by `state`, and the picture of `state` with this trail."""
    tray, canvas, trail = render_state
    position, tilt = np.asarray(state.position, np.float32), np.asarray(state.tilt)
    here = (float(position[0]), float(position[1]), tray.allowed(position))
    canvas = canvas.copy()
    if trail:
        _draw_segment(canvas, tray.scale, trail[-1][:2], here[:2])
        _draw_state(canvas, tray.scale, trail[-1])  # again, so that its dot covers the line
    _draw_state(canvas, tray.scale, here)
    image = canvas.copy()
    _draw_state(image, tray.scale, (*trail, here)[0], first=True)
    _draw_ball(image, tray, position, tilt, here[2])
    _draw_gauge(image, tray.scale, tilt)
    return RenderState(tray, canvas, (*trail, here)), image


def draw_tray(params: MarbleParams, size: int = SIZE) -> np.ndarray:
    """The empty tray with its constraints, (size, size, 3) uint8; it spans [−HALF, HALF] on both axes."""
    return _tray(params, size).image.copy()


def _tray(params: MarbleParams, size: int) -> Tray:
    leaves, structure = jax.tree.flatten(params)
    arrays = [np.asarray(leaf) for leaf in leaves]
    return _tray_of(structure, tuple((a.dtype.str, a.shape, a.tobytes()) for a in arrays), size)


@lru_cache(maxsize=16)
def _tray_of(structure: Any, leaves: tuple[tuple[str, tuple[int, ...], bytes], ...], size: int) -> Tray:
    """The tray, cached by the content of the params: these may hold arrays, which are not hashable."""
    params: MarbleParams = jax.tree.unflatten(
        structure, [np.frombuffer(data, dtype).reshape(shape) for dtype, shape, data in leaves]
    )
    margin = jax.jit(lambda p: min_margin(params.constraints, p))
    scale = size / (2 * HALF)
    hole = np.array(params.hole, np.float32)
    x, y = _pixels(0, size, 0, size, scale, size)
    x, y = np.broadcast_arrays(x, y)
    image = np.empty((size, size, 3), np.float32)
    image[:] = PAPER
    _draw_frame(image, x, y, scale)
    _draw_floor(image, x, y, scale)
    _draw_hole(image, x - hole[0], y - hole[1], scale)
    points = jnp.asarray(np.stack([x.ravel(), y.ravel()], axis=1))
    margins = np.asarray(jax.jit(jax.vmap(margin))(points)).reshape(size, size)
    _draw_constraints(image, x, y, margins, scale)
    drawn = np.rint(np.clip(image, 0, 255)).astype(np.uint8)
    drawn.setflags(write=False)
    return Tray(drawn, scale, hole, lambda position: bool(margin(position) >= 0))


def _draw_frame(image: np.ndarray, x: np.ndarray, y: np.ndarray, scale: float) -> None:
    edge = _box(x, y, HALF, 9.0)
    # Wood grain along each wall.
    along, across = np.where(np.abs(x) > np.abs(y), (y, x), (x, y))
    grain = np.sin(across * 1.1 + 1.6 * np.sin(along * 0.021 + across * 0.05)) * np.sin(across * 0.37 + along * 0.011)
    wood = np.array(WOOD, np.float32) * (1 + 0.035 * grain)[..., None]
    # Both rims of the wall are rounded; `facing` is how much each side faces the light.
    sideways = np.abs(x) > np.abs(y)
    facing = np.where(sideways, np.sign(x) * LIGHT[0], np.sign(y) * LIGHT[1])
    outer = np.exp(-np.maximum(-edge, 0) / 3.0)
    inner = np.exp(-np.maximum(_box(x, y, FLOOR, 0.0), 0) / 3.5)
    wood *= (1 + 0.75 * facing * outer - 0.75 * facing * inner)[..., None]
    _blend(image, np.clip(wood, 0, 255), _cover(edge, scale))


def _draw_floor(image: np.ndarray, x: np.ndarray, y: np.ndarray, scale: float) -> None:
    inside = _box(x, y, FLOOR, 2.0)
    left, top = x + FLOOR, FLOOR - y
    shade = 1 - 0.30 * np.exp(-left / 8.0) - 0.34 * np.exp(-top / 9.0)  # shadows of the walls
    shade *= 1.015 - 0.05 * np.hypot(x - LIGHT[0] * FLOOR, y - LIGHT[1] * FLOOR) / FLOOR
    cells = np.minimum(*(np.abs((c / CELL + 0.5) % 1.0 - 0.5) for c in (x + CELL / 2, y + CELL / 2))) * CELL
    shade -= 0.035 * _cover(cells - 0.5, scale)
    floor = np.array(MAPLE, np.float32) * np.clip(shade, 0, 1.02)[..., None]
    _blend(image, np.clip(floor, 0, 255), _cover(inside, scale))


def _draw_hole(image: np.ndarray, dx: np.ndarray, dy: np.ndarray, scale: float) -> None:
    away = np.hypot(dx, dy)
    facing = (dx * LIGHT[0] + dy * LIGHT[1]) / np.maximum(away, 1.0)
    lip = np.array(MAPLE, np.float32) * (0.78 - 0.34 * facing)[..., None]  # slopes inwards: lit on the far side
    _blend(image, np.clip(lip, 0, 255), _cover(away - HOLE_RADIUS - 2.0, scale))
    depth = np.clip(0.5 - 0.5 * facing * away / HOLE_RADIUS, 0, 1)[..., None]
    _blend(image, np.array(INK, np.float32) * (0.5 + 1.3 * depth), _cover(away - HOLE_RADIUS, scale))


def _draw_constraints(image: np.ndarray, x: np.ndarray, y: np.ndarray, margin: np.ndarray, scale: float) -> None:
    """Tint and hatch the forbidden region and draw its rim as a line. Nothing is drawn outside the floor."""
    floor = _cover(_box(x, y, FLOOR, 2.0), scale)
    hatch = np.abs((x + y) / 8.0 % 1.0 - 0.5) * 8.0 / np.sqrt(2.0)
    inside = _cover(margin, scale) * floor
    _blend(image, RED, inside * (0.15 + 0.13 * _cover(hatch - 0.55, scale)))
    _blend(image, RED, _cover(np.abs(margin) - 1.0, scale) * floor * 0.9)


def _draw_segment(canvas: np.ndarray, scale: float, a: tuple[float, float], b: tuple[float, float]) -> None:
    middle, reach = ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2), max(abs(a[0] - b[0]), abs(a[1] - b[1])) / 2 + 4
    view, dx, dy = _patch(canvas, scale, middle, reach)
    ux, uy = b[0] - a[0], b[1] - a[1]
    px, py = dx + ux / 2, dy + uy / 2
    share = np.clip((px * ux + py * uy) / max(ux * ux + uy * uy, 1e-6), 0, 1)
    _blend(view, NAVY, _cover(np.hypot(px - share * ux, py - share * uy) - 1.1, scale) * 0.85)


def _draw_state(canvas: np.ndarray, scale: float, at: tuple[float, float, bool], first: bool = False) -> None:
    radius = 4.6 if first or not at[2] else 3.0
    view, dx, dy = _patch(canvas, scale, at[:2], radius + 3)
    away, colour = np.hypot(dx, dy), NAVY if at[2] else RED
    _blend(view, WHITE, _cover(away - radius - 0.9, scale))
    _blend(view, colour, _cover(away - radius, scale))
    if first:  # a ring marks the start of the episode
        _blend(view, WHITE, _cover(away - radius + 2.0, scale))


def _draw_ball(image: np.ndarray, tray: Tray, position: np.ndarray, tilt: np.ndarray, allowed: bool) -> None:
    """Draw a glass marble. The trail shows through it. In the hole it is smaller and darker."""
    fallen = np.hypot(*(position - tray.hole)) <= HOLE_RADIUS
    centre, radius = (tray.hole, 0.88 * HOLE_RADIUS) if fallen else (position, BALL)
    if not fallen:
        downhill = np.array([-tilt[1], tilt[0]], np.float32)
        shadow = centre - 9.0 * LIGHT[:2] + 1.7 * downhill  # the tray tilts, the light does not
        view, dx, dy = _patch(image, tray.scale, shadow, radius + 8)
        dark = np.clip((radius + 5 - np.hypot(dx, dy)) / 11.0, 0, 1)
        _blend(view, INK, 0.42 * dark * dark * (3 - 2 * dark))
    view, dx, dy = _patch(image, tray.scale, centre, radius + 2)
    nx, ny = dx / radius, dy / radius
    flat = np.minimum(nx * nx + ny * ny, 1.0)
    normal_light = nx * LIGHT[0] + ny * LIGHT[1] + np.sqrt(1 - flat) * LIGHT[2]
    through = np.clip(0.5 - 0.75 * (nx * LIGHT[0] + ny * LIGHT[1]), 0, 1)  # light gathers on the far side
    body = np.array(DEEP, np.float32) + (np.array(GLASS, np.float32) - DEEP) * (0.25 + 0.75 * through)[..., None]
    body = body * (0.72 + 0.38 * np.clip(normal_light, 0, 1))[..., None]
    if fallen:
        body *= 0.62
    opacity = 1.0 if fallen else 0.62 + 0.38 * flat**1.5
    disc = _cover(np.hypot(dx, dy) - radius, tray.scale)
    _blend(view, np.clip(body, 0, 255), disc * opacity)
    shine = np.clip(normal_light, 0, 1) ** 38
    _blend(view, WHITE, disc * shine * (0.5 if fallen else 0.95))
    # A white dot marks the ball's centre, to which the rules apply.
    _blend(view, WHITE, _cover(np.hypot(dx, dy) - (2.6 if allowed else 4.2), tray.scale))
    _blend(view, NAVY if allowed else RED, _cover(np.hypot(dx, dy) - (1.5 if allowed else 3.1), tray.scale))


def _draw_gauge(image: np.ndarray, scale: float, tilt: np.ndarray) -> None:
    """The tilt gauge in the upper right corner. Its dot shows the direction and size of the pull, in ticks."""
    view, dx, dy = _patch(image, scale, (5 * CELL, 5 * CELL), 20.0)
    plate = _box(dx, dy, 17.0, 4.5)
    _blend(view, (58, 40, 28), _cover(plate, scale))
    _blend(view, (252, 247, 236), _cover(plate + 1.6, scale))
    cross = np.minimum(np.abs(dx), np.abs(dy))
    _blend(view, WOOD, _cover(cross - 0.4, scale) * _cover(plate + 3.5, scale) * 0.55)
    step = 11.5 / MAX_TICKS
    to = (-float(tilt[1]) * step, float(tilt[0]) * step)
    share = np.clip((dx * to[0] + dy * to[1]) / max(to[0] ** 2 + to[1] ** 2, 1e-6), 0, 1)
    _blend(view, DEEP, _cover(np.hypot(dx - share * to[0], dy - share * to[1]) - 1.0, scale))
    _blend(view, DEEP, _cover(np.hypot(dx - to[0], dy - to[1]) - 3.6, scale))


def _pixels(top: int, bottom: int, left: int, right: int, scale: float, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Tray coordinates of pixel centres, as a row of x and a column of y."""
    x = (np.arange(left, right, dtype=np.float32) + 0.5 - size / 2) / scale
    y = (size / 2 - np.arange(top, bottom, dtype=np.float32) - 0.5) / scale
    return x[None, :].astype(np.float32), y[:, None].astype(np.float32)


def _patch(image: np.ndarray, scale: float, centre: Any, reach: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The part of the image within `reach` of `centre`, and the offsets of its pixels from `centre`."""
    size = len(image)
    cx, cy = float(centre[0]), float(centre[1])
    left, right = (int(np.clip(size / 2 + scale * (cx + s * reach) + 0.5, 0, size)) for s in (-1, 1))
    top, bottom = (int(np.clip(size / 2 - scale * (cy + s * reach) + 0.5, 0, size)) for s in (1, -1))
    x, y = _pixels(top, bottom, left, right, scale, size)
    return image[top:bottom, left:right], x - np.float32(cx), y - np.float32(cy)


def _box(x: np.ndarray, y: np.ndarray, half: float, corner: float) -> np.ndarray:
    """Signed distance to a centred square with rounded corners."""
    dx, dy = np.abs(x) - (half - corner), np.abs(y) - (half - corner)
    return np.hypot(np.maximum(dx, 0), np.maximum(dy, 0)) + np.minimum(np.maximum(dx, dy), 0) - corner


def _cover(distance: np.ndarray, scale: float) -> np.ndarray:
    """The share of a pixel inside a shape, from the signed distance."""
    return np.clip(0.5 - distance * scale, 0, 1)


def _blend(view: np.ndarray, colour: Any, alpha: np.ndarray) -> None:
    mixed = view + (np.asarray(colour, np.float32) - view) * alpha[..., None]
    view[...] = mixed if view.dtype == np.float32 else np.rint(mixed)
