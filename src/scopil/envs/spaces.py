"""Conversion between the spaces of an environment and those of its learners.

A learner gets each observation as one float32 row; its actions are Discrete or a Box of floats. Dict, Tuple and image
observations become flat rows, and state numbers become one-hot rows. MultiDiscrete and MultiBinary actions become
Discrete: each combination of choices (a joint choice) has a number.
"""

from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector.utils import batch_space, iterate
from jaxtyping import Array

from scopil.errors import EnvError

JOINT_ACTIONS = 256  # largest number of joint choices of a MultiDiscrete or MultiBinary space
MOST_COLUMNS = 1_000  # more columns are not named in policy files
MOST_STATES = 10_000  # an integer observation with more values is a quantity, not a state number


class Spaces:
    """The conversion for one environment; error messages contain its `name`. Gymnasium flattens the observations.
    Observations of a JAX environment (`compiled`) are not flattened, but state numbers become one-hot rows."""

    def __init__(self, name: str, env_observation: gym.Space, env_action: gym.Space, *, compiled: bool = False):
        self.name, self.env_observation, self.env_action, self.flat = name, env_observation, env_action, not compiled
        self.action = numbered(env_action, name)  # the learner's space
        self._joint, self._start = joint_sizes(env_action) is not None, int(getattr(self.action, "start", 0))
        self.states = state_numbers(env_observation) if compiled else None  # None unless observations are state numbers
        bytes_ = not compiled and isinstance(env_observation, gym.spaces.Box) and env_observation.dtype == np.uint8
        shape: Any = env_observation.shape
        self.image: tuple[int, int, int] | None = shape if bytes_ and len(shape) == 3 else None  # shape
        if compiled and getattr(self.action, "start", 0) != 0:
            raise EnvError(f"{name}: action space {env_action}; want actions counted from 0.")
        floats = isinstance(self.action, gym.spaces.Box) and np.dtype(self.action.dtype).kind == "f"
        if not compiled and not floats and not isinstance(self.action, gym.spaces.Discrete):
            raise EnvError(
                f"{name}: action space {self.action}; want Discrete, MultiDiscrete, MultiBinary or a Box of floats. "
                f"Wrap the environment so that it takes one of these (gymnasium.wrappers.TransformAction does)."
            )
        self.observation: Any = self._rows() if not compiled else env_observation  # the learner's space
        if self.states is not None:
            self.observation = gym.spaces.Box(0.0, 1.0, (int(self.states.n),), np.float32)
        if 0 in (self.action.shape or ()) or 0 in (self.observation.shape or ()):
            raise EnvError(f"{name}: spaces {env_observation} and {env_action}; want at least one number in each.")

    def _rows(self) -> gym.spaces.Box:
        try:
            flat = gym.spaces.flatten_space(self.env_observation)
        except (NotImplementedError, ValueError):  # ValueError: an empty Dict or Tuple
            flat = None
        if not isinstance(flat, gym.spaces.Box):
            raise EnvError(
                f"{self.name}: observation space {self.env_observation} has no fixed size; want Box, Discrete, or a "
                f"Dict or Tuple of these. Wrap the environment (gymnasium.wrappers.TransformObservation does)."
            )
        low, high = (np.asarray(b, np.float32).reshape(-1) for b in (flat.low, flat.high))
        return gym.spaces.Box(low, high, dtype=np.float32)

    @property
    def size(self) -> int:
        """The length of a row."""
        return self.observation.shape[0]

    @property
    def columns(self) -> list[str]:
        """The names of a row's numbers, in their order."""
        return column_names(self.states or self.env_observation)

    @property
    def note(self) -> list[str] | None:
        """The columns, for the notes of policy files; None if there are too many."""
        return self.columns if self.size <= MOST_COLUMNS else None

    def flatten(self, observation: Any) -> np.ndarray:
        """Observations as rows; rows are unchanged. Returns a copy, since an environment may change its own array."""
        raw = self.env_observation
        if not self.flat:
            return self._one_hot(np.asarray(observation))
        if isinstance(raw, gym.spaces.Box):
            rows = np.array(observation, np.float32)
            rest = rows.ndim - len(raw.shape)
            return rows.reshape((*rows.shape[:rest], -1)) if rows.shape[rest:] == raw.shape else rows
        if raw.contains(observation):
            return np.asarray(gym.spaces.flatten(raw, observation), np.float32)
        if isinstance(observation, np.ndarray) and observation.dtype.kind == "f":
            return observation.astype(np.float32)  # flat already; the caller checks its shape
        leading = np.shape(jax.tree.leaves(observation)[0])
        if leading and (several := batch_space(raw, leading[0])).contains(observation):
            rows = [gym.spaces.flatten(raw, one) for one in iterate(several, observation)]
            return np.stack([np.asarray(row, np.float32) for row in rows])
        return np.asarray(gym.spaces.flatten(raw, observation), np.float32)

    def _one_hot(self, rows: np.ndarray) -> np.ndarray:
        # A vector of integers is an episode or a batch, even if its length is the number of states.
        several = rows.ndim == 1 and rows.dtype.kind in "iu"
        if self.states is None or (rows.shape[-1:] == self.observation.shape and not several):
            return rows.astype(np.float32)
        shape = self.env_observation.shape or (1,) * (rows.ndim > 1)
        own = len(shape) if rows.shape[rows.ndim - len(shape) :] == shape else 0
        numbers = rows.reshape(rows.shape[: rows.ndim - own]).astype(np.int64) - int(self.states.start)
        return np.eye(int(self.states.n), dtype=np.float32)[numbers]

    def one_hot_in_jax(self, obs: Array) -> Array:
        if self.states is None:
            return obs.astype(jnp.float32)
        first, count = int(self.states.start), int(self.states.n)
        return jax.nn.one_hot(obs.reshape(()) - first, count, dtype=jnp.float32)

    def unflatten(self, row: Any) -> Any:
        """An observation in the environment's form, from a row; an observation in that form is unchanged."""
        own, states = self.env_observation, self.states
        if self.flat:
            flat = isinstance(own, gym.spaces.Box) or np.shape(row) == (self.size,)
            return gym.spaces.unflatten(own, np.asarray(row)) if flat else row
        if states is None or np.shape(row) != (states.n,) or own.shape == (states.n,):
            return row
        return np.asarray(np.argmax(row) + states.start, own.dtype).reshape(own.shape)

    def unflatten_in_jax(self, row: Array) -> Any:
        """Like `unflatten`, for a row in a compiled program."""
        if self.flat:
            return _unflattened(self.env_observation, row)
        if self.states is None:
            return row
        return (jnp.argmax(row) + int(self.states.start)).reshape(self.env_observation.shape or ())

    def row(self, obs: Any) -> np.ndarray:
        """One Gymnasium observation as a new row. Raises `EnvError` if it has a wrong shape or is not finite."""
        raw = self.env_observation
        if isinstance(raw, gym.spaces.Box):
            row = np.array(obs, np.float32)
            if row.shape != raw.shape:
                raise EnvError(f"an observation of shape {row.shape}; want its space's {raw.shape}")
            return self._finite(row.reshape(-1))
        row = np.array(gym.spaces.flatten(raw, obs), np.float32)
        if row.shape != (self.size,):
            raise EnvError(f"an observation of {row.size} numbers; want the {self.size} of its space {raw}")
        return self._finite(row)

    def rows(self, obs: Any, batched: gym.Space, count: int) -> np.ndarray:
        """`row` for a batch of `count` observations from the space `batched`."""
        raw = self.env_observation
        if not isinstance(raw, gym.spaces.Box):
            return np.stack([self.row(one) for one in iterate(batched, obs)])
        rows = np.array(obs, np.float32)
        if rows.shape != (count, *raw.shape):
            raise EnvError(f"observations of shape {rows.shape}; want its space's {(count, *raw.shape)}")
        return self._finite(rows.reshape(count, -1))

    @property
    def flattened_from(self) -> gym.Space | None:
        """The environment's space if demonstrations store it as flat rows (for example a Dict); else None."""
        own = self.env_observation
        return None if isinstance(own, gym.spaces.Box | gym.spaces.Discrete) else own

    @property
    def stored(self) -> gym.Space:
        """The space of stored observations: state numbers instead of one-hot rows."""
        if self.flattened_from is not None:
            return self.observation
        return self.env_observation if self.states is None else self.states

    def to_stored(self, observation: Any) -> np.ndarray:
        """A copy of a Gymnasium environment's observation, in the form that demonstrations store."""
        return np.array(observation) if self.flattened_from is None else self.row(observation)

    def stores(self, space: gym.Space) -> bool:
        """Whether `encode` can convert stored observations of this space to rows."""
        if self.states is not None:
            found = state_numbers(space)
            return found is not None and within_range(found, self.states)
        raw = self.env_observation
        same = type(space) is type(raw) and space.shape == raw.shape and space.shape != self.observation.shape
        return bool(self.flat and same and getattr(space, "n", 0) <= getattr(raw, "n", 0))

    def encode(self, observations: np.ndarray) -> np.ndarray:
        return np.stack([self.row(obs) for obs in observations]) if self.flat else self.flatten(observations)

    def to_env(self, actions: Any) -> Any:
        """Convert actions from the learner's space to the environment's space."""
        space = self.env_action
        if joint_sizes(space) is not None:
            return split(actions, space)
        if self.action is space:
            return _within(actions, space)
        assert space.shape is not None
        return np.asarray(actions, space.dtype).reshape((*np.shape(actions), *space.shape))

    def from_policy(self, actions: np.ndarray) -> np.ndarray:
        """Convert a batch of a policy's actions, numbered from 0, to the environment's space."""
        space = self.env_action
        if self._joint:
            return split(actions, space)
        assert space.shape is not None
        shifted = (np.asarray(actions) + self._start).astype(space.dtype)
        return _within(shifted.reshape((-1, *space.shape)), space)

    def to_env_in_jax(self, action: Array) -> Array:
        space = self.env_action
        if (sizes := joint_sizes(space)) is not None:
            return (jnp.stack(jnp.unravel_index(action, sizes), axis=-1) + _first(space)).reshape(space.shape)
        return action if self.action is space else action.reshape(space.shape)  # pyright: ignore[reportCallIssue, reportArgumentType]

    def to_learner(self, actions: Any) -> np.ndarray:
        """Convert actions from the environment's space to the learner's space."""
        assert self.env_action.shape is not None
        if not isinstance(self.action, gym.spaces.Discrete):
            return np.asarray(actions)
        lead = np.shape(actions)[: np.ndim(actions) - len(self.env_action.shape)]
        actions = np.asarray(actions) if joint_sizes(self.env_action) is None else joined(actions, self.env_action)
        return actions.reshape(lead)

    def _finite(self, rows: np.ndarray) -> np.ndarray:
        if not np.isfinite(rows).all():
            at = np.argwhere(~np.isfinite(rows))[0]
            raise EnvError(f"column {self.columns[at[-1]]} of an observation is {rows[tuple(at)]}; want finite numbers")
        return rows


