"""An agent that is deleted releases its compiled programs."""

import gc

import gymnasium as gym
import jax
import pytest

import scopil
from toys import REPLAY, toy, toy_demos


def programs() -> int:
    gc.collect()  # an agent's programs refer to the agent
    return len(jax.local_devices()[0].client.live_executables())


def trained(kind: str) -> scopil.Agent:
    if kind == "host":
        agent = scopil.SAC(gym.make("CartPole-v1"), seed=1, **REPLAY)
    else:
        agent = scopil.BC(toy(False), toy_demos(False), seed=1, hidden=(8,), demo_batch_size=8)
    agent.learn(40)
    agent.evaluate(episodes=2)
    return agent


@pytest.mark.parametrize("kind", ["compiled", "host"])
def test_a_deleted_agent_releases_its_programs(kind):
    trained(kind)  # leaves the programs of single operations, which all agents share
    before = programs()
    agent = trained(kind)
    assert programs() >= before + 3  # start, training and episodes
    del agent
    assert programs() == before
