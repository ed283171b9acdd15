"""Marble Maze for the web page. The page draws ball, path and tilt from numbers. The tray is sent as a picture, since
a constraint is defined only by its margin."""

from functools import lru_cache
from typing import Any

import gymnasium as gym
import jax
import numpy as np

from scopil.envs.base import BatchEnv
from scopil.envs.jax_env import find_compiled
from scopil.envs.marble_maze import MarbleMaze, MarbleParams
from scopil.envs.marble_maze.constraints import min_margin
from scopil.envs.marble_maze.physics import HOLE_RADIUS, MAX_TICKS, REACH
from scopil.envs.marble_maze.render import BALL, HALF, draw_tray
from scopil_bench.images import png_bytes

PIXELS = 720  # width and height of the picture
_ROWS = 256  # rows in one compiled call


def tray_of(env: gym.Env | BatchEnv) -> MarbleParams | None:
    """The tray of a Marble Maze; None for any other environment."""
    compiled: Any = find_compiled(env) if isinstance(env, gym.Env) else env
    return compiled.params if isinstance(getattr(compiled, "env", None), MarbleMaze) else None


def described(params: MarbleParams) -> tuple[dict[str, Any], bytes]:
    """Sizes of the tray in px, and its picture as PNG."""
    sizes = {"half": HALF, "reach": REACH, "ball": BALL, "hole_radius": HOLE_RADIUS}
    return sizes | {"hole": list(map(float, params.hole))}, png_bytes(draw_tray(params, PIXELS))


def positions(observations: np.ndarray) -> np.ndarray:
    """Ball positions (…, 2) in px."""
    return observations[..., :2].astype(np.float64) * REACH


def tilts(observations: np.ndarray) -> np.ndarray:
    """Tilts (…, 2) about X and Y in ticks."""
    return observations[..., 4:6].astype(np.float64) * MAX_TICKS


def violating(params: MarbleParams, places: np.ndarray) -> np.ndarray:
    """(N,) bool: which of the positions (N, 2) violate a constraint of the tray."""
    violates, padded = _compiled(params), whole_batches(places)
    found = [np.asarray(violates(padded[i : i + _ROWS])) for i in range(0, len(padded), _ROWS)]
    return np.concatenate(found)[: len(places)]


def whole_batches(rows: np.ndarray) -> np.ndarray:
    """The rows (N, …) as float32, padded with zeros to whole batches, so that one compiled program serves any N."""
    return np.pad(rows, ((0, -len(rows) % _ROWS), *[(0, 0)] * (rows.ndim - 1))).astype(np.float32)


@lru_cache(maxsize=8)
def _compiled(params: MarbleParams) -> Any:
    return jax.jit(jax.vmap(lambda place: min_margin(params.constraints, place) < 0))
