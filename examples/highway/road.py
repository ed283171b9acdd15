"""highway-fast-v0 (pip install highway-env), seen lane by lane, in metres and metres per second.

highway-env lists the nearest cars; which of them is ahead in one's own lane is for the learner to find out. Here it is
said: the next car ahead and behind, in the lane to the left, one's own, and to the right.
"""

import gymnasium as gym
import highway_env  # noqa: F401  # pyright: ignore[reportMissingImports]  it registers highway-fast-v0
import numpy as np

SIGHT = 100.0  # metres; also the distance to a car that is not there
LANES, WIDTH = 3, 4.0
CARS = {"type": "Kinematics", "vehicles_count": 10, "see_behind": True, "normalize": False}


def box(low, high, *shape):
    return gym.spaces.Box(low, high, shape, np.float32)


class Highway(gym.ObservationWrapper):
    def __init__(self, render_mode=None):
        super().__init__(gym.make("highway-fast-v0", render_mode=render_mode, config={"observation": CARS}))
        self.observation_space = gym.spaces.Dict(
            lane=box(-1, LANES, 1),  # 0 is the left one; between two while changing
            speed=box(-40, 40, 2),  # along the road and across
            ahead=box(
                0, SIGHT, 3
            ),  # distance to the next car to the left, ahead, to the right; 0 where no lane is
            closing=box(-40, 40, 3),  # how much slower than us it is
            behind=box(0, SIGHT, 3),  # distance to the car that follows there
            gaining=box(-40, 40, 3),  # how much faster than us it is
        )

    def observation(self, observation):
        (_, _, y, vx, vy), others = observation[0], observation[1:]
        others = others[others[:, 0] > 0]  # presence; x, y and speeds are relative to ours
        lane = np.round(y / WIDTH)
        sides = np.round((y + others[:, 2]) / WIDTH) - lane
        ahead, closing, behind, gaining = np.zeros((4, 3), np.float32)
        for i, side in enumerate((-1, 0, 1)):
            if 0 <= lane + side < LANES:
                _, dx, _, dv, _ = others[sides == side].T
                ahead[i], closing[i] = nearest(dx, -dv)
                behind[i], gaining[i] = nearest(-dx, dv)
        own = {"lane": np.array([y / WIDTH], np.float32), "speed": np.array([vx, vy], np.float32)}
        return own | {"ahead": ahead, "closing": closing, "behind": behind, "gaining": gaining}


def nearest(distance, speed):
    """Of the cars at a positive distance the nearest one's distance and speed."""
    seen = np.where((distance >= 0) & (distance < SIGHT), distance, SIGHT)
    i = int(seen.argmin()) if len(seen) else 0
    return (SIGHT, 0.0) if not len(seen) or seen[i] == SIGHT else (seen[i], speed[i])
