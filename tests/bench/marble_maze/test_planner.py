"""The planner is deterministic, keeps its clearance, and passes on the requested side."""

import jax.numpy as jnp
import numpy as np
import pytest

from reference.margins_numpy import margins
from scopil.data import storage
from scopil.envs.marble_maze import SETTINGS, Circle, HorizontalLine, MarbleMaze, MarbleParams
from scopil.envs.marble_maze.physics import ACTIONS, REACH
from scopil.errors import ConfigError, ScopilError
from scopil_bench.marble_maze.generate import RECIPES, draw_starts, generate, goes_both_ways
from scopil_bench.marble_maze.planner import (
    Care,
    Wedge,
    closed_to,
    find_route,
    look_up,
    make_planner,
    passing_side,
    plan,
)

HOLE = (-144.0, -144.0)


@pytest.fixture(scope="module")
def reported():
    return []


@pytest.fixture(scope="module")
def two_episodes(reported):
    return generate("multiple", seed=3, episodes=2, progress=lambda done, wanted: reported.append((done, wanted)))


def test_the_same_seed_gives_the_same_bytes(two_episodes, reported):
    assert reported == [(1, 2), (2, 2)]
    assert storage.to_bytes(generate("multiple", seed=3, episodes=2)) == storage.to_bytes(two_episodes)
    assert not np.array_equal(draw_starts("multiple", 4, 2)[0].start, two_episodes.starts[0])


def test_clearance_holds_once_reached_and_grows_until_then(two_episodes):
    clearance = RECIPES["multiple"].care.clearance
    for episode in two_episodes:
        kept = margins(SETTINGS["multiple"].constraints, episode.observations[:, :2].astype(np.float64) * REACH)
        floor = np.clip(kept[:-1], 0.0, clearance)
        assert np.all(kept[1:] >= floor - 1e-3)
        assert np.all(kept[-1] >= clearance - 1e-3)


def test_at_full_tilt_the_key_stays_pressed(two_episodes):
    tilt, turn = np.round(two_episodes.observations[:, 4:6]), ACTIONS[two_episodes.actions]
    assert (np.abs(tilt) == 1).any()
    assert not ((np.abs(tilt) == 1) & (turn == 0)).any()


def test_two_modes_pairs_starts_and_leaves_two_single():
    episodes = draw_starts("two-modes", seed=0, episodes=40)
    assert [g.side for g in episodes] == ["left", "right"] * 19 + [None, None]
    for left, right in zip(episodes[:38:2], episodes[1:38:2]):
        np.testing.assert_array_equal(left.start, right.start)
        assert goes_both_ways("two-modes", left.start)
    assert not goes_both_ways("two-modes", np.array([-140.0, 100.0], np.float32))  # the circle is not in its way


def test_no_way_is_an_error_that_says_so():
    walled = MarbleParams((HorizontalLine(-100.0),))  # the hole lies beyond the line
    planner = make_planner(walled, Care(clearance=5.0, speed=3.0, comfort=10.0, beam=50, max_steps=30))
    with pytest.raises(ScopilError, match="no way"):
        plan(planner, MarbleMaze(walled).initial_at((0.0, 0.0)))


@pytest.mark.parametrize(("setting", "episodes"), [("nowhere", 2), ("simple", 0)])
def test_a_wrong_request_is_refused(setting, episodes):
    with pytest.raises(ConfigError):
        generate(setting, seed=0, episodes=episodes)


def test_passing_side_follows_the_turn_about_the_centre():
    circle, angles = Circle(-50.0, -60.0, 45.0), np.linspace(np.pi / 4, np.pi * 5 / 4, 12)
    arc = np.stack([-50 + 70 * np.cos(angles), -60 + 70 * np.sin(angles)], -1)  # over the upper left
    assert passing_side(arc, circle, HOLE) == "left"
    mirrored = (arc[:, ::-1] - [-60, -50]) + [-50, -60]  # reflected in the diagonal: under the lower right
    assert passing_side(mirrored, circle, HOLE) == "right"
    assert passing_side(np.array([[-140.0, 100.0], [-142.0, -20.0]]), circle, HOLE) == "left"
    assert passing_side(np.array([[150.0, -140.0], [-20.0, -140.0]]), circle, HOLE) == "right"


def test_wedge_margin_is_the_distance_to_its_sampled_border():
    wedge = Wedge(3.0, -2.0, 0.7, 0.4)
    reach = np.linspace(0, 400, 40001)
    border = np.concatenate(
        [np.stack([3 + reach * np.cos(0.7 + s), -2 + reach * np.sin(0.7 + s)], -1) for s in (-0.4, 0.4)]
    )
    for point in np.random.default_rng(0).uniform(-100, 100, (20, 2)):
        direction = np.arctan2(point[1] + 2, point[0] - 3) - 0.7
        inside = abs((direction + np.pi) % (2 * np.pi) - np.pi) < 0.4
        distance = np.linalg.norm(border - point, axis=1).min() * (-1 if inside else 1)
        assert float(wedge.margin(jnp.asarray(point, jnp.float32))) == pytest.approx(distance, abs=0.02)


def test_the_wedge_closes_the_other_side():
    circle = Circle(-50.0, -60.0, 45.0)
    upper_left, lower_right = np.array([-120.0, 10.0], np.float32), np.array([20.0, -130.0], np.float32)
    for side, closed in (("left", lower_right), ("right", upper_left)):
        wedge = closed_to(side, circle, HOLE)
        assert [bool(wedge.margin(jnp.asarray(p)) < 0) for p in (upper_left, lower_right)] == [
            closed is upper_left,
            closed is lower_right,
        ]


def test_route_on_an_open_tray_is_the_straight_line():
    route = find_route(lambda position: position[0] * 0 + 1.0, HOLE)
    for point in np.random.default_rng(1).uniform(-170, 170, (20, 2)).astype(np.float32):
        distance = np.hypot(*(point - HOLE))
        if distance < 40:
            continue
        at = jnp.asarray(point)
        assert float(look_up(route.distance, at)) == pytest.approx(distance, rel=0.03)
        np.testing.assert_allclose(look_up(route.slope, at), (point - HOLE) / distance, atol=0.08)
