"""What every algorithm is made of: a config, a state, and a handful of pure functions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from jaxtyping import Array, Float

from scopil.errors import EnvError
from scopil.types import PRNGKey

Metrics = dict[str, Float[Array, ""]]


class Spaces(NamedTuple):
    """Sizes an algorithm builds its networks for."""

    obs_dim: int
    num_actions: int


class Pairs(NamedTuple):
    """Demonstrated (state, action) pairs."""

    obs: Float[Array, "B D"]
    action: Array


NumpyLogits = Callable[[Any], Callable[[np.ndarray], np.ndarray]]


def _actor_in_numpy(state: Any) -> Callable[[np.ndarray], np.ndarray]:
    return state.actor.params.in_numpy()


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """A learner as the training loop sees it."""

    name: str  # as on the command line
    title: str  # as in the paper's tables
    config: type
    init: Callable[[PRNGKey, Spaces, Any], Any]  # (key, spaces, config) → state
    policy: Callable[[Any, Array], Any]  # (state, observations) → distribution over actions
    update: Callable[..., tuple[Any, Metrics]]  # off-policy: (state, batch, demo pairs, config) → state
    needs_demos: bool
    budget: int = 1_000_000  # environment steps of the paper's runs
    numpy_logits: NumpyLogits = _actor_in_numpy  # state → the policy's logits without JAX, for `predict`


def discrete_spaces(observation_space: gym.Space, action_space: gym.Space) -> Spaces:
    if not isinstance(action_space, gym.spaces.Discrete):
        raise EnvError(f"action space {action_space}; want Discrete.")
    if not isinstance(observation_space, gym.spaces.Box) or len(observation_space.shape) != 1:
        raise EnvError(f"observation space {observation_space}; want a Box with one axis.")
    return Spaces(observation_space.shape[0], int(action_space.n))
