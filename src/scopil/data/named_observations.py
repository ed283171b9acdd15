"""Observations by name (Dict and Tuple spaces) as flat rows, in Gymnasium's order, and back.

A set of demonstrations holds rows; `Demonstrations.flattened_from` says which columns are which.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from scopil.errors import DatasetError


def can_be_rows(space: gym.Space) -> bool:
    """Whether observations of a space are so many numbers each."""
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, gym.spaces.Dict) else space.spaces
        return all(can_be_rows(part) for part in parts)
    known = gym.spaces.Box | gym.spaces.Discrete | gym.spaces.MultiBinary | gym.spaces.MultiDiscrete
    return isinstance(space, known)


def rows_of(space: gym.Space, values: Any, where: str) -> np.ndarray:
    """Many observations at once, in the form of `space` with a leading axis, as rows like `gymnasium.spaces.flatten`
    makes them."""
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


def by_names(values: Any, where: str, lead: int = 1) -> tuple[np.ndarray, gym.Space] | None:
    """Rows of observations that come as a dict of arrays, or as a list of dicts, and the space they make, by the order
    of the names; None where observations have no names. `lead` axes come before those of one observation."""
    if isinstance(values, Sequence) and len(values) and all(isinstance(one, Mapping) for one in values):
        if odd := [i for i, one in enumerate(values) if set(one) != set(values[0])]:
            raise DatasetError(
                f"{where}: observation {odd[0]} has {_names(values[odd[0]])}, the first {_names(values[0])}; want the "
                f"same names in all."
            )
        values = {key: [one[key] for one in values] for key in values[0]}
    if not isinstance(values, Mapping):
        return None
    parts = {str(key): numbers(values[key], f"{where}: {key}") for key in sorted(values, key=str)}
    if not parts or len({part.shape[:lead] for part in parts.values()}) != 1:
        shapes = {key: part.shape for key, part in parts.items()}
        raise DatasetError(f"{where}: observations of shapes {shapes}; want as many of each name.")
    flat = [part.reshape(*part.shape[:lead], -1) for part in parts.values()]
    space: dict[str, gym.Space] = {
        key: gym.spaces.Box(-np.inf, np.inf, part.shape[lead:], np.float32) for key, part in parts.items()
    }
    return np.concatenate(flat, axis=-1), gym.spaces.Dict(space)


def renamed(rows: np.ndarray, found: gym.Space, wanted: gym.Space, where: str) -> np.ndarray:
    """Rows of one Dict space as rows of another with the same names."""
    if found == wanted:
        return rows
    if not isinstance(found, gym.spaces.Dict):
        raise DatasetError(f"{where}: observations of {found}; the environment has {wanted}.")
    if not isinstance(wanted, gym.spaces.Dict) or set(found.spaces) != set(wanted.spaces):
        raise DatasetError(f"{where}: observations of {_names(found.spaces)}; the environment has {wanted}.")
    seen = [gym.spaces.unflatten(found, row) for row in rows]
    return rows_of(wanted, {key: [one[key] for one in seen] for key in wanted.spaces}, where)


def _element(space: gym.Space, value: Any) -> Any:
    """A number may have come as an array of one."""
    if isinstance(space, gym.spaces.Discrete):
        return int(np.asarray(value).item())
    return np.asarray(value, space.dtype).reshape(space.shape or ())


def numbers(values: Any, what: str) -> np.ndarray:
    """Rows of numbers as one array; `what` names them where they are not."""
    try:
        found = np.asarray(values)
    except ValueError as error:
        raise DatasetError(f"{what}: rows of unequal shape; want one array ({error}).") from error
    if found.dtype.kind not in "biuf" or found.ndim == 0:
        raise DatasetError(f"{what}: {found.dtype}{found.shape}; want rows of numbers.")
    return found


def _names(values: Any) -> str:
    return ", ".join(sorted(map(str, values))) if isinstance(values, Mapping) else type(values).__name__
