"""Marble Maze in plain NumPy, many episodes at once: written from the rules, sharing no code with scopil.

In float64 unless asked otherwise. Rounding alone puts one episode in a hundred of 200 random steps on the other side of
a wall threshold between float32 and float64, so whole episodes are compared in float32, single steps in float64.
"""

from dataclasses import dataclass

import numpy as np

CELL = 43.615993
LIMIT = 4 * CELL
HOLE = np.array([-144.0, -144.0])
FARTHEST = np.hypot(LIMIT + 144.0, LIMIT + 144.0)  # from the hole to the opposite corner
MAX_STEPS = 200

UP, DOWN, LEFT, RIGHT = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])  # tilt ticks about X and about Y
REST = np.array([0, 0])
MOVES = np.stack([REST, LEFT, RIGHT, UP, UP + LEFT, UP + RIGHT, DOWN, DOWN + LEFT, DOWN + RIGHT])


@dataclass
class Episodes:
    """One row an episode."""

    ball: np.ndarray
    speed: np.ndarray
    ticks: np.ndarray
    turning: np.ndarray
    step: int = 0

    @classmethod
    def at_rest(cls, starts: np.ndarray, dtype: type = np.float64) -> "Episodes":
        ball = np.array(starts, dtype=dtype)
        return cls(ball, np.zeros_like(ball), np.zeros(ball.shape, int), np.zeros(ball.shape, int))

    def hole_distance(self) -> np.ndarray:
        return np.linalg.norm(self.ball - HOLE, axis=1)

    def in_hole(self) -> np.ndarray:
        return self.hole_distance() <= CELL / 3

    def play(self, actions: np.ndarray) -> None:
        """One step of every episode: five updates, each episode standing still once its ball is in the hole."""
        move = MOVES[actions]
        for _ in range(5):
            rolling = ~self.in_hole()
            for axis in (0, 1):
                self._turn(axis, move[:, axis], rolling)
            # Tilt about Y pushes along −x, tilt about X along +y.
            self._roll(0, -0.1 * self.ticks[:, 1], rolling)
            self._roll(1, +0.1 * self.ticks[:, 0], rolling)
        self.step += 1

    def _turn(self, axis: int, move: np.ndarray, rolling: np.ndarray) -> None:
        ticks = np.minimum(np.maximum(self.ticks[:, axis] + move, -5), 5)
        turning = move * (np.abs(ticks) < 5)
        self.ticks[rolling, axis] = ticks[rolling]
        self.turning[rolling, axis] = turning[rolling]

    def _roll(self, axis: int, slope: np.ndarray, rolling: np.ndarray) -> None:
        acceleration = 0.1 * slope
        speed = self.speed[:, axis] + (1.5 * acceleration).astype(self.speed.dtype)
        hits = np.abs(self.ball[:, axis] + speed) > LIMIT
        slow = np.abs(speed) < 0.1
        speed = np.select([hits & slow, hits], [0.0 * speed, -0.3 * speed], speed)
        self.speed[rolling, axis] = speed[rolling]
        self.ball[rolling, axis] += speed[rolling]

    def terminated(self) -> np.ndarray:
        return self.in_hole()

    def truncated(self) -> np.ndarray:
        return ~self.in_hole() & (self.step >= MAX_STEPS)

    def raw_reward(self) -> np.ndarray:
        away = -self.hole_distance() / FARTHEST
        return np.select([self.terminated(), self.truncated()], [10.0, -5.0], away)

    def reward(self) -> np.ndarray:
        return (self.raw_reward() - 10.0) / 15.0

    def observation(self) -> np.ndarray:
        speed = np.clip(self.speed, -6.0, 6.0) / 6.0
        return np.hstack([self.ball / LIMIT, speed, 0.1 * self.ticks / 0.5, 0.1 * self.turning / 0.1])


def breaks_line(coordinate: np.ndarray, at: float, allowed_above: bool) -> np.ndarray:
    return coordinate < at if allowed_above else coordinate > at


def inside_circle(points: np.ndarray, x: float, y: float, radius: float) -> np.ndarray:
    return (points[:, 0] - x) ** 2 + (points[:, 1] - y) ** 2 < radius**2


def inside_rectangle(points: np.ndarray, x: float, y: float, half_width: float, half_height: float) -> np.ndarray:
    left, right, bottom, top = x - half_width, x + half_width, y - half_height, y + half_height
    return (points[:, 0] > left) & (points[:, 0] < right) & (points[:, 1] > bottom) & (points[:, 1] < top)


def breaks_setting(points: np.ndarray, setting: str) -> dict[str, np.ndarray]:
    """Which points violate which rule, from the table of settings."""
    circles = {
        "simple": [(-50, -60, 45)],
        "multiple": [
            (-50, -60, 30),
            (62, -22, 28),
            (-104, 48, 26),
            (22, 84, 28),
            (-2, -128, 20),
            (124, 66, 26),
            (96, -112, 26),
        ],
    }
    circles["two-modes"] = circles["simple"]
    broken = {
        "horizontal": breaks_line(points[:, 1], -160.0, allowed_above=True),
        "circle": np.any([inside_circle(points, *c) for c in circles[setting]], axis=0),
    }
    if setting == "multiple":
        broken["vertical"] = breaks_line(points[:, 0], -160.0, allowed_above=True)
    return broken
