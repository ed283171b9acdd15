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


class Bounds(NamedTuple):
    """A box of continuous actions."""

    low: tuple[float, ...]
    high: tuple[float, ...]


class Spaces(NamedTuple):
    """What an algorithm builds its networks for."""

    obs_dim: int
    actions: int | Bounds  # how many there are, or between which bounds

    @property
    def num_actions(self) -> int:
        assert isinstance(self.actions, int), self.actions
        return self.actions

    @property
    def bounds(self) -> Bounds:
        assert isinstance(self.actions, Bounds), self.actions
        return self.actions


class Pairs(NamedTuple):
    """Demonstrated (state, action) pairs."""

    obs: Float[Array, "B D"]
    action: Array


NumpyLogits = Callable[[Any], Callable[[np.ndarray], np.ndarray]]
# (observations, a generator to sample by or None for the greedy action) → actions
NumpyPolicy = Callable[[np.ndarray, np.random.Generator | None], np.ndarray]


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

    def in_numpy(self, state: Any) -> NumpyPolicy:
        """The policy without JAX: for one observation ten times faster than a compiled call."""
        logits_of = self.numpy_logits(state)

        def act(obs: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
            logits = logits_of(obs)
            noisy = logits if rng is None else logits + rng.gumbel(size=logits.shape)
            return np.asarray(noisy.argmax(axis=-1))

        return act


def spaces_of(observation_space: gym.Space, action_space: gym.Space) -> Spaces:
    """For any environment we can learn in."""
    if isinstance(action_space, gym.spaces.Box):
        return Spaces(_obs_dim(observation_space), _bounds(action_space))
    return discrete_spaces(observation_space, action_space)


def discrete_spaces(observation_space: gym.Space, action_space: gym.Space) -> Spaces:
    if not isinstance(action_space, gym.spaces.Discrete):
        raise EnvError(f"action space {action_space}; want Discrete.")
    return Spaces(_obs_dim(observation_space), int(action_space.n))


def _obs_dim(space: gym.Space) -> int:
    if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
        raise EnvError(f"observation space {space}; want a Box with one axis.")
    return space.shape[0]


def _bounds(space: gym.spaces.Box) -> Bounds:
    if len(space.shape) != 1 or not np.issubdtype(space.dtype, np.floating):
        raise EnvError(f"action space {space}; want a Box of real numbers with one axis.")
    if not (
        np.isfinite(space.low).all() and np.isfinite(space.high).all() and (space.low < space.high).all()
    ):
        raise EnvError(
            f"action space {space}; want finite bounds, each low below its high. "
            f"gymnasium.wrappers.RescaleAction or ClipAction gives an environment some."
        )
    return Bounds(tuple(map(float, space.low)), tuple(map(float, space.high)))