def _unflattened(space: gym.Space, row: Array) -> Any:
    """As `gymnasium.spaces.unflatten`, in JAX."""
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        several = space.spaces if isinstance(space, gym.spaces.Dict) else dict(enumerate(space.spaces))
        ends = np.cumsum([gym.spaces.flatdim(part) for part in several.values()])[:-1].tolist()
        parts = [_unflattened(part, one) for part, one in zip(several.values(), jnp.split(row, ends), strict=True)]
        return dict(zip(several, parts, strict=True)) if isinstance(space, gym.spaces.Dict) else tuple(parts)
    if isinstance(space, gym.spaces.Discrete):
        return jnp.argmax(row) + int(space.start)
    if isinstance(space, gym.spaces.MultiDiscrete):
        ends = np.cumsum(np.ravel(space.nvec))[:-1].tolist()
        numbers = jnp.stack([jnp.argmax(one) for one in jnp.split(row, ends)])
        return numbers.reshape(space.shape) + jnp.asarray(space.start)
    whole = np.dtype(space.dtype).kind in "iub"  # pyright: ignore[reportArgumentType]
    return row.reshape(space.shape).astype(jnp.int32 if whole else jnp.float32)  # pyright: ignore[reportArgumentType]


def column_names(space: gym.Space, name: str = "") -> list[str]:
    """The names of the numbers of a flat row, in Gymnasium's order: `pose[0]`, `pose[1]`, `speed`, `gear=2` (one-hot).

    Gymnasium sorts the names of `Dict({...})`. Nested names are joined by a dot. A space without names is `obs`.
    """
    if isinstance(space, gym.spaces.Dict):
        parts = [(f"{name}.{key}" if name else str(key), part) for key, part in space.spaces.items()]
        return [column for key, part in parts for column in column_names(part, key)]
    name = name or "obs"
    if isinstance(space, gym.spaces.Tuple):
        return [column for i, part in enumerate(space.spaces) for column in column_names(part, f"{name}[{i}]")]
    if isinstance(space, gym.spaces.Discrete):
        return [f"{name}={int(space.start) + i}" for i in range(int(space.n))]
    if isinstance(space, gym.spaces.MultiDiscrete):
        several, first = np.ravel(space.nvec), np.ravel(space.start)
        return [f"{name}[{i}]={first[i] + k}" for i, count in enumerate(several) for k in range(count)]
    shape = space.shape if isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary) else (gym.spaces.flatdim(space),)
    if int(np.prod(shape)) == 1:
        return [name]
    return [f"{name}[{','.join(map(str, index))}]" for index in np.ndindex(*shape)]


