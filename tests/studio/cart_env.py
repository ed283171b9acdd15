"""A cart in a warehouse: Dict observation, continuous actions, a picture."""

import gymnasium as gym
import numpy as np


class WarehouseCart(gym.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, max_episode_steps=60, render_mode=None):
        self.limit, self.render_mode = max_episode_steps, render_mode
        self.observation_space = gym.spaces.Dict(
            pose=gym.spaces.Box(-2.0, 2.0, (2,), np.float32), goal=gym.spaces.Box(-2.0, 2.0, (2,), np.float32)
        )
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def _obs(self):
        return {"pose": self.pose.astype(np.float32), "goal": self.goal.astype(np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pose, self.goal, self.t = self.np_random.uniform(-1, 1, 2), self.np_random.uniform(-1, 1, 2), 0
        return self._obs(), {}

    def step(self, action):
        self.pose = np.clip(self.pose + 0.2 * np.asarray(action, float), -2, 2)
        self.t += 1
        far = float(np.linalg.norm(self.pose - self.goal))
        return self._obs(), -far, far < 0.2, self.t >= self.limit, {}

    def render(self):
        picture = np.full((200, 300, 3), 245, np.uint8)
        for place, colour in ((self.goal, (30, 140, 70)), (self.pose, (20, 80, 160))):
            x, y = int(150 + place[0] * 70), int(100 - place[1] * 45)
            picture[max(0, y - 6) : y + 6, max(0, x - 6) : x + 6] = colour
        return picture
