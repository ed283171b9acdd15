"""Small environments with a rule: two steps per episode, where the action with the highest reward violates it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import jax.numpy as jnp
import numpy as np

import scopil
from probes import Probe
from scopil.envs.as_gym import FunctionalEnv
from scopil.envs.jax_env import CompiledEnv

ARMS = gym.spaces.Discrete(3)
BOX = gym.spaces.Box(-1.0, 3.0, (1,), np.float32)
LIMIT = 1.0  # of the continuous action: a larger one violates the rule
# Small settings that tests share: equal structures are compiled once per test run.
REPLAY: dict[str, Any] = {"hidden": (8,), "batch_size": 32, "replay_size": 128}
ROLLOUT: dict[str, Any] = {"hidden": (8,), "num_envs": 8, "rollout_steps": 8, "batch_size": 32, "epochs": 4}
INVERSE: dict[str, Any] = {"constraint_hidden": (8,), "forward_steps": 128, "rollouts": 8, "backward_iters": 5}
TABLES: dict[str, Any] = {"recent": 200, "matched_capacity": 400, "slots": 3}  # of SCOPIL-ρ: a refresh sorts all rows
SHOWN_ARM, SHOWN_ACTION = 1, 0.5  # the demonstrated actions


class Arms(Probe):
    """Three arms pay 0, ½ and 1; the last violates the rule. Two steps per episode. Observed are a sign, drawn at the
    start, and the step."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = ARMS

    def observation(self, state, rng, params=None):
        return jnp.stack([state.sign, jnp.float32(state.clock)])

    def terminal(self, state, rng, params=None):
        return state.clock >= 2

    def reward(self, state, action, next_state, rng, params=None):
        return 0.5 * jnp.float32(action)

    def transition_info(self, state, action, next_state, params=None):
        return {"cost": jnp.float32(action == 2)}


class Throttle(Arms):
    """The same with one continuous action: reward grows with it, and above the limit it violates the rule."""

    action_space = BOX

    def reward(self, state, action, next_state, rng, params=None):
        return 0.25 * (action[0] + 1.0)

    def transition_info(self, state, action, next_state, params=None):
        return {"cost": jnp.float32(action[0] > LIMIT)}


class Drive(Throttle):
    """The same; the action moves the first component."""

    def transition(self, state, action, rng, params=None):
        return state._replace(sign=state.sign + action[0], clock=state.clock + 1)


def drive_demos(episodes: int = 8) -> scopil.Demonstrations:
    """Demonstrations of `Drive` without violations."""
    starts = np.resize([1.0, -1.0], episodes)
    observations = [np.array([[s + SHOWN_ACTION * t, t] for t in range(3)], np.float32) for s in starts]
    return scopil.Demonstrations.from_arrays(
        observations, [np.full((2, 1), SHOWN_ACTION, np.float32)] * episodes, action_space=BOX
    )


def toy(continuous: bool) -> CompiledEnv:
    return CompiledEnv(Throttle() if continuous else Arms(), max_episode_steps=2)


def toy_demos(continuous: bool, episodes: int = 4) -> scopil.Demonstrations:
    """Demonstrations without violations."""
    observations = [
        np.array([[sign, 0], [sign, 1], [sign, 2]], np.float32) for sign in np.resize([1.0, -1.0], episodes)
    ]
    action: Any = np.full((2, 1), SHOWN_ACTION, np.float32) if continuous else np.full(2, SHOWN_ARM)
    return scopil.Demonstrations.from_arrays(
        observations, [action] * episodes, action_space=BOX if continuous else ARMS
    )


@contextmanager
def registered_toy(env: CompiledEnv, name: str) -> Iterator[str]:
    """An id for `env`; each `gym.make` returns the same compiled object, so that nothing is compiled again."""
    gym.register(name, entry_point=lambda **_: FunctionalEnv(env))
    try:
        yield name
    finally:
        del gym.registry[name]
