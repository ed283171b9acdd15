"""A Gymnasium wrapper that detects states unlike the demonstrations, applies a policy's shield to actions, and can
switch to a fallback controller."""

from typing import Any

import gymnasium as gym

from scopil.agent import Agent
from scopil.errors import ConfigError


class Watch(gym.Wrapper):
    """Adds `familiarity` and `unfamiliar` to `info`, if the agent has learned a familiarity. If the agent's policy has
    a shield, every action given to `step` passes through it, and `info` has

        intervened       whether the shield replaced the given action
        interventions    the number of such steps in this episode
        executed_action  the action that the environment received

    If a fallback is given, its action replaces the given action in unfamiliar states and where no action is within the
    shield's limit, and `info["handed_over"]` is True for these steps. It does not pass through the shield.

    Args:
        env: the environment.
        agent: an agent that has a familiarity (`scopil.SCOPILRho`, with its demonstrations) or a policy with a shield.
        below: threshold; states with a lower familiarity are unfamiliar. The threshold equals the expected share
            of false alarms on held-out demonstrations.
        fallback: an action, or a function (observation) → action.
        shield: False: the policy's shield is not applied.
    """

    def __init__(self, env: gym.Env, agent: Agent, below: float = 0.1, fallback: Any = None, *, shield: bool = True):
        super().__init__(env)
        if not 0 <= below <= 1:
            raise ConfigError(f"below = {below}; want a share in [0, 1].")
        self._agent, self._below, self._fallback = agent, below, fallback
        self._shielded = shield and agent.policy.shield is not None
        self._obs: Any = None
        self._unfamiliar = False
        self._interventions = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        obs, info = self.env.reset(seed=seed, options=options)
        self._interventions = 0
        return obs, self._with_familiarity(obs, info)

    def step(self, action: Any):
        handed_over, intervened = self._fallback is not None and self._unfamiliar, False
        if self._shielded and not handed_over:
            given = action
            action, within = self._agent.shielded(self._obs, given)
            handed_over = self._fallback is not None and not within
            intervened = action is not given or handed_over
        if handed_over:
            action = self._fallback(self._obs) if callable(self._fallback) else self._fallback
        self._interventions += intervened
        obs, reward, terminated, truncated, info = self.env.step(action)
        info = self._with_familiarity(obs, info) | {"handed_over": handed_over}
        if self._shielded:
            info |= {"intervened": intervened, "interventions": self._interventions, "executed_action": action}
        return obs, reward, terminated, truncated, info

    def _with_familiarity(self, obs: Any, info: dict[str, Any]) -> dict[str, Any]:
        self._obs = obs
        if self._shielded and self._agent.monitor() is None:
            return info
        share = float(self._agent.familiarity(obs))
        self._unfamiliar = share < self._below
        return info | {"familiarity": share, "unfamiliar": self._unfamiliar}
