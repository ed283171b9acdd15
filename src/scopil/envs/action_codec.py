"""Actions that are learned as numbers: a Box of one integer, and several choices at a time as one joint choice."""

from typing import Any

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from scopil.errors import EnvError

JOINT_ACTIONS = 256  # as many joint choices of a MultiDiscrete or MultiBinary space are enumerated


def numbered(action: gym.Space, name: str = "the environment") -> gym.Space:
    """The Discrete space that a Box of one integer, a MultiDiscrete or a MultiBinary space amounts to; any other space
    unchanged."""
    if (sizes := joint_sizes(action)) is not None:
        if (count := int(np.prod(sizes, dtype=object))) > JOINT_ACTIONS:
            raise EnvError(
                f"{name}: action space {action} has {count:,} joint choices; want at most {JOINT_ACTIONS}. Wrap the "
                f"environment so that it takes fewer choices, or a Box (gymnasium.wrappers.TransformAction does)."
            )
        return gym.spaces.Discrete(count)
    if not isinstance(action, gym.spaces.Box) or np.dtype(action.dtype).kind not in "iu" or action.low.size != 1:
        return action
    low, high = int(action.low.item()), int(action.high.item())
    return gym.spaces.Discrete(high - low + 1, start=low)


def joint_sizes(action: gym.Space) -> tuple[int, ...] | None:
    """How many choices each part of an action has; None where an action is no vector of choices."""
    if isinstance(action, gym.spaces.MultiBinary):
        return (2,) * int(np.prod(action.shape))
    if isinstance(action, gym.spaces.MultiDiscrete):
        return tuple(int(n) for n in np.ravel(action.nvec))
    return None


def joined(actions: Any, space: gym.Space) -> np.ndarray:
    """Vectors of choices as numbers of joint choices, the last part counting fastest."""
    sizes, first = joint_sizes(space), np.ravel(getattr(space, "start", 0))
    assert sizes is not None
    parts = np.reshape(actions, (-1, len(sizes))) - first
    return np.asarray(np.ravel_multi_index(tuple(parts.T), sizes))


def split(numbers: Any, space: gym.Space) -> np.ndarray:
    """The vectors of choices that numbers stand for, in the shape and dtype of the space."""
    sizes, first = joint_sizes(space), np.ravel(getattr(space, "start", 0))
    assert sizes is not None
    assert space.shape is not None
    parts = np.stack(np.unravel_index(np.asarray(numbers), sizes), axis=-1) + first
    return parts.reshape((*np.shape(numbers), *space.shape)).astype(space.dtype)


def taken(actions: Any, space: gym.Space) -> Any:
    """Actions of a policy as an environment with that action space takes them: of several choices at a time all of
    them, and one integer in the shape of its Box. Other actions are in that form already."""
    if joint_sizes(space) is not None:
        return split(actions, space)
    if numbered(space) is space:
        return within(actions, space)
    assert space.shape is not None
    return np.asarray(actions, space.dtype).reshape((*np.shape(actions), *space.shape))


def within(actions: Any, space: gym.Space) -> Any:
    """Real actions at the bounds of their space, which single precision misses by its last digit: its 0.1 is above 0.1.
    What is truly beyond them stays there."""
    if not isinstance(space, gym.spaces.Box) or space.dtype != np.float64:
        return actions
    exact, single = np.asarray(actions, np.float64), np.asarray(actions, np.float32)
    inside = (single >= space.low.astype(np.float32)) & (single <= space.high.astype(np.float32))
    return np.where(inside, np.clip(exact, space.low, space.high), exact)


def split_in_jax(number: Array, space: gym.Space) -> Array:
    """`split` of one number inside a compiled program."""
    sizes, first = joint_sizes(space), np.ravel(getattr(space, "start", 0))
    assert sizes is not None
    parts = jnp.stack(jnp.unravel_index(number, sizes), axis=-1) + first
    return parts.reshape(space.shape)


MOST_STATES = 10_000  # more numbers than that are a quantity rather than states


def state_numbers(observation: gym.Space) -> gym.spaces.Discrete | None:
    """Observations that number states, as a Discrete space. They enter one-hot: state 7 is not between 6 and 8."""
    if not isinstance(observation, gym.spaces.Box):
        return observation if isinstance(observation, gym.spaces.Discrete) else None
    if np.dtype(observation.dtype).kind not in "iu" or observation.low.size != 1:
        return None
    low, high = int(observation.low.item()), int(observation.high.item())
    return gym.spaces.Discrete(high - low + 1, start=low) if high - low < MOST_STATES else None