def within_range(found: gym.Space, want: gym.Space) -> bool:
    """Whether the Discrete space `want` contains all values of `found`; True for other spaces."""
    if not (isinstance(found, gym.spaces.Discrete) and isinstance(want, gym.spaces.Discrete)):
        return True
    return bool(want.start <= found.start and found.start + found.n <= want.start + want.n)


def state_numbers(observation: gym.Space) -> gym.spaces.Discrete | None:
    """The Discrete space of state numbers; None if observations are not state numbers."""
    if isinstance(observation, gym.spaces.Discrete):
        return observation
    return _one_integer(observation, MOST_STATES)


def _one_integer(space: gym.Space, most: int = 2**62) -> gym.spaces.Discrete | None:
    """The Discrete space equivalent to a Box of one integer with at most `most` values; None for other spaces."""
    if not isinstance(space, gym.spaces.Box) or np.dtype(space.dtype).kind not in "iu" or space.low.size != 1:
        return None
    low, high = int(space.low.item()), int(space.high.item())
    return gym.spaces.Discrete(high - low + 1, start=low) if high - low < most else None


def numbered(action: gym.Space, name: str = "the environment") -> gym.Space:
    """A Box of one integer, a MultiDiscrete or a MultiBinary space as Discrete; any other space unchanged."""
    if (sizes := joint_sizes(action)) is not None:
        if (count := int(np.prod(sizes, dtype=object))) > JOINT_ACTIONS:
            raise EnvError(
                f"{name}: action space {action} has {count:,} joint choices; want at most {JOINT_ACTIONS}. Wrap the "
                f"environment so that it takes fewer choices, or a Box (gymnasium.wrappers.TransformAction does)."
            )
        return gym.spaces.Discrete(count)
    return _one_integer(action) or action


