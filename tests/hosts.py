"""Small environments in plain Python, as users have them, some with faults."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np

LIMIT = 12
# A file with an environment of three steps per episode.
OWN = """
import time, gymnasium as gym, numpy as np

class Own(gym.Env):
    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)
    pause = 0.0  # seconds per step
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}
    def step(self, action):
        time.sleep(self.pause)
        self.t += 1
        return np.zeros(2, np.float32), 0.0, self.t == 3, False, {}
"""


class Walk(gym.Env):
    """A random walk to |x| > 4. The observation is x and the step; `log` records every call."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space: gym.Space = gym.spaces.Discrete(2)

    def __init__(self, fault: Callable[["Walk"], None] = lambda walk: None):
        self.log: list[Any] = []
        self.made, self.fault = 0, fault  # steps of all episodes

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.clock, self.reward = self.np_random.uniform(-1, 1), 0, 0.0
        self.log.append(("reset", seed, self.see()))
        return self.see(), self.info()

    def step(self, action):
        self.made, self.clock = self.made + 1, self.clock + 1
        self.x += (2 * int(action) - 1) * self.np_random.uniform(0.2, 1.2)
        self.reward = -abs(self.x)
        self.obs = self.see()
        self.fault(self)
        self.log.append(("step", int(action), self.obs))
        return self.obs, self.reward, abs(self.x) > 4, self.clock >= LIMIT, self.info()

    def see(self) -> Any:
        return np.array([self.x, self.clock], np.float32)

    def info(self) -> dict[str, Any]:
        return {"cost": float(self.x > 1), "cost_left": self.x < -1, "cost_note": "not a number", "x": self.x}


class InPlace(Walk):
    """Returns the same array at every step."""

    def __init__(self):
        super().__init__()
        self.kept = np.zeros(2, np.float32)

    def see(self):
        self.kept[:] = self.x, self.clock
        return self.kept


def raises(at: int) -> Callable[[Walk], None]:
    def fault(walk: Walk) -> None:
        if walk.made == at:
            raise ZeroDivisionError("the motor fell off")

    return fault


def broken() -> Walk:
    return Walk(raises(5))


def gives(at: int, **values: Any) -> Callable[[Walk], None]:
    """From step `at` on the environment returns other values."""
    return lambda walk: vars(walk).update(values) if walk.made == at else None


@contextmanager
def registered(make: Callable[[], gym.Env] = Walk, name: str = "test/Walk-v0", **spec: Any) -> Iterator[str]:
    gym.register(name, entry_point=lambda **_: make(), **spec)
    try:
        yield name
    finally:
        del gym.registry[name]
