"""The compiled on-policy loops: counts, seeds, lengths, values through the clock, and phases."""

from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import Probe
from scopil.algos import ALGORITHMS
from scopil.core.normalise import normalise
from scopil.envs.functional import CompiledEnv
from scopil.errors import ConfigError, DatasetError, EnvError
from scopil.studies.lap_grid_world import BACKWARD, FORWARD, LapGridWorld, LapParams, forward_laps
from scopil.train.inverse import Inverse, padded
from scopil.train.loops import make_loop
from scopil.train.onpolicy import OnPolicy, true_cost
from scopil.train.trainer import Trainer, check

PPO, ICRL, ORACLE = (ALGORITHMS[name] for name in ("ppo", "icrl", "oracle-ppo-lagrangian"))
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


def run(loop: OnPolicy, cfg: Any, *lengths: int, seed: int = 0) -> tuple[Any, Any]:
    state, metrics = loop.start(jax.random.key(seed), cfg), {}
    for length in lengths:
        state, metrics = loop.run_blocks(state, cfg, length)
    return state, metrics


@pytest.fixture(scope="module")
def ppo() -> OnPolicy:
    return OnPolicy(PPO, LAPS)


@pytest.fixture(scope="module")
def inverse() -> Any:
    return make_loop(ICRL, LAPS, forward_laps(2))


