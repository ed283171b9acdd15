"""Demonstrations in the spaces of an environment, and Dict or Tuple observations as flat rows in Gymnasium's order.

A set stores rows; `Demonstrations.flattened_from` is the space that the rows were made from.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from scopil.data.arrays import READ_OFF
from scopil.data.dataset import Demonstrations
from scopil.data.record import LEFT_BOUNDS, is_flattened, without_bounds
from scopil.envs.base import BatchEnv
from scopil.envs.gym_env import open_env
from scopil.envs.naming import split_options
from scopil.envs.spaces import joined, joint_sizes
from scopil.errors import DatasetError


def fit_to_env(demos: Demonstrations, env: Any) -> Demonstrations:
    """A set whose spaces were taken from the data, in the spaces of `env` (an id or an environment).

    Sets with spaces of their own are returned unchanged; training checks whether these agree. Raises `DatasetError` if
    the numbers do not fit."""
    if demos.about.get("spaces") != READ_OFF:
        return demos
    opened = open_env(env)
    try:
        return _in_spaces(demos, opened)
    finally:
        if not isinstance(env, BatchEnv):
            opened.close()


def into_spaces(demos: Demonstrations, env_id: str) -> Demonstrations:
    """A set with spaces of its own in those of an environment, checked again.

    Rows that were made from a Dict or Tuple keep that space, and dropped bounds (`LEFT_BOUNDS`) stay dropped."""
    env = open_env(env_id)
    try:
        demos, given = by_env_names(demos, env), env.spaces.env_observation
        flat = is_flattened(given)
        seen: Any = env.observation_space if flat else given
        if LEFT_BOUNDS in demos.about.get("assumed", []):
            seen = without_bounds(seen)
        named = given if flat else None
        return replace(demos, observation_space=seen, action_space=env.action_space, flattened_from=named)  # pyright: ignore[reportArgumentType]
    finally:
        env.close()


def recorded_elsewhere(demos: Demonstrations, env_id: str) -> list[str]:
    """A warning if the set names another environment, whose spaces may be the same; else an empty list."""
    if demos.env_id is None or _bare(demos.env_id) == _bare(env_id):
        return []
    return [f"{demos.name} was recorded in {demos.env_id}, not in {env_id}; only the spaces were compared"]


def _bare(env_id: str) -> str:
    """The id without options, and without the module or file that defines it."""
    return split_options(env_id)[0].rpartition(":")[2]


def by_env_names(demos: Demonstrations, env: BatchEnv) -> Demonstrations:
    """Rows of Dict observations with the columns in the order and encoding of the environment's own Dict space."""
    if demos.flattened_from is None or not env.spaces.flat or demos.flattened_from == env.spaces.env_observation:
        return demos
    episodes = tuple(
        replace(e, observations=_renamed(e.observations, demos.flattened_from, env.spaces.env_observation, demos.name))
        for e in demos
    )
    space = env.observation_space
    return replace(demos, episodes=episodes, observation_space=space, flattened_from=env.spaces.env_observation)  # pyright: ignore[reportArgumentType]


def _in_spaces(demos: Demonstrations, env: BatchEnv) -> Demonstrations:
    demos = by_env_names(demos, env)
    raw = env.spaces.stored
    about = {k: v for k, v in demos.about.items() if k != "spaces"}
    seen = _rows(demos, "observations", raw)
    if seen is None:
        raw, seen = env.observation_space, _rows(demos, "observations", env.observation_space)
    done = _joint(demos, env) or _rows(demos, "actions", env.action_space)
    for rows, what, want in ((seen, "observation", raw), (done, "action", env.action_space)):
        if rows is None:
            found = getattr(demos, f"{what}_space")
            raise DatasetError(f"{demos.name}: {what} space {found}; the environment wants {want}.")
    assert seen is not None
    assert done is not None
    episodes = tuple(replace(e, observations=obs, actions=actions) for e, obs, actions in zip(demos, seen, done))
    # The constructor checks the values.
    return replace(demos, episodes=episodes, observation_space=raw, action_space=env.action_space, about=about)


def _joint(demos: Demonstrations, env: BatchEnv) -> list[np.ndarray] | None:
    """Vectors of choices as the numbers that learners see; None if the environment takes no such vectors."""
    space = env.spaces.env_action
    if joint_sizes(space) is None or not all(e.actions.shape[1:] == space.shape for e in demos):
        return None
    try:
        return [joined(e.actions.astype(np.int64), space) for e in demos]
    except ValueError as error:
        raise DatasetError(f"{demos.name}: an action is not one of {space}: {error}.") from error


def _rows(demos: Demonstrations, what: str, space: gym.Space) -> list[np.ndarray] | None:
    """The same numbers in the shape and dtype of a space; None if that is impossible."""
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


# --- observations by name ---------------------------------------------------------------------------------------------


def can_be_rows(space: gym.Space) -> bool:
    """Whether observations of a space have a fixed number of components."""
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, gym.spaces.Dict) else space.spaces
        return all(can_be_rows(part) for part in parts)
    known = gym.spaces.Box | gym.spaces.Discrete | gym.spaces.MultiBinary | gym.spaces.MultiDiscrete
    return isinstance(space, known)


def rows_of(space: gym.Space, values: Any, where: str) -> np.ndarray:
    """Observations in the form of `space`, with a leading axis, as flat rows in the order of
    `gymnasium.spaces.flatten`."""
    if isinstance(space, gym.spaces.Dict):
        if missing := [key for key in space.spaces if key not in values]:
            raise DatasetError(f"{where}: no observations of {', '.join(missing)}; found {_names(values)}.")
        return np.concatenate([rows_of(one, values[key], where) for key, one in space.items()], axis=1)
    if isinstance(space, gym.spaces.Tuple):
        return np.concatenate([rows_of(one, part, where) for one, part in zip(space.spaces, values)], axis=1)
    try:
        if isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary):
            found = np.asarray(values, np.float32)
            return found.reshape(len(found), int(np.prod(space.shape)))
        each = [gym.spaces.flatten(space, _element(space, value)) for value in values]
        return np.stack([np.asarray(row, np.float32) for row in each])
    except (TypeError, ValueError, IndexError, NotImplementedError) as error:
        raise DatasetError(f"{where}: an observation is not one of {space}: {error}.") from error


def _renamed(rows: np.ndarray, found: gym.Space, wanted: gym.Space, where: str) -> np.ndarray:
    """Rows of one Dict space as rows of another with the same names."""
    if not isinstance(found, gym.spaces.Dict):
        raise DatasetError(f"{where}: observations of {found}; the environment has {wanted}.")
    if not isinstance(wanted, gym.spaces.Dict) or set(found.spaces) != set(wanted.spaces):
        raise DatasetError(f"{where}: observations of {_names(found.spaces)}; the environment has {wanted}.")
    seen = [gym.spaces.unflatten(found, row) for row in rows]
    return rows_of(wanted, {key: [one[key] for one in seen] for key in wanted.spaces}, where)


def _element(space: gym.Space, value: Any) -> Any:
    """A value of the space; a single number may be given as an array of one."""
    if isinstance(space, gym.spaces.Discrete):
        return int(np.asarray(value).item())
    return np.asarray(value, space.dtype).reshape(space.shape or ())


def _names(values: Any) -> str:
    return ", ".join(sorted(map(str, values))) if isinstance(values, Mapping) else type(values).__name__
