"""Agents on environments with a Box of actions: the same names, chosen by the action space."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scopil
from probes import Probe
from scopil.algos import ALGORITHMS, CONTINUOUS, choose
from scopil.cli import main
from scopil.envs.functional import CompiledEnv
from scopil.errors import ConfigError, DatasetError, EnvError
from scopil.train import trainer
from scopil.train.offpolicy import demo_pairs
from scopil.train.run import Run

TINY = {"hidden": (8,), "batch_size": 32, "replay_size": 2000}
BOX = gym.spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([3.0, 0.5], np.float32))


class Reaching(Probe):
    """Rewards the upper corner of a lopsided box; three steps a game; one coordinate far from 0."""

    action_space = BOX
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def observation(self, state, rng, params=None):
        return jnp.stack([state.sign, 1000.0 + state.clock])

    def reward(self, state, action, next_state, rng, params=None):
        return (action / jnp.asarray(BOX.high)).sum()

    def terminal(self, state, rng, params=None):
        return state.clock >= 3


ENV = CompiledEnv(Reaching(), max_episode_steps=3)


def shown(actions: np.ndarray, space: gym.Space = BOX) -> scopil.Demonstrations:
    obs = np.stack([np.ones(len(actions) + 1), np.full(len(actions) + 1, 1000.0)], axis=-1)
    return scopil.Demonstrations.from_arrays([obs.astype(np.float32)], [actions], action_space=space)  # pyright: ignore


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch):
    monkeypatch.setattr(trainer, "STRETCH", 500)


@pytest.fixture(scope="module")
def trained() -> scopil.SCOPIL:
    demos = shown(np.array([[3.0, 0.0], [-1.0, 0.5], [0.3, 0.2]], np.float32))
    return scopil.SCOPIL(ENV, demos, seed=1, demo_batch_size=8, **TINY).learn(600)  # pyright: ignore


def test_the_action_space_chooses_the_form():
    for name in CONTINUOUS:
        assert choose(name, BOX) is CONTINUOUS[name]
        assert choose(name, gym.spaces.Discrete(3)) is ALGORITHMS[name]
        assert CONTINUOUS[name].title == ALGORITHMS[name].title
    for name in ALGORITHMS.keys() - CONTINUOUS.keys():
        with pytest.raises(EnvError, match=rf"{name} learns discrete actions .* there are scopil, sac"):
            choose(name, BOX)
    with pytest.raises(EnvError, match="ppo learns discrete actions"):
        scopil.PPO(ENV)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (gym.spaces.Box(-np.inf, 1.0, (2,)), "finite bounds"),
        (gym.spaces.Box(0.0, 0.0, (2,)), "low below its high"),
        (gym.spaces.Box(-1.0, 1.0, (2, 2)), "one axis"),
        (gym.spaces.Box(0, 5, (2,), np.int64), "real numbers"),
        (gym.spaces.MultiBinary(3), "want Discrete"),
    ],
)
def test_boxes_one_cannot_learn_in_are_refused_before_training(space, words):
    env = CompiledEnv(Reaching())
    env.action_space = space
    with pytest.raises(EnvError, match=words):
        scopil.SAC(env).learn(10)


def test_settings_have_their_own_ranges():
    assert scopil.SAC(ENV).config.target_entropy == -1.0
    with pytest.raises(ConfigError, match="action_resolution"):
        scopil.SCOPIL(ENV, action_resolution=0.0)
    with pytest.raises(ConfigError, match="target_entropy"):
        scopil.SAC(ENV, target_entropy=2.0)
    with pytest.raises(ConfigError, match="target_entropy"):
        scopil.SAC("scopil/MarbleMaze-Simple-v0", target_entropy=-1.0)


def test_predict_is_the_policy_in_numpy(trained):
    obs = np.stack([np.linspace(-2, 2, 50), np.linspace(990, 1010, 50)], axis=-1).astype(np.float32)
    want = trained.algorithm.policy(trained.learner, jnp.asarray(obs)).mode()
    have, _ = trained.predict(obs)
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4)
    one, _ = trained.predict(obs[0])
    assert one.shape == (2,)
    np.testing.assert_allclose(one, want[0], rtol=1e-4, atol=1e-4)
    assert BOX.contains(one)
    drawn, _ = trained.predict(np.repeat(obs[:1], 4000, axis=0), deterministic=False)
    pi = trained.algorithm.policy(trained.learner, jnp.repeat(jnp.asarray(obs[:1]), 4000, axis=0))
    theirs = pi.sample(jax.random.key(0))
    assert (drawn >= BOX.low).all()
    assert (drawn <= BOX.high).all()
    for q in (0.1, 0.5, 0.9):
        np.testing.assert_allclose(np.quantile(drawn, q, 0), np.quantile(theirs, q, 0), atol=0.15)


def test_a_saved_policy_carries_its_statistics(trained, tmp_path):
    trained.save(tmp_path / "policy.ckpt")
    again = scopil.load(tmp_path / "policy.ckpt", env=ENV)
    obs = np.array([[0.3, 1001.0], [-1.0, 1002.0]], np.float32)
    np.testing.assert_array_equal(again.predict(obs)[0], trained.predict(obs)[0])
    assert abs(float(again.learner.frame.obs_stats.mean[1]) - 1000.0) < 3.0


@pytest.mark.slow
def test_it_learns_the_corner():
    """SAC goes where the reward is; both components, in their own units."""
    rates = {"learning_rate": 2e-3, "alpha_lr": 1e-2, "log_alpha_init": -2.0}
    agent = scopil.SAC(ENV, seed=0, hidden=(32,), batch_size=64, replay_size=4000, **rates)  # pyright: ignore
    agent.learn(2500)
    action, _ = agent.predict(np.array([1.0, 1001.0], np.float32))
    np.testing.assert_allclose((action - BOX.low) / (BOX.high - BOX.low), 1.0, atol=0.1)


# --- demonstrations ------------------------------------------------------------------------------------------------


def test_demonstrated_actions_outside_the_box_are_refused():
    wide = gym.spaces.Box(-10.0, 10.0, (2,), np.float32)
    with pytest.raises(DatasetError, match=r"component 1 of action 1 is 0\.7; .* \[0, 0\.5\]"):
        demo_pairs(shown(np.array([[0.0, 0.1], [0.0, 0.7]], np.float32), wide), ENV)
    pairs = demo_pairs(shown(np.array([[0.0, 0.1], [3.0, 0.5]], np.float32), wide), ENV)
    np.testing.assert_array_equal(pairs.action, np.array([[0.0, 0.1], [3.0, 0.5]], np.float32))


def test_discrete_actions_are_counted_from_the_spaces_start():
    env = CompiledEnv(Reaching())
    env.action_space = gym.spaces.Discrete(4, start=5)
    inside = shown(np.array([6, 8]), gym.spaces.Discrete(3, start=6))
    np.testing.assert_array_equal(demo_pairs(inside, env).action, [1, 3])
    for space in (gym.spaces.Discrete(7), gym.spaces.Discrete(4, start=4), gym.spaces.Discrete(4, start=6)):
        with pytest.raises(DatasetError, match="action space"):
            demo_pairs(shown(np.array([6]), space), env)


# --- the command line ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_from_the_command_line_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = "train sac --env phys2d/Pendulum-v0 --hidden 8 --batch-size 32 --replay-size 2000 --target-entropy -0.5"
    assert main([*words.split(), "--steps", "1000", "--out", "run"]) == 0
    run = Run.open(tmp_path / "run")
    assert run.spec.config["target_entropy"] == -0.5
    assert run.finished
    assert "eval/reward" in run.metrics.rows()[-1]
    assert scopil.load(tmp_path / "run").predict(np.zeros(3))[0].shape == (1,)
    assert main(["train", "ppo", "--env", "phys2d/Pendulum-v0", "--out", "other"]) == 2
    assert "ppo learns discrete actions" in capsys.readouterr().err
