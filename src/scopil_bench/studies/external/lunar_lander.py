"""LunarLander with two unwritten rules, demonstrated by Gymnasium's own controller. Needs
`pip install "scopil[box2d]"`.

The controller turns the engines off once a leg touches the ground, and keeps the lander nearly upright. The reward
requires neither.
"""

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np

from scopil.data.dataset import Demonstrations
from scopil.data.record import record
from scopil.envs.jax_env import make_env

ENV = "LunarLander-v3"
TILT = 0.4  # radians, 23 degrees
LANDED = 200.0  # minimum return of a solved episode; only solved episodes become demonstrations
DEMONSTRATIONS = 1000


def rules(obs: np.ndarray, action: Any, next_obs: np.ndarray) -> dict[str, Any]:
    """The two rules. obs[6] and obs[7] are the contacts of the legs, obs[4] is the tilt. Action 0: engines off."""
    return {"engine": (obs[6] > 0 or obs[7] > 0) and action != 0, "tilt": abs(next_obs[4]) > TILT}


_DISCRETE = SimpleNamespace(unwrapped=SimpleNamespace(continuous=False))  # the only attribute that the controller reads


def land(obs: np.ndarray) -> int:
    """The action of Gymnasium's controller."""
    from gymnasium.envs.box2d.lunar_lander import heuristic  # needs Box2D, an optional dependency

    return int(heuristic(_DISCRETE, obs))


def demonstrate(episodes: int = DEMONSTRATIONS) -> Demonstrations:
    """The first episodes that the controller solves, counting seeds from 0."""
    env, landed, seed = make_env(ENV), [], 0
    while len(landed) < episodes:
        (episode,) = record(env, land, 1, seed=seed)
        seed += 1
        if episode.total_reward >= LANDED:
            landed.append(episode)
    env.close()
    return Demonstrations(
        episodes=tuple(landed),
        observation_space=gym.spaces.Box(
            -np.inf, np.inf, (8,), np.float32
        ),  # observations exceed the environment's bounds
        action_space=gym.spaces.Discrete(4),
        name="lunar-lander/controller",
        env_id=ENV,
        about={"by": "gymnasium.envs.box2d.lunar_lander.heuristic", "seeds": [0, seed], "return": f">= {LANDED:g}"},
    )
