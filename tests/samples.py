"""Small sets of demonstrations for tests."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from scopil.data.dataset import Demonstrations, Episode

OBSERVATIONS = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
ACTIONS = gym.spaces.Discrete(3)


def episode(steps: int, seed: int = 0, **changes: Any) -> Episode:
    rng = np.random.default_rng(seed)
    made = Episode(
        observations=rng.uniform(-1, 1, (steps + 1, 4)).astype(np.float32),
        actions=rng.integers(3, size=steps),
        rewards=-rng.random(steps).astype(np.float32),
        terminated=seed % 3 != 1,
        truncated=seed % 3 == 1,
        start=rng.uniform(-1, 1, 2).astype(np.float32),
    )
    return replace(made, **changes)


def small_set(lengths: tuple[int, ...] = (3, 1, 5), **changes: Any) -> Demonstrations:
    fields = {
        "episodes": tuple(episode(t, seed=i) for i, t in enumerate(lengths)),
        "observation_space": OBSERVATIONS,
        "action_space": ACTIONS,
        "name": "small",
        "about": {"seed": 0, "by": "tests"},
    }
    return Demonstrations(**(fields | changes))


def with_episode(**changes: Any) -> Demonstrations:
    """A set whose second episode has a fault."""
    return small_set(episodes=(episode(3, 0), episode(4, 1, **changes)))


def marble_episodes(steps: int = 12, episodes: int = 3, env_id: str = "scopil/MarbleMaze-Simple-v0") -> Demonstrations:
    """The first steps of random episodes of Marble Maze, played through the Gymnasium environment."""
    env = gym.make(env_id)
    env.action_space.seed(7)
    played = []
    for i in range(episodes):
        obs, info = env.reset(seed=i)
        observations, actions, rewards, start = [obs], [], [], info["position"]
        terminated = truncated = False
        for _ in range(steps):
            actions.append(env.action_space.sample())
            obs, reward, terminated, truncated, _ = env.step(actions[-1])
            observations.append(obs)
            rewards.append(reward)
            if terminated or truncated:
                break
        played.append(
            Episode(
                observations=np.stack(observations),
                actions=np.array(actions),
                rewards=np.array(rewards),
                terminated=terminated,
                truncated=truncated,
                start=start,
            )
        )
    return Demonstrations(
        episodes=tuple(played),
        observation_space=env.observation_space,  # type: ignore[arg-type]
        action_space=env.action_space,  # type: ignore[arg-type]
        name="random",
        env_id=env_id,
    )
