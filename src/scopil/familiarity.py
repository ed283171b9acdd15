"""A Gymnasium wrapper that tells when a state is unlike the demonstrations, and may hand over to somebody else."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from scopil.agent import Agent
from scopil.errors import ConfigError


class Watch(gym.Wrapper):
    """Adds `familiarity` and `unfamiliar` to `info`; with a fallback, unfamiliar states get its action.

    Args:
        env: the environment that a policy acts in.
        agent: one that knows what is familiar (`scopil.SCOPILRho`), with its demonstrations.
        below: states less familiar than this are called unfamiliar. It is also the share of lawful states, of
            demonstrations that were not shown, for which that is a false alarm.
        fallback: `fallback(obs)` → the action to take in an unfamiliar state in place of the given one.
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
        return obs, self._looked_at(obs, info)

    def step(self, action: Any):
        handed_over = self._fallback is not None and self._unfamiliar
        if handed_over and self._fallback is not None:
            action = self._fallback(self._obs)
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, self._looked_at(obs, info) | {"handed_over": handed_over}

    def _looked_at(self, obs: Any, info: dict[str, Any]) -> dict[str, Any]:
        share = float(self._agent.familiarity(obs))
        self._obs, self._unfamiliar = obs, share < self._below
        return info | {"familiarity": share, "unfamiliar": self._unfamiliar}
