"""Familiarity of states, shields in evaluations, and the wrapper `Watch`."""

from typing import Any

import gymnasium as gym
import jax.export
import numpy as np
import pytest

import scopil
from scopil.agent import LoadedLearner
from scopil.envs.jax_env import CompiledEnv
from scopil.errors import ConfigError
from scopil.policy import Policy
from shields import linear, linear_shield
from toys import ARMS, LIMIT, REPLAY, SHOWN_ARM, TABLES, Arms, drive_demos, registered_toy, toy


class Walk(Arms):
    """The action moves the first component."""

    def transition(self, state, action, rng, params=None):
        return state._replace(sign=state.sign + 0.5 * action, clock=state.clock + 1)


@pytest.fixture(scope="module")
def agent() -> Any:
    """Trained until constraints are in."""
    shown = [e.observations for e in drive_demos()]
    demos = scopil.Demonstrations.from_arrays(shown, [np.full(2, SHOWN_ARM)] * len(shown), action_space=ARMS)
    settings: Any = REPLAY | TABLES | {
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


# Q(s, a) = (0, 0.2, 1)_a + the first component of s, which is −1 or 1: with 1 no action is within the limit.
ARM_SHIELD = linear_shield([[1.0, 0.0]] * 3, [0.0, 0.2, 1.0], limit=-0.5)
# Q(s, a) = a in [−1, 1]: actions above the middle of the box, where the rule begins, are not kept.
THROTTLE_SHIELD = linear_shield([[0.0, 0.0, 1.0]], [0.0], limit=0.0)


def shielded_agent(continuous: bool, outputs: list[float]) -> Any:
    """An agent with a known policy, the same in all states, and a known shield."""
    agent: Any = scopil.SAC(toy(continuous), **REPLAY)
    net, shield = linear(np.zeros((len(outputs), 2)), outputs), THROTTLE_SHIELD if continuous else ARM_SHIELD
    agent._loaded = LoadedLearner(lambda new: new(), 0, Policy(None, net, agent.policy.head, shield))
    return agent


def start_at(env: Any, sign: float) -> None:
    """Reset until the first component has this sign."""
    assert any(env.reset(seed=seed)[0][0] == sign for seed in range(50))


def test_any_discrete_action_passes_through_the_shield():
    agent = shielded_agent(False, [0.0, 1.0, 5.0])
    assert agent.predict(np.array([-1.0, 0.0]))[0] == 1
    with registered_toy(toy(continuous=False), "test/Shielded-v0") as env_id:
        env = scopil.Watch(gym.make(env_id), agent)
        start_at(env, -1.0)
        for given, taken, count in ((0, 0, 0), (2, 1, 1)):
            _, reward, *_, info = env.step(given)
            assert (info["executed_action"], info["intervened"]) == (taken, given != taken)
            assert info["interventions"] == count
            assert reward == 0.5 * taken
            assert not info["handed_over"]
            assert "familiarity" not in info
        start_at(env, 1.0)
        *_, info = env.step(2)  # no action is within the limit: the least Q
        assert (info["executed_action"], info["interventions"]) == (0, 1)
        for fallback in (1, lambda obs: 1):
            env = scopil.Watch(gym.make(env_id), agent, fallback=fallback)
            start_at(env, 1.0)
            *_, info = env.step(2)
            assert (info["executed_action"], info["intervened"], info["handed_over"]) == (1, True, True)
            start_at(env, -1.0)
            *_, info = env.step(2)
            assert (info["executed_action"], info["handed_over"]) == (1, False)
        with pytest.raises(ConfigError, match="action -1; want"):
            env.step(-1)
        with pytest.raises(ConfigError, match="SCOPILRho"):  # without the shield there is nothing to watch
            scopil.Watch(gym.make(env_id), agent, shield=False).reset(seed=0)


def test_any_continuous_action_passes_through_the_shield():
    agent = shielded_agent(True, [2.0, 0.0])
    with registered_toy(toy(continuous=True), "test/ShieldedBox-v0") as env_id:
        env: Any = scopil.Watch(gym.make(env_id), agent)
        env.reset(seed=0)
        given = np.array([-0.3], np.float32)
        *_, info = env.step(given)
        assert info["executed_action"] is given
        *_, info = env.step(np.array([2.5], np.float32))
        assert -1.0 <= info["executed_action"].item() <= LIMIT
        assert (info["cost"], info["interventions"]) == (0, 1)
        for odd in (np.array([np.nan], np.float32), np.zeros(2, np.float32)):
            with pytest.raises(ConfigError, match="want an action of Box"):
                env.step(odd)


@pytest.mark.parametrize("continuous", [False, True])
def test_evaluations_count_interventions(continuous, tmp_path):
    """The most likely action breaks the rule; the shield replaces it in every step."""
    agent = shielded_agent(continuous, [2.0, 0.0] if continuous else [0.0, 1.0, 5.0])
    found = agent.evaluate(episodes=4)
    assert (found["interventions"], found["violations"]) == (1.0, 0.0)
    bare = shielded_agent(continuous, [2.0, 0.0] if continuous else [0.0, 1.0, 5.0])
    bare._loaded = bare._loaded._replace(policy=bare.policy.unshielded())
    found = bare.evaluate(episodes=4)
    assert "interventions" not in found
    assert found["violations"] > 0


def test_sampled_evaluations_estimate_the_share_of_interventions():
    """Three equally likely arms: the shield leaves out one at −1 and two at 1."""
    found = shielded_agent(False, [0.0, 0.0, 0.0]).evaluate(episodes=300, deterministic=False)
    assert found["interventions"] == pytest.approx(0.5, abs=0.08)


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
