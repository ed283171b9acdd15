"""Marble Maze for the page, which draws ball, path and tilt itself. The tray comes as a picture, since a constraint is
known by its margin alone; everything else is numbers."""

from functools import lru_cache
from typing import Any

import gymnasium as gym
import jax
import numpy as np

from scopil.envs.jax_env import CompiledEnv, find_compiled
from scopil.envs.marble_maze import MarbleMaze, MarbleParams
from scopil.envs.marble_maze.constraints import min_margin
from scopil.envs.marble_maze.physics import HOLE_RADIUS, MAX_TICKS, REACH
from scopil.envs.marble_maze.render import BALL, HALF, draw_tray
from scopil.images import png_bytes

PIXELS = 720  # a side of the picture
_ROWS = 256  # positions judged in one compiled call


def tray_of(env: gym.Env | CompiledEnv | Any) -> MarbleParams | None:
    """The tray of a Marble Maze; None for any other environment."""
    compiled = find_compiled(env) if isinstance(env, gym.Env) else env
    maze = getattr(compiled, "env", None)
    return compiled.params if isinstance(compiled, CompiledEnv) and isinstance(maze, MarbleMaze) else None


def described(params: MarbleParams) -> tuple[dict[str, Any], bytes]:
    """Sizes in px of the tray, and its picture as PNG."""
    sizes = {"half": HALF, "reach": REACH, "ball": BALL, "hole_radius": HOLE_RADIUS}
    return sizes | {"hole": list(map(float, params.hole))}, png_bytes(draw_tray(params, PIXELS))


def positions(observations: np.ndarray) -> np.ndarray:
    return observations[..., :2].astype(np.float64) * REACH


def tilts(observations: np.ndarray) -> np.ndarray:
    """Ticks about X and Y."""
    return observations[..., 4:6].astype(np.float64) * MAX_TICKS


def broken(params: MarbleParams, places: np.ndarray) -> np.ndarray:
    """Which of the positions break a rule of the tray."""
    padded = np.zeros((-(-len(places) // _ROWS) * _ROWS, 2), np.float32)
    padded[: len(places)] = places
    judge = _judge(params)
    found = [np.asarray(judge(padded[i : i + _ROWS])) for i in range(0, len(padded), _ROWS)]
    return np.concatenate(found)[: len(places)]


@lru_cache(maxsize=8)
def _judge(params: MarbleParams) -> Any:
    return jax.jit(jax.vmap(lambda place: min_margin(params.constraints, place) < 0))
