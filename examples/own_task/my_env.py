"""A walk to a door. The reward counts steps alone; hurrying and the wet side of the corridor save some."""

import gymnasium as gym
import numpy as np


class Corridor(gym.Env):
    observation_space = gym.spaces.Dict(
        place=gym.spaces.Box(-2, 20, (2,), np.float32), speed=gym.spaces.Box(0, 3, (1,), np.float32)
    )
    action_space = gym.spaces.Discrete(5)  # go on, faster, slower, to the wet side, to the dry side
    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.y, self.speed = 0.0, self.np_random.uniform(-1, 1), 0.0
        return self.see(), {}

    def step(self, action):
        self.speed = float(np.clip(self.speed + (0.5 if action == 1 else -0.5 if action == 2 else 0), 0, 3))
        self.y = float(np.clip(self.y + (0.4 if action == 3 else -0.4 if action == 4 else 0), -1, 1))
        self.x += self.speed * (1.5 if self.y > 0.5 else 1.0)
        return self.see(), -1.0, self.x >= 12, False, {}

    def see(self):
        return {"place": np.array([self.x, self.y], np.float32), "speed": np.array([self.speed], np.float32)}

    def render(self):
        frame = np.full((80, 192, 3), 255, np.uint8)
        frame[:20] = (170, 200, 255)
        row, column = int(40 - 36 * self.y), int(12 * min(self.x, 15))
        frame[max(row - 4, 0) : row + 4, column : column + 8] = (200, 60, 30)
        return frame
