"""Episodes drawn on the tray: the right states in the right colours, and constraints of any kind."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from scopil.data.dataset import Episode
from scopil.envs.jax_env import CompiledEnv
from scopil.envs.marble_maze import Circle, HorizontalLine, MarbleMaze, MarbleParams, Rectangle
from scopil.envs.marble_maze.plots import GREEN, RED, draw_episodes
from scopil.errors import ScopilError
from scopil.eval.pictures import save_episodes
from toys import toy

colors = pytest.importorskip("matplotlib.colors")
PARAMS = MarbleParams((Circle(50.0, 60.0, 30.0),))
FORBIDDEN = colors.to_rgba("#f7d6d2")


@pytest.fixture
def axes():
    from matplotlib.figure import Figure

    return Figure(figsize=(4, 4), dpi=100).add_axes((0, 0, 1, 1))


def episode(position, cost) -> Episode:
    steps = len(position) - 1
    return Episode(
        observations=np.zeros((steps + 1, 8), np.float32),
        actions=np.zeros(steps, np.int32),
        rewards=np.zeros(steps, np.float32),
        terminated=True,
        truncated=False,
        info={"position": np.array(position, np.float32), "cost": np.array(cost, np.float32)},
    )


def drawn(axes, colour) -> np.ndarray:
    """Where dots of a colour lie."""
    wanted = colors.to_rgb(colour)
    dots = [c for c in axes.collections if len(c.get_facecolor()) and tuple(c.get_facecolor()[0][:3]) == wanted]
    return np.concatenate([np.asarray(c.get_offsets()) for c in dots])


def test_states_are_drawn_where_they_were_in_the_right_colour(axes):
    episodes = [episode([(50, 60), (90, 10), (100, 0)], [1, 0, 0]), episode([(0, 0), (45, 60)], [0, 1])]
    draw_episodes(axes, episodes, PARAMS)
    np.testing.assert_array_equal(drawn(axes, GREEN), [(90, 10), (100, 0), (0, 0)])
    np.testing.assert_array_equal(drawn(axes, RED), [(50, 60), (45, 60)])


def test_rules_that_are_named_alone_are_drawn_too(axes):
    one = episode([(50, 60), (90, 10), (100, 0)], [1, 0, 0])
    by_rule = {"cost_hot": np.array([0, 0, 1.0]), "cost_cold": np.array([0, 1.0, 0])}
    draw_episodes(axes, [replace(one, info={"position": one.info["position"]} | by_rule)], PARAMS)
    np.testing.assert_array_equal(drawn(axes, RED), [(90, 10), (100, 0)])


def colour_at(axes, x, y) -> tuple:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(axes.figure)
    canvas.draw()
    column, row = axes.transData.transform((x, y))
    image = np.asarray(canvas.buffer_rgba())
    return tuple(image[round(image.shape[0] - 1 - row), round(column)] / 255)


@pytest.mark.parametrize(
    ("constraint", "inside", "outside"),
    [
        (Circle(50.0, 60.0, 30.0), (50, 60), (50, 100)),
        (HorizontalLine(-160.0), (0, -175), (0, -145)),
        (Rectangle(50.0, 60.0, 40.0, 10.0), (80, 60), (50, 80)),
    ],
)
def test_the_forbidden_region_is_tinted_whatever_its_shape(constraint, inside, outside, axes):
    draw_episodes(axes, [], MarbleParams((constraint,)))
    assert colour_at(axes, *inside) == pytest.approx(FORBIDDEN, abs=0.01)
    assert colour_at(axes, *outside) != pytest.approx(FORBIDDEN, abs=0.01)


def test_a_tray_without_constraints_is_drawn(axes):
    draw_episodes(axes, [], MarbleParams())
    assert colour_at(axes, 50, 60) != pytest.approx(FORBIDDEN, abs=0.01)


@pytest.fixture(scope="module")
def env() -> CompiledEnv:
    return CompiledEnv(MarbleMaze(PARAMS))


def test_the_ending_chooses_the_format(env, tmp_path):
    one = {"one episode": [episode([(0, 0), (45, 60)], [0, 1])]}
    for name, magic in (("a.png", b"\x89PNG"), ("a.pdf", b"%PDF"), ("a.SVG", b"<?xml")):
        save_episodes(tmp_path / name, env, one)
        assert (tmp_path / name).read_bytes().startswith(magic)
    with pytest.raises(ScopilError, match=r"a\.bmp: pictures end in"):
        save_episodes(tmp_path / "a.bmp", env, one)


def test_an_environment_that_cannot_draw_is_refused(tmp_path):
    with pytest.raises(ScopilError, match="has no method draw_episodes"):
        save_episodes(tmp_path / "a.png", toy(continuous=False), {})


def test_without_matplotlib_the_extra_is_named(env, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ScopilError, match=r'pip install "scopil\[plots\]"'):
        save_episodes(tmp_path / "a.png", env, {"": []})
