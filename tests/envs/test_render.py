"""Rendered pixels agree with the geometry of the state."""

import sys
from typing import Any, ClassVar, cast

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest

import scopil  # noqa: F401  (registers the ids)
from scopil.envs.marble_maze import Circle, Constraint, MarbleMaze, MarbleParams
from scopil.envs.marble_maze.render import HALF, draw_tray
from scopil.envs.window import Window
from scopil.errors import ScopilError

SIMPLE = "scopil/MarbleMaze-Simple-v0"
UP, DOWN, LEFT = 3, 6, 1


def pixel(image, x, y):
    size = len(image)
    scale = size / (2 * HALF)
    return image[int(size / 2 - y * scale), int(size / 2 + x * scale)].astype(int)


def redness(colour):
    return colour[0] - (colour[1] + colour[2]) / 2


def test_only_the_forbidden_side_is_tinted():
    bare = draw_tray(MarbleParams(()))
    ruled = draw_tray(MarbleParams((Circle(40.0, 30.0, 50.0),)))
    size = len(bare)
    row, column = np.mgrid[:size, :size]
    x = (column + 0.5 - size / 2) * 2 * HALF / size
    y = (size / 2 - row - 0.5) * 2 * HALF / size
    inside = (x - 40) ** 2 + (y - 30) ** 2 < 50**2
    rim = np.abs(np.hypot(x - 40, y - 30) - 50) < 3
    changed = (bare != ruled).any(axis=-1)
    assert changed[inside].all()
    assert not changed[~inside & ~rim].any()
    assert redness(pixel(ruled, 90, 30)) > 100  # its rim is a red line
    assert 10 < redness(pixel(ruled, 40, 30)) < 100
    other = draw_tray(MarbleParams((Circle(-50.0, 0.0, 20.0),)))  # of the same structure
    assert redness(pixel(other, -50, 0)) > redness(pixel(ruled, -50, 0)) + 10


class Diamond(Constraint):
    """A shape that the renderer does not know, with an array for a parameter."""

    rule: ClassVar[str] = "diamond"
    centre: jnp.ndarray
    size: float

    def margin(self, position):
        return (jnp.abs(position - self.centre).sum() - self.size) / jnp.sqrt(2.0)


def test_a_new_shape_of_constraint_is_drawn_and_judged():
    params = MarbleParams((Diamond(jnp.array([20.0, 20.0]), 60.0),))
    env = MarbleMaze(params)
    image = draw_tray(params)
    assert redness(pixel(image, 20, 20)) > redness(pixel(image, 75, 75)) + 10
    assert redness(pixel(image, 50, 50)) > 100  # |30| + |30| = 60: on the rim
    state = env.render_init(params)
    state, _ = env.render_image(env.initial_at((20.0, 20.0)), state, params)
    state, _ = env.render_image(env.initial_at((70.0, 70.0)), state, params)
    assert [allowed for *_, allowed in state.trail] == [False, True]


def test_trail_holds_every_state_and_shows_violations_in_red():
    env: Any = gym.make(SIMPLE, render_mode="rgb_array").unwrapped
    _, info = env.reset(seed=0, options={"start": (-50.0, 10.0)})
    visited, costs = [info["position"]], [info["cost"]]
    for action in [DOWN] * 2 + [0] * 6 + [LEFT] * 4:
        *_, info = env.step(action)
        visited.append(info["position"])
        costs.append(info["cost"])
    trail = np.array([(x, y) for x, y, _ in env._render_state.trail])
    np.testing.assert_array_equal(trail, np.stack(visited))
    assert [not allowed for *_, allowed in env._render_state.trail] == [bool(c) for c in costs]
    image = env.render()
    clear = [i for i, p in enumerate(visited) if i > 0 and np.hypot(*(p - visited[-1])) > 40]
    assert {bool(costs[i]) for i in clear} == {True, False}, "the episode must show both"
    for i in clear:
        colour = pixel(image, *visited[i])
        assert (redness(colour) > 100) == bool(costs[i]), f"state {i} at {visited[i]} is {colour}"
    env.reset(seed=0)
    assert len(env._render_state.trail) == 1, "a new episode has a new trail"


def test_ball_moves_and_sinks_and_the_gauge_leans():
    env = MarbleMaze()
    here = env.initial_at((100.0, 100.0))
    image = env.render_image(here, env.render_init())[1]
    tray = draw_tray(env.get_default_params())
    assert image.shape == (480, 480, 3)
    assert image.dtype == np.uint8
    assert np.abs(pixel(image, 100, 115) - pixel(tray, 100, 115)).max() > 40
    assert np.abs(pixel(image, 0, 100) - pixel(tray, 0, 100)).max() == 0
    leaning = here._replace(tilt=jnp.array([5, -5], jnp.int32))  # draws the ball to +x, +y
    corner = image[:44, -44:].astype(int)
    tilted = env.render_image(leaning, env.render_init())[1][:44, -44:].astype(int)
    darker = np.argwhere((corner - tilted).sum(axis=-1) > 200) - 21.5
    assert darker[:, 0].mean() < -3, "the dot goes up"
    assert darker[:, 1].mean() > 3, "and to the right"
    fallen = here._replace(position=jnp.array([-140.0, -150.0]))
    sunk = env.render_image(fallen, env.render_init())[1]
    assert np.abs(pixel(sunk, -120, -150) - pixel(tray, -120, -150)).max() == 0, "no full-size ball over the rim"
    assert np.abs(pixel(sunk, -144, -136) - pixel(tray, -144, -136)).max() > 20


def test_frames_are_pure_and_any_size():
    env = MarbleMaze()
    first = env.render_init(size=200)
    state = env.initial_at((50.0, 50.0))
    one, image = env.render_image(state, first)
    again, same = env.render_image(state, first)
    np.testing.assert_array_equal(image, same)
    assert len(first.trail) == 0
    assert len(one.trail) == len(again.trail) == 1
    assert image.shape == (200, 200, 3)


def test_human_mode_opens_a_window_and_survives_its_closing():
    pygame = pytest.importorskip("pygame")
    env = gym.make(SIMPLE, render_mode="human")
    env.reset(seed=0)
    assert env.render() is None
    assert pygame.display.get_surface().get_size() == (480, 480)
    shown = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
    np.testing.assert_array_equal(shown, cast(Any, env.unwrapped)._image)
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    env.step(0)
    assert pygame.display.get_surface() is None
    env.step(0)
    env.close()


def test_a_missing_library_or_screen_raises(monkeypatch):
    pygame = pytest.importorskip("pygame")
    image = np.zeros((480, 480, 3), np.uint8)
    pygame.display.quit()
    with monkeypatch.context() as patch:
        patch.setenv("SDL_VIDEODRIVER", "no-such-driver")
        with pytest.raises(ScopilError, match="cannot open a window"):
            Window("test", 12).draw(image)
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(ScopilError, match=r'pip install "scopil\[play\]"'):
        Window("test", 12)
