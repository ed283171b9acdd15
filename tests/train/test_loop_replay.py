"""The compiled loop with a replay: counts, seeds, lengths, and `vmap` over seeds and over the numbers of a config."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from probes import SMALL, Endless, Probe, mostly_one
from scopil.algos.scopil import ALGORITHM as SCOPIL
from scopil.algos.scopil_clone import ALGORITHM as SCOPIL_CLONE
from scopil.config import build
from scopil.data.dataset import Demonstrations
from scopil.envs.gym_env import HostEnv, open_env
from scopil.envs.jax_env import CompiledEnv
from scopil.train.demo_data import DemoData
from scopil.train.loop import Loop, make_loop
from toys import ARMS, toy

CONFIG = build(SCOPIL.config, {"demo_batch_size": 4} | SMALL)
ITERATIONS = 30


class Walk(Probe):
    """Three steps at most; the reward and the observation depend on everything there is."""

    def observation(self, state, rng, params=None):
        return (state.sign * (1 + state.clock) + 0.1 * jax.random.normal(rng))[None]

    def reward(self, state, action, next_state, rng, params=None):
        return state.sign * action + jax.random.normal(rng)

    def terminal(self, state, rng, params=None):
        return (state.clock >= 2) & (state.sign > 0)


@pytest.fixture(scope="module")
def loop():
    shown = DemoData(mostly_one(), None, None)  # pyright: ignore[reportArgumentType]
    return Loop(SCOPIL, CompiledEnv(Walk(), max_episode_steps=3), shown)


def bits(state: Any) -> list[bytes]:
    state = state._replace(key=jax.random.key_data(state.key))
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


def run(loop: Loop, seed: int, cfg: Any, *lengths: int) -> Any:
    state = loop.start(jax.random.key(seed), cfg)
    for length in lengths:
        state, _ = loop.run_iterations(state, cfg, length)
    return state


def test_the_same_seed_gives_the_same_bits_and_another_does_not(loop):
    first = run(loop, 0, CONFIG, ITERATIONS)
    assert bits(first) == bits(run(loop, 0, CONFIG, ITERATIONS))
    other = run(loop, 1, CONFIG, ITERATIONS)
    assert not np.array_equal(first.learner.actor.params.weights[0], other.learner.actor.params.weights[0])
    assert not np.array_equal(first.replay.rows, other.replay.rows)


def test_chunks_of_any_lengths_end_in_the_same_bits(loop):
    whole = bits(run(loop, 0, CONFIG, 30))
    assert bits(run(loop, 0, CONFIG, 10, 20)) == whole
    assert bits(run(loop, 0, CONFIG, 1, 7, 22)) == whole
    assert bits(run(loop, 0, CONFIG, 29)) != whole


def test_the_start_fills_one_batch_and_learns_nothing(loop):
    state, fresh = loop.start(jax.random.key(0), CONFIG), loop.init(jax.random.key(0), CONFIG)
    assert int(state.replay.size) == int(state.env_steps) == CONFIG.batch_size
    assert int(fresh.replay.size) == int(fresh.env_steps) == 0
    for a, b in zip(jax.tree.leaves(state.learner), jax.tree.leaves(fresh.learner)):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_several_environments_and_gradient_steps(loop):
    cfg = replace(CONFIG, num_envs=4, grad_steps=2)
    state = loop.start(jax.random.key(0), cfg)
    before = int(state.replay.added)
    assert before == cfg.batch_size
    state, metrics = loop.run_iterations(state, cfg, ITERATIONS)
    added = ITERATIONS * 4
    assert int(state.replay.added) == int(state.env_steps) == before + added
    assert int(state.learner.actor.opt.count) == int(state.learner.critics.opt.count) == ITERATIONS * 2

    rows = np.asarray(state.replay.rows)[before : before + added]
    obs, action, reward, _, terminated, truncated = rows.T
    ended = (terminated + truncated).astype(bool)
    assert set(action) == {0.0, 1.0}
    assert terminated.any()
    assert truncated.any()
    assert float(metrics["episode/count"]) == ended.sum()
    np.testing.assert_allclose(metrics["env/reward"], reward.mean(), rtol=1e-5)
    lanes = obs.reshape(ITERATIONS, 4).T  # environments differ from one another
    assert len({lane.tobytes() for lane in lanes}) == 4

    # Whole episodes, replayed by hand: those that were under way before these rows are known from the warm-up.
    all_rows = np.asarray(state.replay.rows)[: before + added].reshape(-1, 4, 6)
    returns, steps = [], []
    for lane in range(4):
        total, length = 0.0, 0
        for iteration, row in enumerate(all_rows[:, lane]):
            total, length = total + row[2], length + 1
            if row[4] or row[5]:
                if iteration >= before // 4:
                    returns.append(total)
                    steps.append(length)
                total, length = 0.0, 0
    np.testing.assert_allclose(metrics["episode/return"], np.mean(returns), rtol=1e-4)
    np.testing.assert_allclose(metrics["episode/steps"], np.mean(steps), rtol=1e-5)


class Counting(Endless):
    """The observation is the step of the episode. Every third step has a cost."""

    def observation(self, state, rng, params=None):
        return jnp.float32(state.clock)[None]

    def transition_info(self, state, action, next_state, params=None):
        return {"cost": jnp.float32(next_state.clock % 3 == 0)}


class PythonCounting(gym.Env):
    """The same in Python."""

    observation_space, action_space = Counting.observation_space, Counting.action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.clock += 1
        return np.full(1, self.clock, np.float32), 1.0, False, False, {"cost": float(self.clock % 3 == 0)}


COUNTING = {
    "compiled": lambda: CompiledEnv(Counting(), max_episode_steps=1_000),
    "Python": lambda: HostEnv(PythonCounting(), PythonCounting),
    "vector": lambda: open_env(SyncVectorEnv([PythonCounting] * 4)),
}


@pytest.mark.parametrize("kind", COUNTING)
def test_episodes_are_stopped_and_steps_with_a_cost_are_counted(kind):
    """Environment i is stopped before every fifth step, i steps after environment 0."""
    algorithm = replace(SCOPIL, stops=lambda learner: learner.actor.opt.count % 5 == jnp.arange(4))
    env, cfg = COUNTING[kind](), replace(CONFIG, num_envs=4)
    shown = DemoData(mostly_one(), None, None)  # pyright: ignore[reportArgumentType]
    loop = Loop(algorithm, env, shown)
    state = loop.start(jax.random.key(0), cfg)
    state, metrics = loop.run_iterations(state, cfg, ITERATIONS)
    metrics = {name: float(value) for name, value in metrics.items()}
    if isinstance(env, HostEnv):
        env.refuse_faults()

    assert state.replay is not None
    first = cfg.batch_size // 4  # the warm-up
    rows = np.asarray(state.replay.rows)[: 4 * (first + ITERATIONS)].reshape(-1, 4, 6)
    clock, stopped, violations = [0] * 4, 0, 0
    for i, row in enumerate(rows):
        for lane in range(4):
            if max(i - first, 0) % 5 == lane and clock[lane] > 0:
                clock[lane] = 0
                stopped += i >= first
            assert row[lane, 0] == clock[lane]
            clock[lane] += 1
            assert row[lane, 3] == clock[lane]
            violations += i >= first and clock[lane] % 3 == 0
    assert state.episode_return.tolist() == clock
    assert stopped > 20
    assert metrics["episode/stopped"] == stopped
    # A test for a cost would reset the only vector environment.
    assert metrics.get("episode/violations") == (None if kind == "vector" else violations)


def test_successors_are_true_ones_and_the_next_row_begins_anew(loop):
    """In the ring of one environment, `next_obs` of a row is `obs` of the next one unless an episode ended there."""
    rows = np.asarray(run(loop, 3, CONFIG, ITERATIONS).replay.rows)[: CONFIG.batch_size + ITERATIONS]
    ended = (rows[:-1, 4] + rows[:-1, 5]).astype(bool)
    np.testing.assert_array_equal(rows[:-1, 3][~ended], rows[1:, 0][~ended])
    assert not np.isclose(rows[:-1, 3][ended], rows[1:, 0][ended]).any()


def test_vmap_over_seeds_and_config_numbers_equals_single_runs(loop):
    """Rounding may differ between the programs, and grows; ten iterations keep the same actions and close numbers."""
    seeds, slacks, rates = [0, 1, 0, 0], [0.0, 0.0, 0.7, 0.0], [3e-4, 3e-4, 3e-4, 3e-3]
    iterations, base = 10, replace(CONFIG, multiplier_lr=0.3)  # so that the slack is felt within ten iterations

    def one(key, slack, rate):
        cfg = replace(base, slack=slack, learning_rate=rate)
        return loop.run(loop.init(key, cfg), cfg, iterations)[0]

    keys = jax.vmap(jax.random.key)(jnp.array(seeds))
    many = jax.jit(jax.vmap(one))(keys, jnp.array(slacks), jnp.array(rates))
    actors = []
    for i, (seed, slack, rate) in enumerate(zip(seeds, slacks, rates)):
        cfg = replace(base, slack=slack, learning_rate=rate)
        single, _ = loop.run_iterations(loop._init(jax.random.key(seed), cfg), cfg, iterations)
        lane = jax.tree.map(lambda leaf, i=i: leaf[i], many)
        np.testing.assert_array_equal(lane.env_steps, single.env_steps)
        for a, b in zip(jax.tree.leaves(lane.learner), jax.tree.leaves(single.learner)):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(lane.replay.rows, single.replay.rows, rtol=1e-5, atol=1e-6)
        actors.append(np.asarray(lane.learner.actor.params.weights[0]))
    for other in actors[1:]:  # each of the three numbers matters
        assert not np.allclose(other, actors[0], rtol=1e-4, atol=1e-5)
    assert float(many.learner.multiplier[2]) < float(many.learner.multiplier[0])  # more slack, less pressure


def test_hesitation_is_left_out_by_algorithms_that_ask_for_it():
    obs = np.array([[1, 0], [1, 0], [1, 1], [1, 2]], np.float32)
    demos = Demonstrations.from_arrays([obs], [np.array([0, 1, 1])], action_space=ARMS)
    paper, clone = (make_loop(a, toy(continuous=False), demos).demos for a in (SCOPIL, SCOPIL_CLONE))
    assert paper is not None
    assert clone is not None
    assert paper.transitions.action.tolist() == [0, 1, 1]
    assert clone.transitions.action.tolist() == [1, 1]
    assert clone.transitions.obs.tolist() == obs[1:3].tolist()
