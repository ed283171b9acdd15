"""Demonstrations as learners get them: arrays in the form of the environment they are used with."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import gymnasium as gym
import jax.numpy as jnp
import numpy as np

from scopil.algos.base import PaddedEpisodes
from scopil.data.dataset import Demonstrations, DemoStarts, DemoTransitions
from scopil.data.fit_to_env import by_env_names
from scopil.envs.action_codec import state_numbers
from scopil.envs.base import BatchEnv
from scopil.envs.gym_env import HostEnv
from scopil.envs.jax_env import CompiledEnv
from scopil.errors import DatasetError


class DemoData(NamedTuple):
    transitions: DemoTransitions
    episodes: PaddedEpisodes
    starts: DemoStarts


def demo_data(
    demos: Demonstrations | None, env: BatchEnv, keep: Callable[[DemoTransitions], np.ndarray] | None = None
) -> DemoData:
    """Demonstrations for a learner. `keep` gives the mask of the steps that are learned from.

    Raises DatasetError if they do not fit the environment."""
    if demos is None:
        raise DatasetError(
            "this algorithm learns from demonstrations; give it some: a file (--demos my.npz), or a shipped set such "
            "as marble-maze/simple-v1."
        )
    demos = flattened(demos, env)
    for what in ("observation_space", "action_space"):
        found, want = getattr(demos, what), getattr(env, what)
        if type(found) is not type(want) or found.shape != want.shape or not _inside(found, want):
            raise DatasetError(f"{demos.name}: {what.replace('_', ' ')} {found}; the environment wants {want}.")
    if isinstance(env.action_space, gym.spaces.Box):
        _refuse_outside(demos, env.action_space)
    starts = DemoStarts(*(jnp.asarray(rows) for rows in demos.first_states()))
    steps = demos.transitions()
    shown = _as_learned(steps, env)
    if keep is not None and not (mask := keep(steps)).all():
        shown = DemoTransitions(*(None if rows is None else rows[mask] for rows in shown))
    return DemoData(shown, _padded(demos, env), starts)


def flattened(demos: Demonstrations, env: BatchEnv) -> Demonstrations:
    """Observations as the environment gave them become the flat rows that learners see."""
    if not isinstance(env, HostEnv):
        return _one_hot(demos, env) if isinstance(env, CompiledEnv) else demos
    demos = by_env_names(demos, env)
    found, raw = demos.observation_space, env.flat.raw
    same = type(found) is type(raw) and found.shape == raw.shape and found.shape != env.observation_space.shape
    if not same or getattr(found, "n", 0) > getattr(raw, "n", 0):
        return demos  # flat already, or refused with the spaces
    episodes = tuple(replace(e, observations=np.stack([env.flat.row(obs) for obs in e.observations])) for e in demos)
    return replace(demos, episodes=episodes, observation_space=env.observation_space)


def _one_hot(demos: Demonstrations, env: CompiledEnv) -> Demonstrations:
    found, want = state_numbers(demos.observation_space), env.state_numbers
    if found is None or want is None or not _inside(found, want):
        return demos
    episodes = tuple(replace(e, observations=env.flatten(e.observations)) for e in demos)
    return replace(demos, episodes=episodes, observation_space=env.observation_space)


def _actions(actions: np.ndarray, env: BatchEnv) -> np.ndarray:
    """Learners count discrete actions from 0."""
    if isinstance(env.action_space, gym.spaces.Discrete):
        return (actions - int(env.action_space.start)).astype(np.int32)
    return actions.astype(np.float32)


def _as_learned(steps: DemoTransitions, env: BatchEnv) -> DemoTransitions:
    return DemoTransitions(
        obs=jnp.asarray(steps.obs, jnp.float32),
        action=jnp.asarray(_actions(steps.action, env)),
        next_obs=jnp.asarray(steps.next_obs, jnp.float32),
        episode=jnp.asarray(steps.episode, jnp.int32),
        reward=None if steps.reward is None else jnp.asarray(steps.reward, jnp.float32),
        terminated=jnp.asarray(steps.terminated),
        group=jnp.asarray(steps.group, jnp.int32),
    )


def _padded(demos: Demonstrations, env: BatchEnv) -> PaddedEpisodes:
    longest = max(len(e) for e in demos)

    def pad(rows: np.ndarray) -> np.ndarray:
        return np.concatenate([rows, np.zeros((longest - len(rows), *rows.shape[1:]), rows.dtype)])

    return PaddedEpisodes(
        jnp.asarray(np.stack([pad(e.observations[:-1].astype(np.float32)) for e in demos])),
        jnp.asarray(np.stack([pad(_actions(e.actions, env)) for e in demos])),
        jnp.asarray(np.stack([np.arange(longest) < len(e) for e in demos])),
    )


def _inside(found: gym.Space, want: gym.Space) -> bool:
    """Whether all numbers of one Discrete are numbers of the other; of boxes the demonstrated values are checked."""
    if not (isinstance(found, gym.spaces.Discrete) and isinstance(want, gym.spaces.Discrete)):
        return True
    return bool(want.start <= found.start and found.start + found.n <= want.start + want.n)


def _refuse_outside(demos: Demonstrations, box: gym.spaces.Box) -> None:
    low, high = box.low.astype(np.float32), box.high.astype(np.float32)
    actions = np.asarray(demos.actions, np.float32)
    if (outside := (actions < low) | (actions > high)).any():
        at = np.argwhere(outside)[0]
        raise DatasetError(
            f"{demos.name}: component {at[1]} of action {at[0]} is {actions[tuple(at)]:g}; the environment's actions "
            f"lie in [{low[at[1]]:g}, {high[at[1]]:g}]. Rescale or clip the demonstrations."
        )
