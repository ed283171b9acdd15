"""Does action k of a set lead from observation k to observation k + 1? Or is it stored with the one that it led to?

A linear model of (observation, action) → change of the observation is fitted to random play in the environment. Where a
demonstrator changes its action, the one that caused a change of the observation explains it better than its neighbour
does. Without an environment the model is fitted to the demonstrations themselves, which is weaker: a demonstrator's
next action tells something of the next observation too.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from scopil.data.dataset import Demonstrations

LAGS = (1, -1)  # of the action that may explain the change k → k + 1 better than action k
FEWEST = 30  # steps at which the action changes, from which anything can be said
CLEARLY = 4.0  # standard deviations of a fair coin by which the neighbour must win
RIDGE = 1e-3
MOST_COLUMNS = 2_000  # of the linear model, whose fit takes their square in memory: pictures have millions


class Steps(NamedTuple):
    """Episodes as the rows that learners see: T + 1 observations and T actions each."""

    observations: Sequence[np.ndarray]
    actions: Sequence[np.ndarray]

    @classmethod
    def of(cls, demos: Demonstrations) -> "Steps":
        return cls([e.observations for e in demos], [e.actions for e in demos])


class Shift(NamedTuple):
    """How often a neighbour's action explains a change better than the stored one."""

    lag: int
    share: float  # of the steps at which the two actions differ
    steps: int  # as many there are

    @property
    def found(self) -> bool:
        return (self.share - 0.5) * 2 * math.sqrt(self.steps) > CLEARLY


def likeliest_shift(demos: Steps, played: Steps | None, space: gym.Space) -> Shift | None:
    """The neighbour that explains most; None where there is too little to tell, or the steps are `too_wide`.

    `played` is random play in the environment; without it the model is fitted to `demos`."""
    if too_wide(demos, space):
        return None
    source = demos if played is None else played
    if source.observations[0].shape[1:] != demos.observations[0].shape[1:] or not (a := _long(source)):
        return None
    model = _fit(
        np.concatenate([_inputs(source, i, 0, space) for i in a]), np.concatenate([_changes(source, i) for i in a])
    )
    shifts = [_shift(demos, model, lag, space) for lag in LAGS]
    return max((s for s in shifts if s is not None), key=lambda s: s.share, default=None)


def too_wide(demos: Steps, space: gym.Space) -> bool:
    """Whether an observation and an action have too many products for the model."""
    seen = math.prod(demos.observations[0].shape[1:])
    done = int(space.n) if isinstance(space, gym.spaces.Discrete) else math.prod(space.shape or ())
    return 1 + seen + done + seen * done > MOST_COLUMNS


def _shift(demos: Steps, model: np.ndarray, lag: int, space: gym.Space) -> Shift | None:
    if not (long := _long(demos)):
        return None
    changes = np.concatenate([_changes(demos, i) for i in long])
    scale = changes.std(axis=0)
    scale[scale < 1e-8] = np.inf  # what never moves says nothing
    stored, other = (np.concatenate([_inputs(demos, i, by, space) for i in long]) for by in (0, lag))
    differ = np.any(stored != other, axis=1)
    errors = [np.square((changes - x @ model) / scale).sum(axis=1)[differ] for x in (stored, other)]
    if differ.sum() < FEWEST:
        return None
    return Shift(lag, float(np.mean(errors[1] < errors[0])), int(differ.sum()))


def _long(steps: Steps) -> list[int]:
    return [i for i, actions in enumerate(steps.actions) if len(actions) > 2]


def _changes(steps: Steps, i: int) -> np.ndarray:
    rows = steps.observations[i].reshape(len(steps.observations[i]), -1).astype(np.float64)
    return np.diff(rows, axis=0)[1:-1]


def _inputs(steps: Steps, i: int, lag: int, space: gym.Space) -> np.ndarray:
    """Of the steps 1 … T − 2, which have neighbours: 1, observation, action, and products of the last two."""
    obs, actions = steps.observations[i], _vectors(steps.actions[i], space)
    at = np.arange(1, len(actions) - 1)
    seen, done = obs[at].reshape(len(at), -1), actions[at + lag]
    both = (seen[:, :, None] * done[:, None, :]).reshape(len(at), -1)
    return np.concatenate([np.ones((len(at), 1)), seen, done, both], axis=1).astype(np.float64)


def _vectors(actions: np.ndarray, space: gym.Space) -> np.ndarray:
    if isinstance(space, gym.spaces.Discrete):
        return np.eye(int(space.n))[np.asarray(actions, int) - int(space.start)]
    return np.asarray(actions, np.float64).reshape(len(actions), -1)


def _fit(inputs: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Ridge regression with inputs of comparable size."""
    size = np.sqrt(np.mean(np.square(inputs), axis=0)) + 1e-12
    scaled: Any = inputs / size
    gram = scaled.T @ scaled + RIDGE * len(inputs) * np.eye(inputs.shape[1])
    return np.linalg.solve(gram, scaled.T @ outputs) / size[:, None]
