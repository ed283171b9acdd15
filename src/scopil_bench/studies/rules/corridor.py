"""The corridor task of docs/own_task.md: the same environment, rules and expert, without the pictures."""

from typing import Any

import gymnasium as gym
import numpy as np

from scopil.data.dataset import Demonstrations
from scopil.data.record import record

MAX_STEPS, DEMONSTRATIONS = 60, 30
Obs = dict[str, np.ndarray]


class Corridor(gym.Env):
    """Actions: go on, faster, slower, to the wet side, to the dry side. The reward is −1 a step."""

    observation_space = gym.spaces.Dict(
        place=gym.spaces.Box(-2, 20, (2,), np.float32), speed=gym.spaces.Box(0, 3, (1,), np.float32)
    )
    action_space = gym.spaces.Discrete(5)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.y, self.speed = 0.0, self.np_random.uniform(-1, 1), 0.0
        return self.see(), {}

    def step(self, action: Any) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        self.speed = float(np.clip(self.speed + (0.5 if action == 1 else -0.5 if action == 2 else 0), 0, 3))
        self.y = float(np.clip(self.y + (0.4 if action == 3 else -0.4 if action == 4 else 0), -1, 1))
        self.x += self.speed * (1.5 if self.y > 0.5 else 1.0)
        return self.see(), -1.0, self.x >= 12, False, {}

    def see(self) -> Obs:
        return {"place": np.array([self.x, self.y], np.float32), "speed": np.array([self.speed], np.float32)}


def hurry(obs: Obs, action: Any, next_obs: Obs) -> bool:
    """Faster than one unit per step."""
    return bool(next_obs["speed"][0] > 1)


def wet(obs: Obs, action: Any, next_obs: Obs) -> bool:
    """Walking on the wet side."""
    return bool(next_obs["place"][1] > 0.5 and next_obs["speed"][0] > 0)


RULES = {"hurry": hurry, "wet": wet}


def act(obs: Obs) -> int:
    """First to the dry side, then up to an even pace."""
    return 4 if obs["place"][1] > 0.2 else 1 if obs["speed"][0] < 1 else 0


def demonstrate(env: str, episodes: int = DEMONSTRATIONS, seed: int = 0) -> Demonstrations:
    return record(env, act, episodes, seed=seed, name="rules/corridor")
