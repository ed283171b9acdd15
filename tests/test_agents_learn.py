"""Every public agent learns what it should, from numbered and from continuous actions.

The best paid action breaks a rule (toys.py). Who learns from reward alone takes it; who learns from demonstrations, or
knows or infers the cost, does not.
"""

import math
from typing import Any

import numpy as np
import pytest

import scopil
from scopil.agents import Agent
from scopil.algos import ppo_lagrangian
from toys import LIMIT, SHOWN_ACTION, SHOWN_ARM, toy, toy_demos

STATES = np.array([[1, 0], [1, 1], [-1, 0], [-1, 1]], np.float32)
SMALL: dict[str, Any] = {"hidden": (8,), "learning_rate": 0.02, "normalise_obs": False}
REPLAY = SMALL | {
    "batch_size": 32,
    "replay_size": 512,
    "discount": 0.0,
    "log_alpha_init": -3.0,
    "alpha_lr": 0.0,
}
ROLLOUT = SMALL | {"num_envs": 8, "rollout_steps": 8, "batch_size": 32, "epochs": 4, "target_kl": math.inf}
ROLLOUT |= {"discount": 0.0, "gae_lambda": 0.0}
IMITATION = {"demo_batch_size": 8, "multiplier_init": 3.0}
PRICE = {"multiplier_init": 5.0, "cost_discount": 0.0}
INVERSE = {
    "constraint_hidden": (8,),
    "constraint_lr": 0.05,
    "forward_steps": 128,
    "rollouts": 8,
    "backward_iters": 5,
}

REWARD = {scopil.SAC: (REPLAY, 400), scopil.PPO: (ROLLOUT, 1500)}
IMITATORS = {
    scopil.SCOPIL: (REPLAY | IMITATION, 400),
    scopil.SDGD: (REPLAY | IMITATION, 400),
    scopil.SEiC: (REPLAY | IMITATION, 400),
    scopil.SDGDEiC: (REPLAY | IMITATION, 400),
    scopil.PPODGD: (ROLLOUT | IMITATION, 1500),
    scopil.BC: (SMALL | {"demo_batch_size": 8}, 300),
}
CAREFUL = {
    scopil.OracleSACLagrangian: (REPLAY | PRICE, 600),
    scopil.OraclePPOLagrangian: (ROLLOUT | PRICE | {"cost_gae_lambda": 0.0}, 2000),
    scopil.ICRL: (ROLLOUT | PRICE | {"cost_gae_lambda": 0.0} | INVERSE, 3000),
}
both_kinds = pytest.mark.parametrize("continuous", [False, True], ids=["numbered", "continuous"])


def actions(agent: Agent) -> np.ndarray:
    """The greedy action in each of the four states."""
    return np.asarray(agent.predict(STATES)[0]).reshape(len(STATES))


def learned(cls: Any, continuous: bool, config: dict[str, Any], steps: int) -> Agent:
    demos = toy_demos(continuous) if cls._algorithm.needs_demos else None
    return cls(toy(continuous), demos, seed=0, **config).learn(steps)


def test_no_agent_is_left_out():
    every = {getattr(scopil, name) for name in scopil.__all__}
    every = {
        made for made in every if isinstance(made, type) and issubclass(made, Agent) and made is not Agent
    }
    assert every == REWARD.keys() | IMITATORS.keys() | CAREFUL.keys()


@both_kinds
@pytest.mark.parametrize("cls", REWARD)
def test_reward_alone_leads_beyond_the_rule(cls, continuous):
    agent = learned(cls, continuous, *REWARD[cls])
    assert (actions(agent) > 2.0 if continuous else actions(agent) == 2).all()
    assert agent.evaluate(episodes=4)["violations"] == 2


@both_kinds
@pytest.mark.parametrize("cls", IMITATORS)
def test_imitators_do_what_was_shown(cls, continuous):
    agent = learned(cls, continuous, *IMITATORS[cls])
    if continuous:
        np.testing.assert_allclose(actions(agent), SHOWN_ACTION, atol=0.3)
    else:
        np.testing.assert_array_equal(actions(agent), SHOWN_ARM)


@both_kinds
@pytest.mark.parametrize("cls", CAREFUL)
def test_who_sees_or_infers_the_cost_avoids_it(cls, continuous):
    agent = learned(cls, continuous, *CAREFUL[cls])
    assert (actions(agent) <= LIMIT).all()


@both_kinds
def test_a_cost_of_your_own(continuous):
    """`ppo_lagrangian.under(cost)` through `Agent`: nothing is registered under its name."""

    def cost(obs, action):
        return (action[..., 0] > LIMIT if continuous else action == 2).astype("float32")

    algorithm = ppo_lagrangian.under(cost)
    config, steps = CAREFUL[scopil.OraclePPOLagrangian]
    agent = scopil.Agent(algorithm, toy(continuous), seed=0, **config).learn(steps)
    assert (actions(agent) <= LIMIT).all()
    assert repr(agent).startswith("PPO-Lagrangian on ")
    assert agent.num_timesteps >= steps
