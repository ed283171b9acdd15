"""Properties of whole episodes, each driven through one compiled scan."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import chisquare

from reference.marble_numpy import CELL, HOLE, LIMIT, breaks_setting
from scopil.data.dataset import Episode
from scopil.envs.jax_env import CompiledEnv
from scopil.envs.marble_maze import SETTINGS, Circle, MarbleMaze, MarbleParams
from scopil.errors import EnvError

LENGTH = 210  # ten more than the limit
WALL = float(np.float32(LIMIT))
place = st.floats(-WALL, WALL, width=32)
# Actions as (which, how long) runs, repeated to fill an episode: they reach the walls and shrink well.
runs = st.lists(st.tuples(st.integers(0, 8), st.integers(1, 40)), min_size=1, max_size=30)


def actions_of(spells: list[tuple[int, int]]) -> jax.Array:
    sequence = np.repeat([a for a, _ in spells], [n for _, n in spells])
    return jnp.asarray(np.resize(sequence, LENGTH), jnp.int32)


@cache
def make_play(setting: str):
    """Compiled on first use: one function per setting, and one for a tray without rules."""
    params = SETTINGS.get(setting, MarbleParams())
    env = CompiledEnv(MarbleMaze(params))

    @jax.jit
    def play(inner, actions):
        """States, transitions and infos of an episode, played on after its end."""

        def body(state, row):
            after, t = env.advance(state, *row)
            return after, (after.inner, t, env.env.transition_info(state.inner, row[0], after.inner, env.params))

        keys = jax.random.split(jax.random.key(5), LENGTH)
        return jax.lax.scan(body, env.begin(inner, jax.random.key(6)), (actions, keys))[1]

    return lambda inner, actions: jax.device_get(play(inner, actions))


INITIAL = jax.jit(MarbleMaze().initial)  # compiled on first use


def start_at(x: float, y: float):
    assume(np.hypot(x - HOLE[0], y - HOLE[1]) > CELL / 3 + 1e-3)
    return MarbleMaze().initial_at((x, y))


@given(place, place, runs)
def test_ball_tilt_reward_and_observation_stay_in_range(x, y, spells):
    states, t, _ = make_play("simple")(start_at(x, y), actions_of(spells))
    assert np.abs(states.position).max() <= WALL
    assert np.abs(states.tilt).max() <= 5
    assert np.abs(states.tilt_velocity).max() <= 1
    assert not states.tilt_velocity[np.abs(states.tilt) == 5].any()
    assert t.reward.min() >= -1
    assert t.reward.max() <= 0
    assert np.abs(t.next_obs).max() <= 1
    assert MarbleMaze.observation_space.contains(t.next_obs[-1])


@given(place, place, runs)
def test_an_episode_ends_by_the_hole_or_by_the_clock(x, y, spells):
    _, t, info = make_play("simple")(start_at(x, y), actions_of(spells))
    ended = t.terminated | t.truncated
    last = int(np.argmax(ended))
    assert ended.any()
    assert last < 200
    assert t.terminated[last] != t.truncated[last]
    assert t.truncated[last] == (last == 199) or t.terminated[last]
    assert info["raw_reward"][last] == (10 if t.terminated[last] else -5)
    assert t.reward[last] == (0 if t.terminated[last] else -1)
    assert (info["raw_reward"][:last] < 0).all()
    assert (info["raw_reward"][:last] >= -1).all()
    np.testing.assert_allclose(t.reward, (info["raw_reward"] - 10) / 15, atol=1e-6)


@pytest.mark.parametrize("setting", list(SETTINGS))
@given(place, place, runs)
def test_costs_equal_plain_geometry(setting, x, y, spells):
    states, _, info = make_play(setting)(start_at(x, y), actions_of(spells))
    points = states.position.astype(np.float64)
    near = breaks_setting(points + 1e-3, setting), breaks_setting(points - 1e-3, setting)
    for rule, broken in breaks_setting(points, setting).items():
        sure = (near[0][rule] == broken) & (near[1][rule] == broken)  # not within float32 of a border
        np.testing.assert_array_equal(info[f"cost_{rule}"][sure], broken[sure])
    by_rule = [v for k, v in info.items() if k.startswith("cost_")]
    np.testing.assert_array_equal(info["cost"], np.max(by_rule, axis=0))


@given(place, place, runs)
def test_rules_change_neither_reward_nor_observation_nor_motion(x, y, spells):
    start, actions = start_at(x, y), actions_of(spells)
    without_rules = make_play("without rules")(start, actions)
    for setting in SETTINGS:
        jax.tree.map(np.testing.assert_array_equal, make_play(setting)(start, actions)[:2], without_rules[:2])


@pytest.mark.parametrize("setting", ["simple", "multiple"])
def test_starts_are_allowed_far_from_the_hole_and_uniform(setting, getkey):
    count, cells = 20_000, 8
    env = MarbleMaze(SETTINGS[setting])
    starts = jax.jit(jax.vmap(env.initial))(jax.random.split(getkey(), count))
    assert not np.asarray(starts.velocity).any()
    assert not np.asarray(starts.tilt).any()
    points = np.asarray(starts.position, np.float64)
    assert np.linalg.norm(points - HOLE, axis=1).min() >= 40 - 1e-4
    assert not np.any(list(breaks_setting(points + 0.0, setting).values()))

    # Expected shares: how much of each cell of a coarse grid is allowed, by a fine one.
    axis = (np.arange(1600) + 0.5) / 1600 * 2 * LIMIT - LIMIT
    fine = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    fit = ~np.any(list(breaks_setting(fine, setting).values()), axis=0)
    fit &= np.linalg.norm(fine - HOLE, axis=1) >= 40
    edges = np.linspace(-LIMIT, LIMIT, cells + 1)
    share = np.histogram2d(*fine[fit].T, bins=(edges, edges))[0].ravel() / fit.sum()
    seen = np.histogram2d(*points.T, bins=(edges, edges))[0].ravel()
    used = share > 0
    assert not seen[~used].any()
    assert chisquare(seen[used], share[used] * count).pvalue > 1e-3


def test_starts_on_the_tray_are_taken_and_others_refused():
    for corner in ((LIMIT, LIMIT), (-LIMIT, LIMIT), (-50.0, -60.0)):
        np.testing.assert_allclose(MarbleMaze().initial_at(corner).position, corner, rtol=1e-6)
    for start in [(0.0,), (1.0, 2.0, 3.0), (500.0, 0.0), (np.nan, 0.0), 3.0]:
        with pytest.raises(EnvError, match="not on the tray"):
            MarbleMaze().initial_at(start)
    with pytest.raises(EnvError, match="in the hole"):
        MarbleMaze().initial_at((-144.0, -140.0))
    MarbleMaze(MarbleParams((Circle(0.0, 0.0, 150.0),)))  # the corners are left
    with pytest.raises(EnvError, match="no allowed start"):
        MarbleMaze(MarbleParams((Circle(0.0, 0.0, 260.0),)))


def test_the_path_of_the_ball_is_found_from_observations():
    positions = np.array([(0.0, 0.0), (3.0, 4.0), (3.0, 16.0)])
    obs = np.zeros((3, 8), np.float32)
    obs[:, :2] = positions / LIMIT
    seen = Episode(observations=obs, actions=np.zeros(2, int), terminated=False, truncated=True)
    assert MarbleMaze().measures(seen) == {"length": pytest.approx(17.0, rel=1e-5), "reached": 0.0}
