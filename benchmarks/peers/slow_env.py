"""Pendulum whose step waits 5 ms, as for a simulator or a device in another process: `slow_env:SlowPendulum-v0`."""

import time
from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control.pendulum import PendulumEnv

PAUSE = 5e-3  # seconds


class SlowPendulum(PendulumEnv):
    def step(self, u: Any) -> Any:
        time.sleep(PAUSE)
        return super().step(u)


gym.register("SlowPendulum-v0", entry_point=SlowPendulum, max_episode_steps=200)
