"""highway-env (`highway-fast-v0`) with one observation per lane, and a scripted driver. Needs
`pip install "scopil[highway]"`.

An episode has three lanes, twenty other cars, and one decision per second for thirty seconds. The reward favours speed
and the right lane, and penalizes a crash. The driver also keeps a distance, which the reward does not require.
"""

from typing import Any

import gymnasium as gym
import numpy as np

from scopil.data.dataset import Demonstrations
from scopil.data.record import record

ENV = "scopil/Highway-v0"
DEMONSTRATIONS = 60
SIGHT = 100.0  # m; also the reported distance if there is no car
LANES, WIDTH = 3.0, 4.0
CARS = {"type": "Kinematics", "vehicles_count": 10, "see_behind": True, "normalize": False}
LEFT, STAY, RIGHT, FASTER, SLOWER = range(5)


def _box(low: float, high: float, size: int) -> gym.spaces.Box:
    return gym.spaces.Box(low, high, (size,), np.float32)


class Highway(gym.ObservationWrapper):
    """The next car ahead and behind in the left, own and right lanes, in metres and seconds. highway-env itself
    lists the nearest cars without their lanes."""

    def __init__(self, render_mode: str | None = None):
        import highway_env  # noqa: F401  # pyright: ignore[reportMissingImports]  registers highway-fast-v0

        super().__init__(gym.make("highway-fast-v0", render_mode=render_mode, config={"observation": CARS}))
        self.observation_space = gym.spaces.Dict(
            lane=_box(-1.0, LANES, 1),  # 0 is the leftmost lane; fractional during a lane change
            speed=_box(-40.0, 40.0, 2),  # along the road and across
            ahead=_box(0.0, SIGHT, 3),  # distance to the next car; 0 if there is no such lane
            closing=_box(-40.0, 40.0, 3),  # own speed minus that car's speed
            behind=_box(0.0, SIGHT, 3),  # distance to the next car behind
            gaining=_box(-40.0, 40.0, 3),  # that car's speed minus own speed
        )

    def observation(self, observation: np.ndarray) -> dict[str, np.ndarray]:
        (_, _, y, vx, vy), others = observation[0], observation[1:]
        others = others[others[:, 0] > 0]  # presence; x, y and speeds are relative to the own car
        lane = np.round(y / WIDTH)
        sides = np.round((y + others[:, 2]) / WIDTH) - lane
        ahead, closing, behind, gaining = np.zeros((4, 3), np.float32)
        for i, side in enumerate((-1, 0, 1)):
            if 0 <= lane + side < LANES:
                _, dx, _, dv, _ = others[sides == side].T
                ahead[i], closing[i] = _nearest(dx, -dv)
                behind[i], gaining[i] = _nearest(-dx, dv)
        own = {"lane": np.array([y / WIDTH], np.float32), "speed": np.array([vx, vy], np.float32)}
        return own | {"ahead": ahead, "closing": closing, "behind": behind, "gaining": gaining}


def _nearest(distance: np.ndarray, speed: np.ndarray) -> tuple[float, float]:
    """Distance and speed of the nearest car at a positive distance."""
    seen = np.where((distance >= 0) & (distance < SIGHT), distance, SIGHT)
    i = int(seen.argmin()) if len(seen) else 0
    return (SIGHT, 0.0) if not len(seen) or seen[i] == SIGHT else (float(seen[i]), float(speed[i]))


def drive(obs: dict[str, np.ndarray]) -> int:
    """The driver keeps a distance to the car ahead, changes to a free lane, and drives at most 25 m/s."""
    speed, lane = obs["speed"][0], obs["lane"][0]
    if _gap(obs, 1) < 3:  # seconds
        settled = abs(lane - round(lane)) < 0.1
        if settled and (side := _free_side(obs)) is not None:
            return side
        return SLOWER if speed > 20.5 else STAY
    return FASTER if speed < 24 and _gap(obs, 1) > 4 else STAY


def _gap(obs: dict[str, np.ndarray], side: int) -> float:
    """Time gap to the car ahead in seconds, predicted for two seconds later."""
    return float((obs["ahead"][side] - 2 * max(obs["closing"][side], 0)) / obs["speed"][0])


def _free_side(obs: dict[str, np.ndarray]) -> int | None:
    """The action towards a lane with a longer gap ahead and a gap behind; None if there is no such lane."""
    for side, action in ((2, RIGHT), (0, LEFT)):
        behind = obs["behind"][side] - 2 * max(obs["gaining"][side], 0)
        if _gap(obs, side) > max(1.5, _gap(obs, 1) + 0.5) and behind > 15:
            return action
    return None


def demonstrations() -> Demonstrations:
    return record(ENV, drive, DEMONSTRATIONS, name="highway/driver")


def headway(obs: Any, action: Any, next_obs: dict[str, np.ndarray]) -> bool:
    """Less than 1.5 seconds behind the car ahead."""
    return bool(next_obs["ahead"][1] < 1.5 * next_obs["speed"][0])


RULES = {"collision": "crashed", "headway": headway}  # info["crashed"], as highway-env reports it
