"""Games drawn on the tray: the right states in the right colours, and laws of any kind."""

import sys

import numpy as np
import pytest

from scopil.errors import ScopilError
from scopil.evaluate.games import Game
from scopil.report.paths import GREEN, RED, draw_paths, save_paths
from scopil.studies.marble_maze import Circle, HorizontalLine, MarbleParams, Rectangle

colors = pytest.importorskip("matplotlib.colors")
PARAMS = MarbleParams((Circle(50.0, 60.0, 30.0),))
FORBIDDEN = colors.to_rgba("#f7d6d2")


@pytest.fixture
def axes():
    from matplotlib.figure import Figure

    return Figure(figsize=(4, 4), dpi=100).add_axes((0, 0, 1, 1))


def game(position, cost) -> Game:
    steps = len(position) - 1
    return Game(
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
    dots = [
        c for c in axes.collections if len(c.get_facecolor()) and tuple(c.get_facecolor()[0][:3]) == wanted
    ]
    return np.concatenate([np.asarray(c.get_offsets()) for c in dots])


def test_states_are_drawn_where_they_were_in_the_colour_of_their_law(axes):
    draw_paths(
        axes, PARAMS, [game([(50, 60), (90, 10), (100, 0)], [1, 0, 0]), game([(0, 0), (45, 60)], [0, 1])]
    )
    np.testing.assert_array_equal(drawn(axes, GREEN), [(90, 10), (100, 0), (0, 0)])
    np.testing.assert_array_equal(drawn(axes, RED), [(50, 60), (45, 60)])


def colour_at(axes, x, y) -> tuple:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(axes.figure)
    canvas.draw()
    column, row = axes.transData.transform((x, y))
    image = np.asarray(canvas.buffer_rgba())
    return tuple(image[round(image.shape[0] - 1 - row), round(column)] / 255)


@pytest.mark.parametrize(
    ("law", "inside", "outside"),
    [
        (Circle(50.0, 60.0, 30.0), (50, 60), (50, 100)),
        (HorizontalLine(-160.0), (0, -175), (0, -145)),
        (Rectangle(50.0, 60.0, 40.0, 10.0), (80, 60), (50, 80)),
    ],
)
def test_the_unlawful_region_is_tinted_whatever_its_kind(law, inside, outside, axes):
    draw_paths(axes, MarbleParams((law,)), [])
    assert colour_at(axes, *inside) == pytest.approx(FORBIDDEN, abs=0.01)
    assert colour_at(axes, *outside) != pytest.approx(FORBIDDEN, abs=0.01)


def test_a_tray_without_laws_is_drawn(axes):
    draw_paths(axes, MarbleParams(), [])
    assert colour_at(axes, 50, 60) != pytest.approx(FORBIDDEN, abs=0.01)


def test_the_ending_chooses_the_format(tmp_path):
    one = [game([(0, 0), (45, 60)], [0, 1])]
    for name, magic in (("a.png", b"\x89PNG"), ("a.pdf", b"%PDF"), ("a.SVG", b"<?xml")):
        save_paths(tmp_path / name, PARAMS, one, title="one game")
        assert (tmp_path / name).read_bytes().startswith(magic)
    with pytest.raises(ScopilError, match=r"a\.bmp: pictures end in"):
        save_paths(tmp_path / "a.bmp", PARAMS, one)


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ScopilError, match=r'pip install "scopil\[plots\]"'):
        save_paths(tmp_path / "a.png", PARAMS, [])
