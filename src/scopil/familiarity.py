"""A Gymnasium wrapper that detects states unlike the demonstrations and can switch to a fallback controller."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from scopil.agent import Agent
from scopil.errors import ConfigError


class Watch(gym.Wrapper):
    """Adds `familiarity` and `unfamiliar` to `info`. If a fallback is given, its action replaces the given
    action in unfamiliar states, and `info["handed_over"]` is True for these steps.

    Args:
        env: the environment.
        agent: an agent that learns familiarity (`scopil.SCOPILRho`), with its demonstrations.
        below: threshold; states with a lower familiarity are unfamiliar. The threshold equals the expected share
            of false alarms on held-out demonstrations.
        fallback: (observation) → action for unfamiliar states.
    """

    def __init__(self, env: gym.Env, agent: Agent, below: float = 0.1, fallback: Callable[[Any], Any] | None = None):
        super().__init__(env)
        if not 0 <= below <= 1:
            raise ConfigError(f"below = {below}; want a share in [0, 1].")
        self._agent, self._below, self._fallback = agent, below, fallback
        self._obs: Any = None
        self._unfamiliar = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        obs, info = self.env.reset(seed=seed, options=options)
        return obs, self._with_familiarity(obs, info)

    def step(self, action: Any):
        handed_over = self._fallback is not None and self._unfamiliar
        if handed_over and self._fallback is not None:
            action = self._fallback(self._obs)
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, self._with_familiarity(obs, info) | {"handed_over": handed_over}

    def _with_familiarity(self, obs: Any, info: dict[str, Any]) -> dict[str, Any]:
        share = float(self._agent.familiarity(obs))
        self._obs, self._unfamiliar = obs, share < self._below
        return info | {"familiarity": share, "unfamiliar": self._unfamiliar}
