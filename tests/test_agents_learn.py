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
from toys import INVERSE, LIMIT, REPLAY, ROLLOUT, SHOWN_ACTION, SHOWN_ARM, toy, toy_demos

STATES = np.array([[1, 0], [1, 1], [-1, 0], [-1, 1]], np.float32)
FAST: dict[str, Any] = {"learning_rate": 0.02, "discount": 0.0}  # one step is all there is to look ahead
OFF = REPLAY | FAST | {"log_alpha_init": -3.0, "alpha_lr": 0.0}
ON = ROLLOUT | FAST | {"gae_lambda": 0.0, "target_kl": math.inf}
IMITATION = {"demo_batch_size": 8, "multiplier_init": 3.0}
PRICE = {"multiplier_init": 5.0, "cost_discount": 0.0}
ON_PRICE = ON | PRICE | {"cost_gae_lambda": 0.0}

REWARD = {scopil.SAC: (OFF, 400), scopil.PPO: (ON, 1500)}
IMITATORS = {
    scopil.SCOPIL: (OFF | IMITATION, 400),
    scopil.SDGD: (OFF | IMITATION, 400),
    scopil.SEiC: (OFF | IMITATION, 400),
    scopil.SDGDEiC: (OFF | IMITATION, 400),
    scopil.PPODGD: (ON | IMITATION, 1500),
    scopil.BC: ({"hidden": (8,), "demo_batch_size": 8, "learning_rate": 0.02}, 300),
}
CAREFUL = {
    scopil.OracleSACLagrangian: (OFF | PRICE, 600),
    scopil.OraclePPOLagrangian: (ON_PRICE, 2000),
    scopil.ICRL: (ON_PRICE | INVERSE | {"constraint_lr": 0.05}, 3000),
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
