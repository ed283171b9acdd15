"""The compiled physics against its NumPy twin, step by step, and against itself in every way JAX can run it."""

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiling import AS_SHIPPED
from reference.marble_numpy import LIMIT, Episodes
from scopil.envs.base import EnvState
from scopil.envs.jax_env import CompiledEnv
from scopil.envs.marble_maze import MarbleMaze, physics
from scopil.envs.marble_maze.env import at_rest

EPISODES, STEPS = 1000, 200
PX = 0.01  # how far float32 may stray from float64, px
ENV = MarbleMaze()
COMPILED = CompiledEnv(ENV)


class Played(NamedTuple):
    """(T, episodes, …) arrays of what each step gave, of NumPy or JAX."""

    position: Any
    velocity: Any
    tilt: Any
    turning: Any
    obs: Any
    reward: Any
    raw_reward: Any
    terminated: Any
    truncated: Any


def random_episodes(seed: int, held: bool) -> tuple[np.ndarray, np.ndarray]:
    """Starts anywhere outside the hole, and actions: drawn anew every step, or held for one to thirty steps, which
    drives the ball into every wall."""
    rng = np.random.default_rng(seed)
    starts = rng.uniform(-LIMIT, LIMIT, (EPISODES, 2)).astype(np.float32)
    starts[Episodes.at_rest(starts).in_hole()] = 0.0
    actions = rng.integers(9, size=(STEPS, EPISODES))
    hold = held & (rng.random((STEPS, EPISODES)) > 1 / rng.uniform(1, 30, EPISODES))
    for t in range(1, STEPS):
        actions[t] = np.where(hold[t], actions[t - 1], actions[t])
    return starts, actions


def play_numpy(starts: np.ndarray, actions: np.ndarray) -> Played:
    episodes, rows = Episodes.at_rest(starts, np.float32), []
    for action in actions:
        episodes.play(action)
        state = (episodes.ball.copy(), episodes.speed.copy(), episodes.ticks.copy(), episodes.turning.copy())
        results = (
            episodes.observation(),
            episodes.reward(),
            episodes.raw_reward(),
            episodes.terminated(),
            episodes.truncated(),
        )
        rows.append(state + results)
    return Played(*(np.stack(column) for column in zip(*rows)))


def one_step(state: EnvState, action: jax.Array, key: jax.Array) -> tuple[EnvState, Played]:
    after, t = COMPILED.advance(state, action, key)
    inner = after.inner
    raw = ENV.transition_info(state.inner, action, inner)["raw_reward"]
    row = (inner.position, inner.velocity, inner.tilt, inner.tilt_velocity, t.next_obs, t.reward, raw)
    return after, Played(*row, t.terminated, t.truncated)


def begin(start: jax.Array) -> EnvState:
    return COMPILED.begin(at_rest(start), jax.random.key(0))


@partial(jax.jit, compiler_options=AS_SHIPPED)
def play_batch(starts: jax.Array, actions: jax.Array) -> Played:
    def body(state, row):
        action, key = row
        return jax.vmap(one_step)(state, action, jax.random.split(key, len(action)))

    keys = jax.random.split(jax.random.key(1), len(actions))
    return jax.lax.scan(body, jax.vmap(begin)(starts), (actions, keys))[1]


@lru_cache
def both(held: bool) -> tuple[Played, Played, np.ndarray]:
    """The twin's episodes, ours, and (T, episodes) where the twin's episode is still on or just ending."""
    starts, actions = random_episodes(11, held)
    twin = play_numpy(starts, actions)
    ours = jax.tree.map(np.asarray, play_batch(starts, actions))
    over = twin.terminated | twin.truncated
    live = np.cumsum(over, axis=0) - over == 0
    return twin, ours, live


def strayed() -> np.ndarray:
    """Random episodes in which rounding put the ball on the other side of a wall's or the hole's threshold."""
    twin, ours, live = both(held=False)
    apart = np.abs(twin.position - ours.position).max(axis=-1) > PX
    apart |= (twin.terminated != ours.terminated) | (twin.truncated != ours.truncated)
    return (apart & live).any(axis=0)


@pytest.mark.parametrize("held", [False, True])
def test_the_episodes_visit_everything(held):
    twin, _, live = both(held)
    assert live.sum() > 100_000
    assert twin.terminated.any(axis=0).mean() > 0.2, "some episodes must end in the hole"
    assert twin.truncated.any(axis=0).mean() > 0.2, "some must run out of time"
    for axis in (0, 1):
        for side in (-1, 1):
            assert (side * twin.position[..., axis] > LIMIT - 1).any()
            assert (side * twin.tilt[..., axis] == 5).any()
    assert (np.abs(twin.velocity) > 6).any(), "some balls must outrun the observation's range"


