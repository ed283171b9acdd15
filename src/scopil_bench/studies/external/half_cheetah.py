"""Half-cheetah with a wall behind it (HCWithPos of Malik et al., ICML 2021). The reward is the same in both directions;
the rule allows only one. Needs `pip install "scopil[mujoco]"` and the ICRL authors' expert episodes, which are not
shipped.
"""

import os
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from scopil.data.dataset import Demonstrations, Episode
from scopil.errors import DatasetError, refused_as

ENV = "scopil/HalfCheetahWall-v0"
DATA = "SCOPIL_HALF_CHEETAH_DATA"  # environment variable that names the data file
WALL = -3.0  # m; x ≤ WALL is a violation
CONTROL_COST = 0.1
EPISODES = 20


def behind_the_wall(obs: np.ndarray, action: Any, next_obs: np.ndarray) -> float:
    """The cost by the rule, for episodes that were recorded without `info["cost"]`."""
    return float(next_obs[0] <= WALL)


class HalfCheetahWall(gym.Wrapper):
    """Reward |x' − x| / dt − 0.1 ‖a‖²; the observation has all positions (x first), then velocities.

    `info["cost"]` is 1 where the rule is violated; learners do not use it.
    """

    def __init__(self, **options: Any):
        super().__init__(
            gym.make("HalfCheetah-v5", exclude_current_positions_from_observation=False, **options).unwrapped
        )
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
        return obs, reward, terminated, truncated, info | self._cost()

    def _cost(self) -> dict[str, float]:
        return {"cost": float(self._x <= WALL)}


def demonstrations(data: Path) -> Demonstrations:
    """The expert's episodes from a .npz file with float32 arrays `observations` and `actions` [episodes, steps, ·].
    `observations[k]` results from `actions[k]`, so the pairs are (observations[k], actions[k + 1]). The last
    observation of an episode comes from a reset and is left out."""
    with refused_as(DatasetError, data), np.load(data, allow_pickle=False) as file:
        observations, actions = file["observations"], file["actions"]
    episodes = [
        Episode(observations=o[:-1], actions=a[1:-1], terminated=False, truncated=True)
        for o, a in zip(observations, actions)
    ]
    return Demonstrations(
        episodes=tuple(episodes),
        observation_space=gym.spaces.Box(-np.inf, np.inf, observations.shape[2:], np.float32),
        action_space=gym.spaces.Box(-1.0, 1.0, actions.shape[2:], np.float32),
        name="half-cheetah-wall/icrl-expert",
        env_id=ENV,
        about={"by": "the expert of Malik et al. (ICML 2021), 50 episodes of 500 steps"},
    )


def demonstrations_named() -> Demonstrations:
    """The demonstrations in the file that the environment variable names."""
    if not (file := os.environ.get(DATA)):
        raise DatasetError(
            f"half-cheetah-wall: the demonstrations are not shipped; name their .npz file (observations and actions) "
            f"in the environment variable {DATA}."
        )
    return demonstrations(Path(file))
