"""Half-cheetah with a wall behind it (HCWithPos of Malik et al., ICML 2021): running pays in both directions, the
rule allows one. Needs `pip install "scopil[mujoco]"`."""

from typing import Any

import gymnasium as gym
import numpy as np

WALL = -3.0  # m; to be at or behind it is a violation
CONTROL_COST = 0.1


def behind_the_wall(obs: np.ndarray, action: Any, next_obs: np.ndarray) -> float:
    """What `info["cost"]` says, for episodes that were recorded without it."""
    return float(next_obs[0] <= WALL)


class HalfCheetahWall(gym.Wrapper):
    """reward = |x' − x| / dt − 0.1 ‖a‖², observation = all positions, x first, and velocities.

    With `enforced` the first step into the wall pays nothing and ends the episode: as if the wall
    were there. `info["cost"]` is 1 where the rule is violated; no learner sees it.
    """

    def __init__(self, enforced: bool = False, **options: Any):
        super().__init__(
            gym.make("HalfCheetah-v5", exclude_current_positions_from_observation=False, **options).unwrapped
        )
        self._enforced = enforced
        self._x = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._x = float(obs[0])
        return obs, info | self._cost()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        before = self._x
        action = np.clip(np.asarray(action, np.float64), -1.0, 1.0)
        obs, _, terminated, truncated, info = self.env.step(action)
        self._x = float(obs[0])
        dt: float = self.env.unwrapped.dt  # pyright: ignore[reportAttributeAccessIssue]
        reward = abs(self._x - before) / dt - CONTROL_COST * float(np.square(action).sum())
        info |= self._cost()
        if self._enforced and info["cost"]:
            return obs, 0.0, True, truncated, info
        return obs, reward, terminated, truncated, info

    def _cost(self) -> dict[str, float]:
        return {"cost": float(self._x <= WALL)}
