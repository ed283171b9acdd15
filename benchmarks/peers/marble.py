"""Marble Maze (Simple) for one episode in plain Python numbers, as a fast Gymnasium environment would be written.

Two-element NumPy arrays are slow, and the PyTorch contender should not be held back by its environment.
"""

import math

import numpy as np
from gymnasium import Env, spaces

CELL = 43.615993
REACH = 4 * CELL
HOLE = -144.0
FARTHEST = math.hypot(REACH - HOLE, REACH - HOLE)
TURNS = [(x, y) for x in (0, 1, -1) for y in (0, 1, -1)]


class Marble(Env):
    observation_space = spaces.Box(-1.0, 1.0, (8,), np.float32)
    action_space = spaces.Discrete(9)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        while True:
            x, y = self.np_random.uniform(-REACH, REACH, 2).tolist()
            lawful = y >= -160.0 and math.hypot(x + 50, y + 60) >= 45
            if lawful and self._distance(x, y) >= 40:
                break
        self.ball, self.speed, self.tilt, self.turning, self.steps = [x, y], [0.0, 0.0], [0, 0], [0, 0], 0
        return self._observation(), {}

    def step(self, action):
        turn = TURNS[action]
        for _ in range(5):
            if self._distance(*self.ball) <= CELL / 3:
                break
            for axis in (0, 1):
                self.tilt[axis] = max(-5, min(5, self.tilt[axis] + turn[axis]))
                self.turning[axis] = 0 if abs(self.tilt[axis]) == 5 else turn[axis]
            for axis, push in ((0, -0.015 * self.tilt[1]), (1, 0.015 * self.tilt[0])):
                speed = self.speed[axis] + push
                if abs(self.ball[axis] + speed) > REACH:
                    speed = 0.0 if abs(speed) < 0.1 else -0.3 * speed
                self.speed[axis] = speed
                self.ball[axis] += speed
        self.steps += 1
        away = self._distance(*self.ball)
        terminated = away <= CELL / 3
        truncated = not terminated and self.steps >= 200
        raw = 10.0 if terminated else -5.0 if truncated else -away / FARTHEST
        return self._observation(), (raw - 10.0) / 15.0, terminated, truncated, {}

    @staticmethod
    def _distance(x: float, y: float) -> float:
        return math.hypot(x - HOLE, y - HOLE)

    def _observation(self) -> np.ndarray:
        (x, y), (v_x, v_y) = self.ball, self.speed
        v_x, v_y = (max(-1.0, min(1.0, v / 6.0)) for v in (v_x, v_y))
        tilt_x, tilt_y = self.tilt
        return np.array([x / REACH, y / REACH, v_x, v_y, tilt_x / 5, tilt_y / 5, *self.turning], dtype=np.float32)
