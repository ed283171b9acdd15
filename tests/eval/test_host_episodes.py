"""Episodes on host environments equal episodes played step by step, with the costs that the environment reported."""

import os
import signal
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import hosts
from hosts import LIMIT, InPlace, Walk
from scopil.algos import sac
from scopil.algos.base import spaces_of
from scopil.data.dataset import Demonstrations
from scopil.envs import gym_env
from scopil.envs.base import Seeds
from scopil.envs.gym_env import HostEnv, open_env
from scopil.errors import DatasetError, EnvError
from scopil.eval.episodes import play
from scopil.eval.measures import average, measure, measure_all
from scopil.eval.starts import starts_from, unseen_starts, watched_from, watched_starts
from scopil.policy import Policy


@pytest.fixture(scope="module")
def policy() -> Policy:
    spaces = spaces_of(Walk.observation_space, Walk.action_space)
    return sac.policy(sac.init(jax.random.key(3), spaces, sac.Config(hidden=(8,))))


@pytest.fixture(scope="module")
def seeds() -> Seeds:
    return Seeds(np.arange(100, 117))


@pytest.fixture(scope="module")
def sampled(policy, seeds):
    """Sampled episodes of one environment."""
    return play(HostEnv(Walk()), policy, seeds, jax.random.key(5), "sampled")


def by_hand(policy, seed: int):
    net, walk = policy.network.in_numpy(), Walk()
    obs, info = walk.reset(seed=seed)
    seen, actions, rewards, costs, left = [obs], [], [], [info["cost"]], [info["cost_left"]]
    while True:
        actions.append(int(net(obs).argmax()))
        obs, reward, terminated, truncated, info = walk.step(actions[-1])
        for row, value in zip((seen, rewards, costs, left), (obs, reward, info["cost"], info["cost_left"])):
            row.append(value)
        if terminated or truncated:
            return seen, actions, rewards, costs, left, terminated


def makers():
    yield pytest.param(lambda: HostEnv(Walk(), Walk), id="copies")
    yield pytest.param(lambda: HostEnv(Walk()), id="one")
    for mode in AutoresetMode:
        yield pytest.param(lambda mode=mode: open_env(SyncVectorEnv([Walk] * 3, autoreset_mode=mode)), id=mode.value)


@pytest.mark.parametrize("make", list(makers()))
def test_greedy_episodes_are_those_played_by_hand(make, policy, seeds):
    episodes = play(make(), policy, seeds, jax.random.key(0))
    assert len(episodes) == len(seeds.seeds)
    for seed, episode in zip(seeds.seeds, episodes):
        seen, actions, rewards, costs, left, terminated = by_hand(policy, int(seed))
        np.testing.assert_array_equal(episode.observations, seen)
        np.testing.assert_array_equal(episode.actions, actions)
        np.testing.assert_allclose(np.asarray(episode.rewards), rewards, rtol=1e-6)
        assert (episode.terminated, episode.truncated) == (terminated, not terminated)
        assert set(episode.info) == {"cost", "cost_left", "x"}  # all its numbers
        np.testing.assert_array_equal(episode.info["cost"], costs)
        np.testing.assert_array_equal(episode.info["cost_left"], left)


def test_a_sampled_episode_depends_on_its_seed_and_number_alone(policy, seeds, sampled):
    many = play(HostEnv(Walk(), Walk), policy, seeds, jax.random.key(5), "sampled")
    assert [e.actions.tolist() for e in many] == [e.actions.tolist() for e in sampled]
    other = play(HostEnv(Walk()), policy, seeds, jax.random.key(6), "sampled")
    assert [e.actions.tolist() for e in many] != [e.actions.tolist() for e in other]


def test_what_is_measured_of_them(sampled):
    for episode in sampled:
        found = measure(episode)
        assert found["reward"] == pytest.approx(-np.abs(episode.observations[1:, 0]).sum(), rel=1e-5)
        left = (episode.observations[:, 0] < -1).sum()
        assert found["violations"] == found["violations/left"] == left  # named rules add up; `cost` is one of them
        assert found["frequency"] == found["violations"] / len(episode)
        assert {"length", "reached"}.isdisjoint(found)


def test_a_cost_that_is_reported_only_where_it_is_incurred_and_measures_of_the_environment(policy, seeds):
    class Quiet(Walk):
        def info(self):
            return {"cost": 1} if self.x > 2.5 else {}

        def measures(self, episode):
            return {"last": float(episode.observations[-1, 0])}

    env = HostEnv(Quiet())
    episodes = play(env, policy, seeds, jax.random.key(5), "sampled")
    counted = [(e.observations[:, 0] > 2.5).sum() for e in episodes]
    assert 0 in counted
    found = average(measure_all(episodes, env))
    assert found["violations"] == np.mean(counted) > 0
    assert found["last"] == pytest.approx(np.mean([e.observations[-1, 0] for e in episodes]))


