"""Costs against plain geometry, the settings against the table of the rules, and a rule made outside the package."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.marble_numpy import LIMIT, breaks_line, breaks_setting, inside_circle, inside_rectangle
from scopil.envs.as_gym import FunctionalEnv
from scopil.envs.jax_env import CompiledEnv
from scopil.envs.marble_maze import SETTINGS, Circle, HorizontalLine, MarbleMaze, MarbleParams, Rectangle, VerticalLine
from scopil.envs.marble_maze.constraints import Constraint, costs, min_margin, rule_names

EDGE = 1e-3  # px; nearer to a border than this, float32 and float64 may disagree
WALL = float(np.float32(LIMIT))
place = st.floats(-WALL, WALL, width=32)
size = st.floats(0.5, 100, width=32)
side = st.sampled_from([-1.0, 1.0])

POINTS = np.random.default_rng(3).uniform(-LIMIT, LIMIT, (4000, 2)).astype(np.float32)


@jax.jit
def margins(constraint: Constraint, points: jax.Array) -> jax.Array:
    return jax.vmap(constraint.margin)(points)


def check(constraint: Constraint, broken: np.ndarray) -> None:
    margin = np.asarray(margins(constraint, POINTS))
    sure = np.abs(margin) > EDGE
    assert sure.mean() > 0.99
    np.testing.assert_array_equal(margin[sure] < 0, broken[sure])


@given(place, side)
def test_lines_are_broken_beyond_them(at, allowed):
    points = POINTS.astype(np.float64)
    check(HorizontalLine(at, allowed), breaks_line(points[:, 1], at, allowed > 0))
    check(VerticalLine(at, allowed), breaks_line(points[:, 0], at, allowed > 0))


@given(place, place, size)
def test_circles_are_broken_inside(x, y, radius):
    check(Circle(x, y, radius), inside_circle(POINTS.astype(np.float64), x, y, radius))


@given(place, place, size, size)
def test_rectangles_are_broken_inside(x, y, half_width, half_height):
    broken = inside_rectangle(POINTS.astype(np.float64), x, y, half_width, half_height)
    check(Rectangle(x, y, half_width, half_height), broken)


@pytest.mark.parametrize(
    ("constraint", "point", "margin"),
    [
        (HorizontalLine(-160.0), (0, -150), 10),
        (HorizontalLine(-160.0, -1.0), (0, -150), -10),
        (VerticalLine(20.0), (17, 0), -3),
        (Circle(1.0, 2.0, 10.0), (4, 6), -5),
        (Circle(1.0, 2.0, 10.0), (1, 32), 20),
        (Rectangle(0.0, 0.0, 10.0, 20.0), (13, 24), 5),  # beyond a corner
        (Rectangle(0.0, 0.0, 10.0, 20.0), (0, 26), 6),  # beyond a side
        (Rectangle(0.0, 0.0, 10.0, 20.0), (4, 0), -6),  # inside
    ],
)
def test_margins_are_signed_distances(constraint, point, margin):
    assert float(constraint.margin(jnp.array(point, jnp.float32))) == pytest.approx(margin, abs=1e-4)


@pytest.mark.parametrize("setting", list(SETTINGS))
def test_settings_have_the_geometry_of_the_rules(setting):
    constraints = SETTINGS[setting].constraints
    broken = breaks_setting(POINTS.astype(np.float64), setting)
    assert set(rule_names(constraints)) == set(broken)
    found = jax.vmap(lambda p: costs(constraints, p))(POINTS)
    sure = np.abs(jax.vmap(lambda p: jnp.stack([c.margin(p) for c in constraints]))(POINTS)).min(axis=1) > EDGE
    assert sure.mean() > 0.99
    for rule, expected in broken.items():
        np.testing.assert_array_equal(np.asarray(found[f"cost_{rule}"])[sure], expected[sure])
    np.testing.assert_array_equal(np.asarray(found["cost"])[sure], np.any(list(broken.values()), axis=0)[sure])


def test_a_tray_without_rules_costs_nothing():
    assert {k: float(v) for k, v in costs((), jnp.zeros(2)).items()} == {"cost": 0.0}
    assert float(min_margin((), jnp.zeros(2))) == np.inf


class Diagonal(Constraint):
    """A rule of the reader's own: stay above the line y = x + offset."""

    rule: ClassVar[str] = "diagonal"
    offset: float

    def margin(self, position):
        return (position[1] - position[0] - self.offset) / jnp.sqrt(2.0)


def test_a_rule_made_outside_the_package_works_everywhere():
    constraints = (Diagonal(5.0), Circle(100.0, 120.0, 10.0))
    env = FunctionalEnv(CompiledEnv(MarbleMaze(MarbleParams(constraints))))
    _, info = env.reset(seed=0, options={"start": (0.0, 0.0)})
    assert (info["cost"], info["cost_diagonal"], info["cost_circle"]) == (1.0, 1.0, 0.0)
    _, info = env.reset(options={"start": (0.0, 20.0)})
    assert (info["cost"], info["cost_diagonal"], info["cost_circle"]) == (0.0, 0.0, 0.0)
    *_, info = env.step(2)
    assert set(info) == {"raw_reward", "position", "cost", "cost_diagonal", "cost_circle"}
    starts = [env.reset()[1]["position"] for _ in range(50)]
    assert all(y - x >= 5.0 - EDGE for x, y in starts), "episodes must start where the new rule allows it"


def test_geometry_is_a_parameter():
    """One compiled function serves every radius, and many at once."""
    env = MarbleMaze()
    state = env.initial_at((30.0, 0.0))

    def cost(radius):
        return env.state_info(state, MarbleParams((Circle(0.0, 0.0, radius),)))["cost"]

    assert jax.jit(jax.vmap(cost))(jnp.array([10.0, 29.0, 31.0, 80.0])).tolist() == [0.0, 0.0, 1.0, 1.0]
