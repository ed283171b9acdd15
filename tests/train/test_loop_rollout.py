"""The compiled loop with rollouts: counts, seeds, lengths, values through the clock, and phases."""

from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lap_grid import ACTIONS, BACKWARD, FORWARD, LapGridWorld, LapParams, forward_laps

from probes import Probe
from scopil.algos import icrl, ppo
from scopil.algos.base import Data
from scopil.algos.ppo_lagrangian import ORACLE
from scopil.data.dataset import Demonstrations
from scopil.envs.jax_env import CompiledEnv
from scopil.errors import EnvError
from scopil.nn.normalise import RunningStats, normalise
from scopil.train.demo_data import demo_data
from scopil.train.loop import Loop, make_loop
from scopil.train.trainer import Trainer

PPO, ICRL = ppo.ALGORITHM, icrl.ALGORITHM
TINY = {"hidden": (8,), "num_envs": 3, "rollout_steps": 8, "batch_size": 12, "epochs": 2}
CONFIG = PPO.config(**TINY)
LAPS = CompiledEnv(LapGridWorld(), LapParams(max_steps=10))
INVERSE = ICRL.config(**TINY, constraint_hidden=(4,), rollouts=5, forward_steps=40)


def bits(state: Any) -> list[bytes]:
    leaves = [
        jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        for leaf in jax.tree.leaves(state)
    ]
    return [np.asarray(leaf).tobytes() for leaf in leaves]


def run(loop: Loop, cfg: Any, *lengths: int, seed: int = 0) -> tuple[Any, Any]:
    state, metrics = loop.start(jax.random.key(seed), cfg), {}
    for length in lengths:
        state, metrics = loop.run_iterations(state, cfg, length)
    return state, metrics


@pytest.fixture(scope="module")
def on_laps() -> Loop:
    return Loop(PPO, LAPS)


@pytest.fixture(scope="module")
def inverse() -> Loop:
    return make_loop(ICRL, LAPS, forward_laps(2))


