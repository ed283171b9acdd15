"""Converts demonstrations to the spaces of an environment.

Dict and Tuple observations are stored as flat rows in Gymnasium's order. `Demonstrations.flattened_from` is the space
that the rows were made from.
"""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from scopil.data.arrays import READ_OFF
from scopil.data.dataset import Demonstrations
from scopil.data.record import LEFT_BOUNDS, without_bounds
from scopil.envs.base import BatchEnv
from scopil.envs.gym_env import open_env
from scopil.envs.naming import split_options
from scopil.envs.spaces import joint_sizes
from scopil.errors import DatasetError


def fit_to_env(demos: Demonstrations, env: Any) -> Demonstrations:
    """Convert a set whose spaces were inferred from the data to the spaces of `env` (an id or an environment).

    Sets with spaces of their own are returned unchanged; training checks whether those spaces agree. Raises
    `DatasetError` if the values do not fit."""
    if demos.about.get("spaces") != READ_OFF:
        return demos
    opened = open_env(env)
    try:
        return _in_spaces(demos, opened)
    finally:
        if not isinstance(env, BatchEnv):
            opened.close()


def into_spaces(demos: Demonstrations, env_id: str) -> Demonstrations:
    """Convert a set with spaces of its own to the spaces of an environment, and check the values again.

    Rows that were made from a Dict or Tuple keep that space, and dropped bounds (`LEFT_BOUNDS`) stay dropped."""
    env = open_env(env_id)
    try:
        demos, named = by_env_names(demos, env), env.spaces.flattened_from
        seen: Any = env.spaces.env_observation if named is None else env.observation_space
        if LEFT_BOUNDS in demos.about.get("assumed", []):
            seen = without_bounds(seen)
        return replace(demos, observation_space=seen, action_space=env.action_space, flattened_from=named)  # pyright: ignore[reportArgumentType]
    finally:
        env.close()


def recorded_elsewhere(demos: Demonstrations, env_id: str) -> list[str]:
    """A list with a warning if the set was recorded in another environment; else an empty list."""
    # Compare ids without options and without the module or file that defines them.
    found, given = (split_options(name)[0].rpartition(":")[2] for name in (demos.env_id or env_id, env_id))
    if found == given:
        return []
    return [f"{demos.name} was recorded in {demos.env_id}, not in {env_id}; only the spaces were compared"]


def by_env_names(demos: Demonstrations, env: BatchEnv) -> Demonstrations:
    """Change rows of Dict observations to the column order and encoding of the environment's own Dict space."""
    found, wanted = demos.flattened_from, env.spaces.env_observation
    same = found == wanted and str(found) == str(wanted)  # equality of Dicts ignores the order of names
    if found is None or not env.spaces.flat or same:
        return demos
    names, wanted_names = (set(s.spaces) if isinstance(s, gym.spaces.Dict) else None for s in (found, wanted))
    if names is None or names != wanted_names:
        given = ", ".join(found.spaces) if isinstance(found, gym.spaces.Dict) else found
        raise DatasetError(f"{demos.name}: observations of {given}; the environment has {wanted}.")
    try:
        rows = [np.stack([_row(gym.spaces.unflatten(found, row), wanted) for row in e.observations]) for e in demos]
    except (TypeError, ValueError) as error:
        raise DatasetError(f"{demos.name}: an observation is not one of {wanted}: {error}.") from error
    episodes = tuple(replace(e, observations=obs) for e, obs in zip(demos, rows))
    return replace(demos, episodes=episodes, observation_space=env.observation_space, flattened_from=wanted)  # pyright: ignore[reportArgumentType]


def _row(seen: Any, wanted: Any) -> np.ndarray:
    """Flatten a Dict observation for the environment. Its arrays may hold floats where the environment has integers."""
    parts = []
    for name, space in wanted.items():
        part: Any = np.asarray(seen[name]).reshape(space.shape or ())
        if not isinstance(space, gym.spaces.Box):
            part = part.astype(space.dtype)
            if not space.contains(part):
                raise ValueError(f"{name} is {seen[name]}, want one of {space}")
            part = gym.spaces.flatten(space, part)
        parts.append(np.ravel(part).astype(np.float32))
    return np.concatenate(parts)


def _in_spaces(demos: Demonstrations, env: BatchEnv) -> Demonstrations:
    demos, space = by_env_names(demos, env), env.spaces.stored
    seen = _rows(demos, "observations", space)
    if seen is None:
        space, seen = env.observation_space, _rows(demos, "observations", env.observation_space)
    done = _joint(demos, env) or _rows(demos, "actions", env.action_space)
    if seen is None or done is None:
        found, want = (demos.observation_space, space) if seen is None else (demos.action_space, env.action_space)
        what = "observation" if seen is None else "action"
        raise DatasetError(f"{demos.name}: {what} space {found}; the environment wants {want}.")
    episodes = tuple(replace(e, observations=obs, actions=actions) for e, obs, actions in zip(demos, seen, done))
    about = {k: v for k, v in demos.about.items() if k != "spaces"}
    # The constructor checks the values.
    return replace(demos, episodes=episodes, observation_space=space, action_space=env.action_space, about=about)  # pyright: ignore[reportArgumentType]


def _joint(demos: Demonstrations, env: BatchEnv) -> list[np.ndarray] | None:
    """Vectors of discrete actions as the integers that learners see; None if the environment takes no such vectors."""
    space = env.spaces.env_action
    if joint_sizes(space) is None or not all(e.actions.shape[1:] == space.shape for e in demos):
        return None
    try:
        return [env.spaces.to_learner(e.actions.astype(np.int64)) for e in demos]
    except ValueError as error:
        raise DatasetError(f"{demos.name}: an action is not one of {space}: {error}.") from error


def _rows(demos: Demonstrations, what: str, space: gym.Space) -> list[np.ndarray] | None:
    """The values in the shape and dtype of `space`, or None if they do not fit."""
    arrays = [getattr(e, what) for e in demos]
    if isinstance(space, gym.spaces.Discrete):
        columns = [a[:, 0] if a.shape[1:] == (1,) else a for a in arrays]
        whole = all(a.ndim == 1 and np.all(a == np.floor(a)) for a in columns)
        return [a.astype(np.int64) for a in columns] if whole else None
    if not isinstance(space, gym.spaces.Box):
        return None
    if all(a.shape[1:] == space.shape for a in arrays):
        return arrays
    if int(np.prod(space.shape)) == 1 and all(a.size == len(a) for a in arrays):
        return [a.reshape(len(a), *space.shape) for a in arrays]
    return None
