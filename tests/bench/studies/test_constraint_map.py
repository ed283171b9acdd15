"""The learned cost over the tray: evaluated at the right places, drawn in the right colours."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scopil.algos import icrl
from scopil.algos.base import Spaces
from scopil.envs.jax_env import CompiledEnv
from scopil.envs.marble_maze import Circle, MarbleMaze, MarbleParams
from scopil.envs.marble_maze.physics import REACH
from scopil.envs.marble_maze.plots import cost_grid, draw_grid
from scopil.eval.pictures import save_costs
from scopil.nn.heads import DiscreteHead

PARAMS = MarbleParams((Circle(50.0, 60.0, 30.0),))


@pytest.fixture(scope="module")
def learner() -> Any:
    cfg = icrl.Config(hidden=(4,), constraint_hidden=(5,))
    return icrl.init(jax.random.key(0), Spaces(8, DiscreteHead(9)), cfg)


def test_the_grid_is_the_cost_of_a_ball_at_rest(learner):
    grid = cost_grid(partial(icrl.cost, learner), PARAMS, points=5)
    assert grid.shape == (5, 5, 9)
    env, ticks = MarbleMaze(PARAMS), np.linspace(-REACH, REACH, 5)
    for row, column, action in ((0, 0, 0), (1, 4, 3), (4, 2, 8)):
        obs = env.observation(env.initial_at((ticks[column], ticks[row])))
        want = icrl.cost(learner, obs, jnp.int32(action))
        assert grid[row, column, action] == pytest.approx(float(want), rel=1e-5)
    assert np.ptp(grid[..., 0]) > 1e-4  # it differs from place to place …
    assert np.ptp(grid[0, 0]) > 1e-4  # … and from action to action


def test_costly_places_are_blue_and_the_constraint_is_outlined():
    figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(4, 4), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    costs = np.zeros((11, 11, 9))
    costs[:, :5] = 1.0  # the left half, where no constraint is
    draw_grid(axes, costs, PARAMS)
    canvas = pytest.importorskip("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    canvas.draw()
    image = np.asarray(canvas.buffer_rgba())[..., :3].astype(int)

    def colour(x: float, y: float) -> np.ndarray:
        column, row = axes.transData.transform((x, y))
        return image[image.shape[0] - 1 - int(row), int(column)]

    left, right, inside = colour(-100, 50), colour(100, -50), colour(50, 60)
    assert left[2] > left[0] + 50  # blue
    assert right.min() > 230  # white
    assert inside.min() > 230  # the map lies over the tint of the constraint
    reddest = max((colour(50 + dx, 60 + 30) for dx in np.linspace(-1, 1, 9)), key=lambda c: int(c[0]) - int(c[2]))
    assert reddest[0] > reddest[2] + 80  # its outline


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_pictures_are_written(ending, learner, tmp_path):
    pytest.importorskip("matplotlib")
    draw = CompiledEnv(MarbleMaze(PARAMS)).drawing("draw_cost")
    assert draw is not None
    save_costs(tmp_path / f"cost.{ending}", draw, {"a title": partial(icrl.cost, learner)})
    assert (tmp_path / f"cost.{ending}").stat().st_size > 2000