def test_positions_agree_in_a_thousand_episodes():
    stray = strayed()
    assert stray.mean() < 0.005, f"{stray.sum()} of {EPISODES} episodes fell on the other side of a threshold"


def test_velocity_tilt_observation_reward_and_ends_agree():
    twin, ours, live = both(held=False)
    keep = live & ~strayed()
    np.testing.assert_array_equal(ours.tilt[keep], twin.tilt[keep])
    np.testing.assert_array_equal(ours.turning[keep], twin.turning[keep])
    np.testing.assert_allclose(ours.obs[keep, :2], twin.obs[keep, :2], atol=PX / LIMIT)
    np.testing.assert_allclose(ours.obs[keep, 4:], twin.obs[keep, 4:], atol=1e-6)
    np.testing.assert_allclose(ours.reward[keep], twin.reward[keep], atol=1e-5)
    np.testing.assert_allclose(ours.raw_reward[keep], twin.raw_reward[keep], atol=1e-4)
    # A ball that meets the wall an update later may differ in speed while it is still within 0.01 px.
    np.testing.assert_allclose(np.quantile(np.abs(ours.velocity - twin.velocity)[keep], 0.9999), 0, atol=1e-4)


@pytest.mark.parametrize("held", [False, True])
def test_every_step_agrees_from_the_same_state(held):
    """The twin steps from each of our states, so that no error adds up: all 200 000 steps, walls included."""
    _, actions = random_episodes(11, held)
    _, ours, _ = both(held)
    rows = (STEPS - 1) * EPISODES
    before = [getattr(ours, name)[:-1].reshape(rows, 2) for name in ("position", "velocity", "tilt", "turning")]
    episodes = Episodes(before[0].astype(np.float64), before[1].astype(np.float64), before[2].copy(), before[3].copy())
    episodes.play(actions[1:].reshape(-1))
    np.testing.assert_array_equal(ours.tilt[1:].reshape(rows, 2), episodes.ticks)
    np.testing.assert_array_equal(ours.turning[1:].reshape(rows, 2), episodes.turning)
    moved = np.abs(ours.position[1:].reshape(rows, 2) - episodes.ball).max(axis=1)
    speed = np.abs(ours.velocity[1:].reshape(rows, 2) - episodes.speed).max(axis=1)
    assert np.mean((moved > 1e-3) | (speed > 1e-4)) < 1e-4  # the rest: steps that rounding tips over a threshold


def test_jitted_equals_eager_equals_vmapped():
    """The same operations in the same order; only fused multiply-adds may differ, in the last bits."""
    starts, actions = random_episodes(12, held=True)
    vmapped = play_batch(starts, actions)
    states = [
        physics.MarbleState(*map(jnp.asarray, row), steps=jnp.int32(7))  # pyright: ignore[reportCallIssue]
        for row in zip(*(np.asarray(field)[39, :10] for field in vmapped[:4]))
    ]
    jitted = jax.jit(ENV.transition)
    for episode, state in enumerate(states):
        action = jnp.int32(actions[40, episode])
        eager_after, jitted_after = ENV.transition(state, action), jitted(state, action)
        for eager, compiled, batched in zip(eager_after[:4], jitted_after[:4], vmapped[:4]):
            np.testing.assert_allclose(eager, compiled, rtol=1e-6, atol=1e-5)
            np.testing.assert_allclose(compiled, batched[40, episode], rtol=1e-6, atol=1e-5)


def test_each_action_rolls_the_ball_its_way():
    """In the paper's order: none/up/down × none/left/right."""
    directions = [(x, y) for y in (0, 1, -1) for x in (0, -1, 1)]
    states = [ENV.transition(ENV.initial_at((0.0, 0.0)), jnp.int32(action)) for action in range(9)]
    assert [tuple(np.sign(state.position)) for state in states] == directions


def test_the_ball_stays_where_it_falls():
    """Five updates from a fast ball just outside: it stops at the update that reaches the hole."""
    hole = jnp.array([-144.0, -144.0])
    state = ENV.initial_at((-144.0, -125.0))._replace(velocity=jnp.array([0.0, -5.0]))
    after = physics.step(state, jnp.int32(0), hole)
    np.testing.assert_allclose(after.position, [-144.0, -130.0], atol=1e-4)
    assert ENV.terminal(after)
    np.testing.assert_array_equal(physics.step(after, jnp.int32(4), hole).position, after.position)