def test_seeds_and_lengths(on_laps):
    whole, metrics = run(on_laps, CONFIG, 5)
    assert int(whole.env_steps) == 5 * 24
    assert bits(whole) == bits(run(on_laps, CONFIG, 2, 3)[0])
    assert bits(whole) != bits(run(on_laps, CONFIG, 5, seed=1)[0])
    assert float(metrics["episode/count"]) == 3 * (40 // 10)  # 40 steps of each environment, episodes of 10
    assert float(metrics["episode/steps"]) == 10


def test_observation_statistics_change_between_rollouts_and_not_within_one():
    short = CompiledEnv(LapGridWorld(), LapParams(max_steps=5))  # episodes end within a rollout of 8
    loop = Loop(PPO, short)

    @jax.jit
    def iteration(state):
        later, steps, _ = loop._rollout(state, CONFIG, jax.random.key(1))
        learner, _ = PPO.update(later.learner, Data(rollout=steps), CONFIG, jax.random.key(2))
        return ppo.preprocess(state.learner, Data(rollout=steps)), steps, later._replace(learner=learner)

    # The statistics begin as 1e-4 of an observation with mean 0 and variance 1.
    state, met = loop.start(jax.random.key(0), CONFIG), np.zeros((0, 1))
    for _ in range(2):
        before = state.learner.obs_stats
        seen, steps, state = iteration(state)
        assert np.asarray(steps.truncated).any()
        if len(met):  # nothing is known at first
            np.testing.assert_allclose(seen.obs, normalise(before, steps.obs), rtol=1e-5)
            np.testing.assert_allclose(seen.next_obs, normalise(before, steps.next_obs), rtol=1e-5)
            assert not np.allclose(seen.obs, steps.obs, atol=0.1)
        met = np.concatenate([met, np.asarray(steps.obs).reshape(-1, 1)])
        assert_statistics_of(met, state.learner.obs_stats)
        assert_sees_successors(seen, steps)


def assert_statistics_of(met: np.ndarray, stats: RunningStats) -> None:
    n, prior, mean, var = len(met), 1e-4, met.mean(0), met.var(0)
    whole = n + prior
    np.testing.assert_allclose(stats.mean, mean * n / whole, rtol=1e-4)
    np.testing.assert_allclose(stats.var, (var * n + prior + mean**2 * n * prior / whole) / whole, rtol=1e-4)


def assert_sees_successors(seen: ppo.Rollout, steps: Any) -> None:
    """What follows a step is what is acted on next, unless a reset lies between."""
    going_on = ~(steps.terminated | steps.truncated)[:-1]
    same = np.isclose(seen.next_obs[:-1], seen.obs[1:], atol=1e-5)[..., 0]
    assert same[np.asarray(going_on)].all()
    assert not same.all()


class Clocked(Probe):
    """Reward 1 for ever, as two observations: one whose clock is a limit, one whose clock is an ending."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def observation(self, state, rng, params=None):
        return state.sign[None]

    def terminal(self, state, rng, params=None):
        return (state.sign < 0) & (state.clock >= 4)


def test_value_passes_through_the_time_limit():
    """γ = 0.8: worth 5 where the clock only stops the episode, less where the episode ends; both look alike inside."""
    cfg = PPO.config(
        **TINY | {"rollout_steps": 64, "batch_size": 64, "epochs": 10},
        discount=0.8,
        gae_lambda=0.9,
        learning_rate=0.02,
        normalise_obs=False,
        normalise_reward=False,
    )
    loop = Loop(PPO, CompiledEnv(Clocked(), max_episode_steps=4))
    state, _ = run(loop, cfg, 60)
    values = state.learner.nets.params.critic(jnp.array([[1.0], [-1.0]]))[:, 0]
    assert float(values[0]) == pytest.approx(5.0, abs=0.3)
    # (Σ_{k≤4} (1 − γᵏ)/(1 − γ)) / 4: the four moments of an episode are not told apart
    assert float(values[1]) == pytest.approx(np.mean([(1 - 0.8**k) / 0.2 for k in (1, 2, 3, 4)]), abs=0.3)


def test_an_oracle_gets_the_true_cost_of_each_step():
    loop = Loop(ORACLE, LAPS)
    cfg = ORACLE.config(**TINY)
    state = loop.start(jax.random.key(0), cfg)
    _, kept, _ = jax.jit(lambda s: loop._rollout(s, cfg, jax.random.key(1)))(state)
    np.testing.assert_array_equal(kept.cost, np.asarray(kept.step.action) == BACKWARD)
    assert 0 < np.asarray(kept.cost).mean() < 1
    data = loop._data(state, kept, cfg, jax.random.key(2))
    assert data.true_cost is not None
    np.testing.assert_array_equal(data.true_cost.batch, kept.cost)
    with pytest.raises(EnvError, match="environment reports none"):
        Loop(ORACLE, CompiledEnv(Probe()))


def test_phases(inverse):
    """40 steps asked for, 24 per iteration: a backward phase after every second iteration."""
    states, metrics = zip(*(run(inverse, INVERSE, n) for n in (1, 2, 3, 4)))
    nets = [s.learner.constraint.params.weights[0] for s in states]
    fresh = inverse.start(jax.random.key(0), INVERSE).learner.constraint.params.weights[0]
    assert np.array_equal(nets[0], fresh)
    assert not np.array_equal(nets[1], nets[0])
    assert np.array_equal(nets[2], nets[1])
    assert not np.array_equal(nets[3], nets[2])
    assert float(states[0].learner.last["constraint/steps"]) == 0
    assert 1 <= float(states[1].learner.last["constraint/steps"]) <= 20
    assert float(states[1].learner.last["constraint/episode_steps"]) == 5 * 10
    np.testing.assert_array_equal(states[1].env.steps, 0)  # the environments begin anew …
    np.testing.assert_array_equal(states[1].learner.cost_scale.running, 0.0)
    assert float(states[1].learner.obs_stats.samples) > 40  # … and what was learned stays
    assert float(states[3].learner.obs_stats.samples) > 90
    assert [float(m["constraint/phases"]) for m in metrics] == [0, 1, 1, 2]
    steps = [float(m["constraint/steps"]) for m in metrics]
    assert [float(m["constraint/all_steps"]) for m in metrics] == [0, steps[1], steps[1], steps[1] + steps[3]]


def test_an_inverse_run_is_the_same_in_any_lengths(inverse):
    whole, metrics = run(inverse, INVERSE, 5)
    assert bits(whole) == bits(run(inverse, INVERSE, 1, 3, 1)[0])
    assert {
        k: metrics[k] for k in whole.learner.last
    } == whole.learner.last  # the newest phase's, not a mean over iterations


def played(loop: Loop, count: int) -> Any:
    state = loop.start(jax.random.key(0), INVERSE)
    return jax.jit(lambda s: loop.play(ppo.policy(s.learner), jax.random.key(1), count))(state)


def test_own_episodes_are_whole(inverse):
    episodes = played(inverse, 4)
    assert episodes.obs.shape == (4, 10, 1)
    assert np.asarray(episodes.mask).all()
    move = np.where(np.asarray(episodes.action) == FORWARD, 1, -1)
    cells = np.concatenate([np.zeros((4, 1), int), np.cumsum(move, axis=1)[:, :-1]], axis=1) % 40
    np.testing.assert_allclose(episodes.obs[..., 0], cells / 20 - 1, atol=1e-6)  # (s_t, a_t), not (s_{t+1}, a_t)


def test_episodes_that_end_early_are_masked(inverse):
    strict = CompiledEnv(LapGridWorld(), LapParams(enforced=True, max_steps=10))
    episodes = played(Loop(ICRL, strict, inverse.demos), 8)
    for action, mask in zip(np.asarray(episodes.action), np.asarray(episodes.mask)):
        backward = np.flatnonzero(action == BACKWARD)
        assert mask.sum() == (backward[0] + 1 if len(backward) else 10)
        assert mask[: mask.sum()].all()


def test_demonstrated_episodes_are_padded_and_drawn_as_often_as_wanted():
    rng = np.random.default_rng(0)
    demos = Demonstrations.from_arrays(
        [rng.uniform(-1, 1, (t + 1, 1)).astype(np.float32) for t in (3, 1, 5)],
        [rng.integers(2, size=t) for t in (3, 1, 5)],
        action_space=ACTIONS,
    )
    found = demo_data(demos, LAPS)
    obs, action, mask = (np.asarray(leaf) for leaf in found.episodes)
    np.testing.assert_array_equal(mask.sum(1), [3, 1, 5])
    np.testing.assert_array_equal(obs[mask], demos.observations)
    np.testing.assert_array_equal(action[mask], demos.actions)
    np.testing.assert_array_equal(found.transitions.episode, [0, 0, 0, 1, 2, 2, 2, 2, 2])
    np.testing.assert_array_equal(found.transitions.next_obs[:2], found.transitions.obs[1:3])
    lengths = [np.asarray(icrl.draw(jax.random.key(0), found.episodes, n).mask).sum(1) for n in (3, 50)]
    assert sorted(lengths[0]) == [1, 3, 5]  # enough of them: none twice
    assert set(lengths[1]) == {1, 3, 5}


def test_the_trainer_takes_whole_iterations(on_laps):
    trainer = Trainer(on_laps, CONFIG, seed=0)
    assert trainer.chunk % 24 == 0
    trainer.advance(30)
    assert trainer.env_steps == 48