def joint_sizes(action: gym.Space) -> tuple[int, ...] | None:
    """The number of choices of each component; None unless the space is MultiDiscrete or MultiBinary."""
    if isinstance(action, gym.spaces.MultiBinary):
        return (2,) * int(np.prod(action.shape))
    if isinstance(action, gym.spaces.MultiDiscrete):
        return tuple(int(n) for n in np.ravel(action.nvec))
    return None


def _first(space: gym.Space) -> np.ndarray:
    return np.ravel(getattr(space, "start", 0))


def joined(actions: Any, space: gym.Space) -> np.ndarray:
    """Vectors of choices as numbers of joint choices; the last component varies fastest."""
    sizes = joint_sizes(space)
    assert sizes is not None
    return np.asarray(np.ravel_multi_index(tuple((np.reshape(actions, (-1, len(sizes))) - _first(space)).T), sizes))


def split(numbers: Any, space: gym.Space) -> np.ndarray:
    """The inverse of `joined`: vectors of choices in the shape and dtype of the space."""
    sizes = joint_sizes(space)
    assert sizes is not None
    assert space.shape is not None
    parts = np.stack(np.unravel_index(np.asarray(numbers), sizes), axis=-1) + _first(space)
    return parts.reshape((*np.shape(numbers), *space.shape)).astype(space.dtype)


def _within(actions: Any, space: gym.Space) -> Any:
    """Clip actions of a float64 Box that exceed a bound only because of rounding to single precision."""
    if not isinstance(space, gym.spaces.Box) or space.dtype != np.float64:
        return actions
    exact, single = np.asarray(actions, np.float64), np.asarray(actions, np.float32)
    inside = (single >= space.low.astype(np.float32)) & (single <= space.high.astype(np.float32))
    return np.where(inside, np.clip(exact, space.low, space.high), exact)
