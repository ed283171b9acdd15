"""An agent that is deleted releases its compiled programs."""

import gc
from typing import Any

import gymnasium as gym
import jax
import pytest

import scopil
from toys import REPLAY, toy


def programs() -> int:
    gc.collect()  # an agent's programs refer to the agent
    return len(jax.local_devices()[0].client.live_executables())


def trained(env: Any) -> scopil.Agent:
    agent = scopil.SAC(env, seed=1, **REPLAY)
    agent.learn(64)
    agent.evaluate(episodes=2)
    agent.play(episodes=2, deterministic=False)
    return agent


@pytest.mark.parametrize("new", [lambda: toy(False), lambda: gym.make("CartPole-v1")], ids=["compiled", "host"])
def test_a_deleted_agent_releases_its_programs(new):
    trained(new())  # leaves the programs of single operations, which all agents share
    before = programs()
    agent = trained(new())
    assert programs() >= before + 5  # start, warm-up, training, and greedy and sampled episodes
    del agent
    assert programs() == before
