"""Games on the host are the games one would play by hand, and their costs what the environment said."""

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from hosts import LIMIT, Walk, registered
from scopil.algos import ALGORITHMS
from scopil.algos.base import spaces_of
from scopil.demos.dataset import Demonstrations
from scopil.envs.host import HostEnv, open_env
from scopil.errors import ConfigError, DatasetError, EnvError
from scopil.evaluate.games import Seeds, with_cost
from scopil.evaluate.metrics import average, measure
from scopil.evaluate.protocol import fresh_starts, player, starts_from, usual_starts

SAC = ALGORITHMS["sac"]
LEARNER = SAC.init(
    jax.random.key(3), spaces_of(Walk.observation_space, Walk.action_space), SAC.config(hidden=(8,))
)
SEEDS = Seeds(np.arange(100, 117))


def by_hand(seed: int):
    net, walk = SAC.numpy_logits(LEARNER), Walk()
    obs, info = walk.reset(seed=seed)
    seen, actions, rewards, costs, left = [obs], [], [], [info["cost"]], [info["cost_left"]]
    while True:
        actions.append(int(net(obs).argmax()))
        obs, reward, terminated, truncated, info = walk.step(actions[-1])
        seen.append(obs), rewards.append(reward), costs.append(info["cost"]), left.append(info["cost_left"])
        if terminated or truncated:
            return seen, actions, rewards, costs, left, terminated


def makers():
    yield pytest.param(lambda: HostEnv(Walk(), Walk), id="copies")
    yield pytest.param(lambda: HostEnv(Walk()), id="one")
    for mode in AutoresetMode:
        yield pytest.param(
            lambda mode=mode: open_env(SyncVectorEnv([Walk] * 3, autoreset_mode=mode)), id=mode.value
        )


@pytest.mark.parametrize("make", list(makers()))
def test_greedy_games_are_the_games_played_by_hand(make):
    games = player(make(), SAC, "greedy")(LEARNER, SEEDS, jax.random.key(0))
    assert len(games) == len(SEEDS.seeds)
    for seed, game in zip(SEEDS.seeds, games):
        seen, actions, rewards, costs, left, terminated = by_hand(int(seed))
        np.testing.assert_array_equal(game.observations, seen)
        np.testing.assert_array_equal(game.actions, actions)
        np.testing.assert_allclose(game.rewards, rewards, rtol=1e-6)
        assert (game.terminated, game.truncated) == (terminated, not terminated)
        assert set(game.info) == {"cost", "cost_left"}
        np.testing.assert_array_equal(game.info["cost"], costs)
        np.testing.assert_array_equal(game.info["cost_left"], left)


def test_a_sampled_game_depends_on_its_seed_and_number_alone():
    key = jax.random.key(5)
    many = player(HostEnv(Walk(), Walk), SAC, "sampled")(LEARNER, SEEDS, key)
    alone = player(HostEnv(Walk()), SAC, "sampled")(LEARNER, SEEDS, key)
    assert [g.actions.tolist() for g in many] == [g.actions.tolist() for g in alone]
    other = player(HostEnv(Walk()), SAC, "sampled")(LEARNER, SEEDS, jax.random.key(6))
    assert [g.actions.tolist() for g in many] != [g.actions.tolist() for g in other]


def test_what_is_measured_of_them():
    games = player(HostEnv(Walk()), SAC, "greedy")(LEARNER, SEEDS, jax.random.key(0))
    for game in games:
        found = measure(game)
        assert found["reward"] == pytest.approx(-np.abs(game.observations[1:, 0]).sum(), rel=1e-5)
        assert (
            found["violations"] == (game.observations[:, 0] > 1).sum()
        )  # `cost` alone: the whole, not a sum of kinds
        assert found["frequency"] == found["violations"] / game.steps
        assert found["violations/left"] == (game.observations[:, 0] < -1).sum()
        assert {"length", "reached"}.isdisjoint(found)


def test_a_law_of_ones_own():
    games = player(HostEnv(Walk()), SAC, "sampled")(LEARNER, SEEDS, jax.random.key(5))
    judged = with_cost(games, lambda obs, action, next_obs: action == 1 and next_obs[0] < obs[0] + 0.5)
    for game, same in zip(games, judged):
        step = np.diff(game.observations[:, 0])
        want = ((game.actions == 1) & (step < np.float32(0.5))).sum()
        assert set(same.info) == {"cost"}
        assert measure(same)["violations"] == pytest.approx(
            want, abs=1
        )  # the bound itself is a matter of rounding
    assert average([measure(g) for g in judged])["violations"] > 0
    with pytest.raises(ConfigError, match="the cost function failed: IndexError"):
        with_cost(games, lambda obs, action, next_obs: obs[7])


def test_several_laws_of_ones_own():
    games = player(HostEnv(Walk()), SAC, "sampled")(LEARNER, SEEDS, jax.random.key(5))
    judged = with_cost(games, lambda obs, action, next_obs: {"high": next_obs[0] > 1, "right": action == 1})
    for game, same in zip(games, judged):
        found = measure(same)
        assert found["violations/high"] == (game.observations[1:, 0] > 1).sum()
        assert found["violations/right"] == (game.actions == 1).sum()
        assert found["violations"] == found["violations/high"] + found["violations/right"]


def test_a_cost_that_is_reported_only_when_it_falls_due():
    class Quiet(Walk):
        def info(self):
            return {"cost": 1} if self.x > 2.5 else {}

    games = player(HostEnv(Quiet()), SAC, "sampled")(LEARNER, SEEDS, jax.random.key(5))
    counted = [(g.observations[:, 0] > 2.5).sum() for g in games]
    assert 0 in counted
    assert average([measure(g) for g in games])["violations"] == np.mean(counted) > 0


def test_an_endless_game_is_called_off(monkeypatch):
    class Endless(Walk):
        def step(self, action):
            return self.see(), 0.0, False, False, {}

    monkeypatch.setattr("scopil.envs.functional.ENDLESS", 30)
    (game,) = player(HostEnv(Endless()), SAC, "greedy")(LEARNER, Seeds(np.array([1])), jax.random.key(0))
    assert (game.steps, game.terminated, game.truncated) == (30, False, True)


def test_starts():
    env = HostEnv(Walk())
    np.testing.assert_array_equal(fresh_starts(env, 5).seeds, starts_from("test", env, None, 8).seeds[:5])
    demos = Demonstrations.from_arrays([np.zeros((3, 2))], [np.array([0, 1])])
    assert usual_starts(env, demos) == "test"
    with pytest.raises(DatasetError, match="cannot be put at a demonstrated start"):
        starts_from("train", env, demos)
    with pytest.raises(EnvError, match=r"cannot be put at a start from starts\.npy"):
        starts_from("starts.npy", env, None)


def test_games_in_an_environment_with_a_time_limit_outside_it():
    class Endless(Walk):
        def step(self, action):
            obs, reward, *_ = super().step(action)
            return obs, reward, False, False, {}

    with registered(Endless, max_episode_steps=7) as name:
        games = player(open_env(gym.make(name)), SAC, "greedy")(LEARNER, SEEDS, jax.random.key(0))
    assert all((g.steps, g.truncated) == (7, True) for g in games)
    assert LIMIT != 7