def test_an_endless_episode_is_stopped(monkeypatch, policy):
    class Endless(Walk):
        def step(self, action):
            return self.see(), 0.0, False, False, {}

    monkeypatch.setattr("scopil.envs.base.ENDLESS", 30)
    env, key = HostEnv(Endless(), Endless), jax.random.key(0)
    with pytest.warns(UserWarning, match="no time limit") as caught:
        (episode,) = play(env, policy, Seeds(np.array([1])), key)
    assert (len(episode), episode.terminated, episode.truncated) == (30, False, True)
    assert len(caught) == 1
    play(env, policy, Seeds(np.arange(3)), key)  # one warning for each environment, not for each episode

    class Still(Walk):  # until its clock stops it
        def step(self, action):
            obs, reward, _, truncated, info = super().step(action)
            return obs, reward, False, truncated, info

    monkeypatch.setattr("scopil.envs.base.ENDLESS", LIMIT)
    for seeds in (1, 12):  # the last two on ten environments
        episodes = play(HostEnv(Still(), Still), policy, Seeds(np.arange(seeds)), jax.random.key(0))
        assert {len(e) for e in episodes} == {LIMIT}


def test_an_environment_that_returns_the_same_array_at_every_step(policy, seeds):
    makers = [lambda: HostEnv(InPlace(), InPlace), lambda: open_env(SyncVectorEnv([InPlace] * 3, copy=False))]
    for make in makers:
        episodes = play(make(), policy, seeds, jax.random.key(0))
        for seed, episode in zip(seeds.seeds, episodes):
            np.testing.assert_array_equal(episode.observations, by_hand(policy, int(seed))[0])


def test_starts():
    env: Any = HostEnv(Walk())
    unseen, moved, watched, few = (
        starts.seeds  # pyright: ignore[reportAttributeAccessIssue]
        for starts in (
            starts_from("unseen", env, None, 8),
            starts_from("unseen", env, None, 8, seed=1),
            watched_starts(env, None),
            unseen_starts(env, 5),
        )
    )
    np.testing.assert_array_equal(few, unseen[:5])
    assert len(np.unique(np.concatenate([unseen, moved, watched]))) == 16 + len(watched)
    demos = Demonstrations.from_arrays([np.zeros((3, 2))], [np.array([0, 1])])
    assert watched_from(env, demos) == "unseen"
    with pytest.raises(DatasetError, match="demonstrated"):
        starts_from("demonstrated", env, demos)
    with pytest.raises(EnvError, match=r"starts\.npy"):
        starts_from("starts.npy", env, None)


# --- in several processes ---------------------------------------------------------------------------------------------


@pytest.fixture
def two_processes(monkeypatch):
    """Every environment counts as slow, and there are two cores."""
    monkeypatch.setattr(gym_env, "WORKERS_START", 0.0)
    monkeypatch.setattr(gym_env, "SLOW_STEP", 0.0)
    monkeypatch.setenv("NPROC", "2")
    monkeypatch.syspath_prepend(Path(hosts.__file__).parent)


def by_process(env: HostEnv) -> list[int]:
    return [worker.pid for workers in env._workers for worker in workers._workers]


def test_episodes_in_two_processes_are_those_in_one(two_processes, policy, seeds, sampled):
    env = open_env(f"{hosts.__file__}:Walk")
    assert isinstance(env, HostEnv)
    for _ in range(2):  # from the second ten episodes on, then from the first
        episodes = play(env, policy, seeds, jax.random.key(5), "sampled")
        assert len(by_process(env)) == 2
        for one, other in zip(sampled, episodes, strict=True):
            for name in ("observations", "actions", "rewards"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
            assert (one.terminated, one.truncated) == (other.terminated, other.truncated)
            assert one.info.keys() == other.info.keys()
            for name in one.info:
                np.testing.assert_array_equal(one.info[name], other.info[name])
    env.close()
    assert not by_process(env)


@pytest.mark.slow
def test_faults_in_other_processes(two_processes, policy, seeds):
    env = open_env(f"{hosts.__file__}:Walk")
    assert isinstance(env, HostEnv)
    first = play(env, policy, seeds, jax.random.key(5))
    os.kill(by_process(env)[1], signal.SIGKILL)
    with pytest.raises(EnvError, match="a process of the evaluation ended with exit code -9"):
        play(env, policy, seeds, jax.random.key(5))
    again = play(env, policy, seeds, jax.random.key(5))  # in new processes
    assert [e.actions.tolist() for e in first] == [e.actions.tolist() for e in again]
    env.close()

    said = []
    for _ in range(2):  # in this process, then in others
        broken = open_env(f"{hosts.__file__}:broken")
        if said:
            broken.envs_to_play(10)  # type: ignore[attr-defined]
        with pytest.raises(EnvError) as error:
            play(broken, policy, seeds, jax.random.key(5))
        assert len(by_process(broken)) == 2 * len(said)  # type: ignore[arg-type]
        said.append(str(error.value))
        broken.close()
    assert said[0] == said[1]
    assert "environment 0 of 10, step 5 after reset(seed=100): ZeroDivisionError: the motor fell off" in said[0]


@pytest.mark.slow
def test_an_environment_that_only_this_process_knows_is_played_here(two_processes, policy, seeds):
    with hosts.registered(name="test/Here-v0") as name:
        env = open_env(name)
        assert isinstance(env, HostEnv)
        assert len(play(env, policy, seeds, jax.random.key(5))) == 17
        assert not by_process(env)
