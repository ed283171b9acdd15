"""Demonstrations as arrays for a learner, in the spaces of its environment."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import gymnasium as gym
import jax
import numpy as np

from scopil.algos.base import PaddedEpisodes
from scopil.data.dataset import Demonstrations, DemoStarts, DemoTransitions
from scopil.data.fit_to_env import by_env_names
from scopil.envs.base import BatchEnv
from scopil.envs.spaces import within_range
from scopil.errors import DatasetError


class DemoData(NamedTuple):
    """Demonstrations on the device."""

    transitions: DemoTransitions
    episodes: PaddedEpisodes
    starts: DemoStarts


def demo_data(
    demos: Demonstrations | None, env: BatchEnv, keep: Callable[[DemoTransitions], np.ndarray] | None = None
) -> DemoData:
    """Demonstrations for a learner; `keep(transitions)` is the mask of the steps to learn from. Raises `DatasetError`
    if `demos` is None or does not fit the environment."""
    if demos is None:
        raise DatasetError(
            "this algorithm learns from demonstrations and has none; want a file such as my.npz or a shipped set such "
            "as marble-maze/simple-v1 (--demos, in Python demos=)."
        )
    demos = fitting(demos, env)
    if isinstance(env.action_space, gym.spaces.Box):
        _refuse_outside(demos, env.action_space)
    starts = DemoStarts(*demos.first_states())
    steps = demos.transitions()
    shown = _as_learned(steps, env)
    if keep is not None and not (mask := keep(steps)).all():
        shown = DemoTransitions(*(None if rows is None else rows[mask] for rows in shown))
    # `jnp.asarray` would compile a program for every shape.
    return DemoData(jax.device_put(shown), _padded(demos, env), jax.device_put(starts))


def fitting(demos: Demonstrations, env: BatchEnv) -> Demonstrations:
    """Demonstrations with observations as flat rows. Raises `DatasetError` if their spaces are not those of the
    environment."""
    demos = flattened(demos, env)
    for what in ("observation_space", "action_space"):
        found, want = getattr(demos, what), getattr(env, what)
        if type(found) is not type(want) or found.shape != want.shape or not within_range(found, want):
            raise DatasetError(f"{demos.name}: {what.replace('_', ' ')} {found}; the environment wants {want}.")
    return demos


def flattened(demos: Demonstrations, env: BatchEnv) -> Demonstrations:
    """Demonstrations with observations as flat rows, which learners need."""
    demos = by_env_names(demos, env)
    if not env.spaces.stores(demos.observation_space):
        return demos  # these are rows, or `demo_data` refuses their space
    episodes = tuple(replace(e, observations=env.spaces.encode(e.observations)) for e in demos)
    return replace(demos, episodes=episodes, observation_space=env.observation_space)


def _actions(actions: np.ndarray, env: BatchEnv) -> np.ndarray:
    """Actions in the learner's units: discrete actions are numbered from 0."""
    if isinstance(env.action_space, gym.spaces.Discrete):
        return (actions - int(env.action_space.start)).astype(np.int32)
    return actions.astype(np.float32)


def _as_learned(steps: DemoTransitions, env: BatchEnv) -> DemoTransitions:
    return DemoTransitions(
        obs=np.asarray(steps.obs, np.float32),
        action=_actions(steps.action, env),
        next_obs=np.asarray(steps.next_obs, np.float32),
        episode=np.asarray(steps.episode, np.int32),
        reward=None if steps.reward is None else np.asarray(steps.reward, np.float32),
        terminated=np.asarray(steps.terminated),
        group=np.asarray(steps.group, np.int32),
    )


def _padded(demos: Demonstrations, env: BatchEnv) -> PaddedEpisodes:
    longest = max(len(e) for e in demos)

    def pad(rows: np.ndarray) -> np.ndarray:
        return np.concatenate([rows, np.zeros((longest - len(rows), *rows.shape[1:]), rows.dtype)])

    return PaddedEpisodes(
        jax.device_put(np.stack([pad(e.observations[:-1].astype(np.float32)) for e in demos])),
        jax.device_put(np.stack([pad(_actions(e.actions, env)) for e in demos])),
        jax.device_put(np.stack([np.arange(longest) < len(e) for e in demos])),
    )


def _refuse_outside(demos: Demonstrations, box: gym.spaces.Box) -> None:
    low, high = box.low.astype(np.float32), box.high.astype(np.float32)
    actions = np.asarray(demos.actions, np.float32)
    if (outside := (actions < low) | (actions > high)).any():
        at = np.argwhere(outside)[0]
        raise DatasetError(
            f"{demos.name}: component {at[1]} of action {at[0]} is {actions[tuple(at)]:g}; the environment's actions "
            f"lie in [{low[at[1]]:g}, {high[at[1]]:g}]. Rescale or clip the demonstrations."
        )