def test_seeds_and_lengths(ppo):
    whole, metrics = run(ppo, CONFIG, 5)
    assert int(whole.env_steps) == 5 * 24
    assert bits(whole) == bits(run(ppo, CONFIG, 2, 3)[0])
    assert bits(whole) != bits(run(ppo, CONFIG, 5, seed=1)[0])
    assert float(metrics["episode/count"]) == 3 * (40 // 10)  # 40 steps of each environment, games of 10
    assert float(metrics["episode/steps"]) == 10


def test_the_observation_statistics_are_those_of_what_was_acted_on():
    ppo = OnPolicy(
        PPO, CompiledEnv(LapGridWorld(), LapParams(max_steps=5))
    )  # games end within a rollout of 8
    state = ppo.start(jax.random.key(0), CONFIG)
    later, rollout, _ = jax.jit(lambda s: ppo.rollout(s, CONFIG, jax.random.key(1)))(state)
    acted_on = np.concatenate([np.asarray(rollout.step.obs[1:]), np.asarray(later.env.obs)[None]]).reshape(
        -1, 1
    )
    stats = later.learner.obs_stats
    # The statistics begin as 1e-4 of an observation with mean 0 and variance 1.
    n, prior, mean, var = len(acted_on), 1e-4, acted_on.mean(0), acted_on.var(0)
    whole = n + prior
    np.testing.assert_allclose(stats.mean, mean * n / whole, rtol=1e-4)
    np.testing.assert_allclose(stats.var, (var * n + prior + mean**2 * n * prior / whole) / whole, rtol=1e-4)
    np.testing.assert_allclose(rollout.seen[0], rollout.step.obs[0], rtol=1e-6)  # nothing known yet
    last = normalise(stats, rollout.step.next_obs[-1])
    np.testing.assert_allclose(rollout.next_seen[-1], last, rtol=1e-5)
    going_on = ~(rollout.step.terminated | rollout.step.truncated)[:-1]
    same = np.isclose(rollout.next_seen[:-1], rollout.seen[1:], atol=1e-5)[..., 0]
    assert same[np.asarray(going_on)].all()
    assert not same.all()  # a reset lies between
    assert rollout.told is None


class Clocked(Probe):
    """Reward 1 for ever, as two observations: one whose clock is a limit, one whose clock is an ending."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def observation(self, state, rng, params=None):
        return state.sign[None]

    def terminal(self, state, rng, params=None):
        return (state.sign < 0) & (state.clock >= 4)


def test_value_passes_through_the_time_limit():
    """γ = 0.8: worth 5 where the clock only stops the game, less where the game ends; both look alike inside."""
    cfg = PPO.config(
        **TINY | {"rollout_steps": 64, "batch_size": 64, "epochs": 10},
        discount=0.8,
        gae_lambda=0.9,
        learning_rate=0.02,
        normalise_obs=False,
        normalise_reward=False,
    )
    loop = OnPolicy(PPO, CompiledEnv(Clocked(), max_episode_steps=4))
    state, _ = run(loop, cfg, 60)
    values = state.learner.nets.params.critic(jnp.array([[1.0], [-1.0]]))[:, 0]
    assert float(values[0]) == pytest.approx(5.0, abs=0.3)
    # (Σ_{k≤4} (1 − γᵏ)/(1 − γ)) / 4: the four moments of a game are not told apart
    assert float(values[1]) == pytest.approx(np.mean([(1 - 0.8**k) / 0.2 for k in (1, 2, 3, 4)]), abs=0.3)


def test_an_oracle_is_told_the_true_cost_of_each_step():
    loop = OnPolicy(ORACLE, LAPS)
    cfg = ORACLE.config(**TINY)
    state = loop.start(jax.random.key(0), cfg)
    _, rollout, _ = jax.jit(lambda s: loop.rollout(s, cfg, jax.random.key(1)))(state)
    np.testing.assert_array_equal(rollout.told, np.asarray(rollout.step.action) == BACKWARD)
    before = LAPS.reset_batch(jax.random.key(0), 2)
    told = true_cost(LAPS, before, jnp.array([FORWARD, BACKWARD]), before)
    np.testing.assert_array_equal(told, [0.0, 1.0])
    with pytest.raises(EnvError, match="reports no cost"):
        OnPolicy(ORACLE, CompiledEnv(Probe()))


@pytest.mark.slow
def test_phases(inverse):
    """40 steps asked for, 24 a block: a backward phase after every second block."""
    states = [run(inverse, INVERSE, n)[0] for n in (1, 2, 3, 4)]
    nets = [s.learner.constraint.params.weights[0] for s in states]
    fresh = inverse.start(jax.random.key(0), INVERSE).learner.constraint.params.weights[0]
    assert np.array_equal(nets[0], fresh)
    assert not np.array_equal(nets[1], nets[0])
    assert np.array_equal(nets[2], nets[1])
    assert not np.array_equal(nets[3], nets[2])
    assert float(states[0].last["constraint/steps"]) == 0
    assert 1 <= float(states[1].last["constraint/steps"]) <= 20
    assert float(states[1].last["constraint/games_steps"]) == 5 * 10
    np.testing.assert_array_equal(states[1].env.steps, 0)  # the environments begin anew …
    np.testing.assert_array_equal(states[1].learner.cost_scale.running, 0.0)
    assert float(states[1].learner.obs_stats.number) > 40  # … and what was learned stays
    assert float(states[3].learner.obs_stats.number) > 90


def test_an_inverse_run_is_the_same_in_any_lengths(inverse):
    whole, metrics = run(inverse, INVERSE, 5)
    assert bits(whole) == bits(run(inverse, INVERSE, 1, 3, 1)[0])
    assert {k: metrics[k] for k in whole.last} == whole.last  # the newest phase's, not a mean over blocks


def test_backward_steps_are_counted(inverse):
    each = [run(inverse, INVERSE, n)[1] for n in (1, 2, 4)]
    assert [float(m["constraint/phases"]) for m in each] == [0, 1, 2]
    steps = [float(m["constraint/steps"]) for m in each]
    assert steps[0] == 0 < steps[1]
    assert [float(m["constraint/all_steps"]) for m in each] == [0, steps[1], steps[1] + steps[2]]


def test_own_games_are_whole(inverse):
    state = inverse.start(jax.random.key(0), INVERSE)
    games = jax.jit(lambda s: inverse.games(s.learner, jax.random.key(1), 4))(state)
    assert games.obs.shape == (4, 10, 1)
    assert np.asarray(games.mask).all()
    move = np.where(np.asarray(games.action) == FORWARD, 1, -1)
    cells = np.concatenate([np.zeros((4, 1), int), np.cumsum(move, axis=1)[:, :-1]], axis=1) % 40
    np.testing.assert_allclose(games.obs[..., 0], cells / 20 - 1, atol=1e-6)  # (s_t, a_t), not (s_{t+1}, a_t)


def test_games_that_end_early_are_masked(inverse):
    strict = CompiledEnv(LapGridWorld(), LapParams(enforced=True, max_steps=10))
    loop = Inverse(algorithm=ICRL, env=strict, experts=inverse.experts)
    state = loop.start(jax.random.key(0), INVERSE)
    games = jax.jit(lambda s: loop.games(s.learner, jax.random.key(1), 8))(state)
    for action, mask in zip(np.asarray(games.action), np.asarray(games.mask)):
        backward = np.flatnonzero(action == BACKWARD)
        assert mask.sum() == (backward[0] + 1 if len(backward) else 10)
        assert mask[: mask.sum()].all()


def test_experts_are_padded_and_drawn_as_often_as_wanted(inverse):
    from samples import small_set

    demos = small_set((3, 1, 5))
    experts = padded(demos, LAPS)
    np.testing.assert_array_equal(np.asarray(experts.mask).sum(1), [3, 1, 5])
    np.testing.assert_array_equal(np.asarray(experts.obs)[np.asarray(experts.mask)], demos.observations)
    np.testing.assert_array_equal(np.asarray(experts.action)[np.asarray(experts.mask)], demos.actions)
    loop = Inverse(algorithm=ICRL, env=LAPS, experts=experts)
    lengths = [np.asarray(loop.draw(jax.random.key(0), n).mask).sum(1) for n in (3, 50)]
    assert sorted(lengths[0]) == [1, 3, 5]  # enough of them: none twice
    assert set(lengths[1]) == {1, 3, 5}


def test_icrl_wants_demonstrations():
    with pytest.raises(DatasetError, match="demonstrations"):
        make_loop(ICRL, LAPS, None)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_size": 7}, "is not a multiple of batch_size"),
        ({"gae_lambda": 1.5}, "gae_lambda = 1.5"),
        ({"epochs": 0}, "epochs = 0"),
        ({"target_kl": -1.0}, "target_kl = -1"),
    ],
)
def test_configs_out_of_range_are_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        check(PPO.config(**TINY | changes))


def test_the_trainer_takes_whole_blocks(ppo):
    trainer = Trainer(ppo, CONFIG, seed=0)
    assert trainer.stretch % 24 == 0
    trainer.advance(30)
    assert trainer.env_steps == 48
