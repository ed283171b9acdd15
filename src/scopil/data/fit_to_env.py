"""Plain arrays in the spaces of the environment they were recorded on."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from scopil.data.arrays import READ_OFF
from scopil.data.dataset import Demonstrations
from scopil.data.named_observations import renamed
from scopil.data.recorder import LEFT_BOUNDS, without_bounds
from scopil.envs.action_codec import joined, joint_sizes
from scopil.envs.base import BatchEnv
from scopil.envs.gym_env import HostEnv, open_env
from scopil.envs.jax_env import CompiledEnv
from scopil.envs.naming import split_options
from scopil.errors import DatasetError


def fit_to_env(demos: Demonstrations, env: Any) -> Demonstrations:
    """A set whose spaces were taken from the data gets those of `env`, an id or an environment; numbers outside of
    them are refused. Sets with spaces of their own stay as they are: training checks whether these agree."""
    if demos.about.get("spaces") != READ_OFF:
        return demos
    opened = open_env(env)
    try:
        return _in_spaces(demos, opened)
    finally:
        if not isinstance(env, BatchEnv):
            opened.close()


def into_spaces(demos: Demonstrations, env_id: str) -> Demonstrations:
    """A set with spaces of its own in those of an environment, checked again. Rows that were made from a Dict or Tuple
    keep their names, and bounds that the environment is known to leave stay dropped."""
    env = open_env(env_id)
    try:
        demos, given = by_env_names(demos, env), env.given_space
        flat = not isinstance(given, gym.spaces.Box | gym.spaces.Discrete)
        seen: Any = env.observation_space if flat else given
        if LEFT_BOUNDS in demos.about.get("assumed", []):
            seen = without_bounds(seen)
        named = given if flat else None
        return replace(demos, observation_space=seen, action_space=env.action_space, flattened_from=named)  # pyright: ignore[reportArgumentType]
    finally:
        env.close()


def recorded_elsewhere(demos: Demonstrations, env_id: str) -> list[str]:
    """A sentence where a set says that it is of another environment: the spaces may be the same."""
    if demos.env_id is None or _bare(demos.env_id) == _bare(env_id):
        return []
    return [f"{demos.name} was recorded in {demos.env_id}, not in {env_id}; only the spaces were compared"]


def _bare(env_id: str) -> str:
    """Without options, and without the module or file that it is found in."""
    return split_options(env_id)[0].rpartition(":")[2]


def by_env_names(demos: Demonstrations, env: BatchEnv) -> Demonstrations:
    """Observations by name in the order, and the kinds of numbers, of the environment's own names."""
    if demos.flattened_from is None or not isinstance(env, HostEnv) or demos.flattened_from == env.flat.raw:
        return demos
    episodes = tuple(
        replace(e, observations=renamed(e.observations, demos.flattened_from, env.flat.raw, demos.name)) for e in demos
    )
    space = env.observation_space
    return replace(demos, episodes=episodes, observation_space=space, flattened_from=env.flat.raw)  # pyright: ignore[reportArgumentType]


def _in_spaces(demos: Demonstrations, env: BatchEnv) -> Demonstrations:
    demos = by_env_names(demos, env)
    raw = _shown(env)
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
    return replace(
        demos, episodes=episodes, observation_space=raw, action_space=env.action_space, about=about
    )  # which checks the values


def _shown(env: BatchEnv) -> gym.Space:
    """The space of observations as the environment gives them: of states that learners see one-hot, their numbers."""
    if isinstance(env, CompiledEnv) and env.state_numbers is not None:
        return env.state_numbers
    return env.flat.raw if isinstance(env, HostEnv) else env.observation_space


def _joint(demos: Demonstrations, env: BatchEnv) -> list[np.ndarray] | None:
    """Vectors of choices as the numbers that learners see; None where the environment takes no such vectors."""
    space = env.taken_space
    if joint_sizes(space) is None or not all(e.actions.shape[1:] == space.shape for e in demos):
        return None
    try:
        return [joined(e.actions.astype(np.int64), space) for e in demos]
    except ValueError as error:
        raise DatasetError(f"{demos.name}: an action is not one of {space}: {error}.") from error


def _rows(demos: Demonstrations, what: str, space: gym.Space) -> list[np.ndarray] | None:
    """The same numbers in the shape and dtype of a space; None where that is impossible."""
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
