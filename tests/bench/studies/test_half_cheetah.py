"""Half-cheetah with a wall: reward and cost against the positions it reports."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import scopil  # noqa: F401, registers the id
from scopil_bench.studies.external.half_cheetah import HalfCheetahWall

pytest.importorskip("mujoco")


def test_running_pays_in_both_directions_and_the_wall_is_counted():
    env = gym.make("scopil/HalfCheetahWall-v0")
    obs, info = env.reset(seed=0)
    assert obs.shape == (18,)
    assert info["cost"] == 0.0
    rng = np.random.default_rng(0)
    for _ in range(50):
        action = rng.uniform(-2.0, 2.0, 6).astype(np.float32)
        after, reward, terminated, _, info = env.step(action)
        clipped = np.clip(action, -1, 1)
        want = abs(after[0] - obs[0]) / 0.05 - 0.1 * (clipped.astype(np.float64) ** 2).sum()
        assert reward == pytest.approx(want, rel=1e-6)
        assert info["cost"] == float(after[0] <= -3.0)
        assert not terminated
        obs = after


def test_behind_the_wall():
    env = HalfCheetahWall()
    env.reset(seed=0)
    inner: Any = env.unwrapped
    position = inner.data.qpos.copy()
    position[0] = -3.5
    inner.set_state(position, inner.data.qvel.copy())
    _, _, terminated, _, info = env.step(np.zeros(6, np.float32))
    assert info["cost"] == 1.0
    assert not terminated
