"""Familiarity of states, and the wrapper `Watch`."""

from typing import Any

import gymnasium as gym
import jax.export
import numpy as np
import pytest

import scopil
from scopil.envs.jax_env import CompiledEnv
from scopil.errors import ConfigError
from toys import ARMS, REPLAY, SHOWN_ARM, Arms, drive_demos, registered_toy, toy


class Walk(Arms):
    """The action moves the first component."""

    def transition(self, state, action, rng, params=None):
        return state._replace(sign=state.sign + 0.5 * action, clock=state.clock + 1)


@pytest.fixture(scope="module")
def agent() -> Any:
    """Trained until constraints are in."""
    shown = [e.observations for e in drive_demos()]
    demos = scopil.Demonstrations.from_arrays(shown, [np.full(2, SHOWN_ARM)] * len(shown), action_space=ARMS)
    settings: Any = REPLAY | {
        "demo_batch_size": 8, "clone_steps": 10, "critics_first": 100, "refresh_every": 50, "enter_every": 1,
        "enter_level": 1e6,
    }  # fmt: skip
    agent = scopil.SCOPILRho(CompiledEnv(Walk(), max_episode_steps=2), demos, seed=0, **settings).learn(500)
    monitor = agent.monitor()
    assert monitor is not None
    assert len(monitor.grid.feature) > 0
    return agent


def test_familiarity_of_one_state_and_of_many(agent):
    obs = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)  # no ties with demonstrated states
    many = agent.familiarity(obs)
    assert many.shape == (5,)
    assert ((many >= 0) & (many <= 1)).all()
    assert float(agent.familiarity(obs[2])) == pytest.approx(float(many[2]))


def test_agents_without_familiarity_refuse(agent):
    env = toy(continuous=False)
    with pytest.raises(ConfigError, match="SCOPILRho"):
        scopil.SAC(env).familiarity(np.zeros(2))
    with pytest.raises(ConfigError, match="demonstrations"):
        scopil.SCOPILRho(env).familiarity(np.zeros(2))


def test_unfamiliar_states_are_flagged_and_handed_over(agent):
    asked = []
    with pytest.raises(ConfigError, match="below = 2"):
        scopil.Watch(gym.Env(), agent, 2.0)
    with registered_toy(toy(continuous=False), "test/Watched-v0") as env_id:
        for below, unfamiliar in ((0.0, False), (1.0, True)):
            env = scopil.Watch(gym.make(env_id), agent, below, lambda obs: asked.append(obs) or 0)
            _, info = env.reset(seed=0)
            assert 0 <= info["familiarity"] <= 1
            assert info["unfamiliar"] == (info["familiarity"] < below)
            if info["unfamiliar"] != unfamiliar:  # as familiar as can be
                continue
            *_, info = env.step(1)
            assert info["handed_over"] == unfamiliar
    assert len(asked) <= 1


def test_evaluations_count_unfamiliar_states(agent):
    played = agent.watched(agent.play(episodes=3))
    shares = [(agent.familiarity(e.observations) < 0.1).mean() for e in played]
    assert agent.evaluate(episodes=3)["unfamiliar"] == pytest.approx(np.mean(shares))
    assert "unfamiliar" not in scopil.SAC(toy(continuous=False)).evaluate(episodes=1)


def test_exported_with_the_policy(agent, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    obs = np.random.default_rng(1).normal(size=(7, 2)).astype(np.float32)
    file = agent.policy.to_onnx(tmp_path / "policy.onnx", monitor=agent.monitor())
    noise = np.zeros((1, agent.policy.head.num_actions), np.float32)
    (got,) = ort.InferenceSession(file).run(["familiarity"], {"obs": obs, "noise": noise})
    np.testing.assert_allclose(got, agent.familiarity(obs), atol=1e-6)
    program = jax.export.deserialize(
        bytearray(agent.policy.to_jax(tmp_path / "policy.jaxexport", monitor=agent.monitor()).read_bytes())
    )
    got = program.call(obs, np.zeros((7, noise.shape[1]), np.float32))["familiarity"]
    np.testing.assert_allclose(got, agent.familiarity(obs), atol=1e-6)
