"""Detection of actions that are stored one step too early or too late.

In a sound set, action k leads from observation k to observation k + 1. A linear model of (observation, action) → change
of the observation is fitted to random play in the environment. At steps where the action changes, the true action
predicts the change of the observation better than its neighbour does. Without an environment the model is fitted to the
demonstrations themselves; that is weaker evidence, since the next action depends on the next observation.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from scopil.data.dataset import Demonstrations

LAGS = (1, -1)  # offsets of the neighbouring actions
MIN_STEPS = 30  # steps at which the action changes; with fewer there is no verdict
MIN_Z = 4.0  # standard deviations of a fair coin by which the neighbour must win
RIDGE = 1e-3
MAX_COLUMNS = 2_000  # of the linear model, whose fit needs their square in memory; images have millions


class Steps(NamedTuple):
    """Observations (T+1, …) and actions (T, …) of every episode, as learners see them."""

    observations: Sequence[np.ndarray]
    actions: Sequence[np.ndarray]

    @classmethod
    def of(cls, demos: Demonstrations) -> "Steps":
        return cls([e.observations for e in demos], [e.actions for e in demos])


class Shift(NamedTuple):
    """How often the action at offset `lag` predicts the change better than the stored one."""

    lag: int
    share: float  # of the steps at which the two actions differ
    steps: int  # the number of those steps

    @property
    def found(self) -> bool:
        """Whether the set is shifted by `lag`."""
        return (self.share - 0.5) * 2 * math.sqrt(self.steps) > MIN_Z


def likeliest_shift(demos: Steps, played: Steps | None, space: gym.Space) -> Shift | None:
    """The lag with the largest share; None if too few actions change, or the steps are `too_wide`.

    `played` is random play in the environment; without it the model is fitted to `demos`. `space` is the action space.
    """
    if too_wide(demos, space):
        return None
    source = demos if played is None else played
    if source.observations[0].shape[1:] != demos.observations[0].shape[1:] or not (long := _long(source)):
        return None
    inputs, changes = [_inputs(source, i, 0, space) for i in long], [_changes(source, i) for i in long]
    model = _fit(np.concatenate(inputs), np.concatenate(changes))
    shifts = [_shift(demos, model, lag, space) for lag in LAGS]
    return max((s for s in shifts if s is not None), key=lambda s: s.share, default=None)


def too_wide(demos: Steps, space: gym.Space) -> bool:
    """Whether the model would have more than `MAX_COLUMNS` columns."""
    seen = math.prod(demos.observations[0].shape[1:])
    done = int(space.n) if isinstance(space, gym.spaces.Discrete) else math.prod(space.shape or ())
    return 1 + seen + done + seen * done > MAX_COLUMNS


def _shift(demos: Steps, model: np.ndarray, lag: int, space: gym.Space) -> Shift | None:
    if not (long := _long(demos)):
        return None
    changes = np.concatenate([_changes(demos, i) for i in long])
    scale = changes.std(axis=0)
    scale[scale < 1e-8] = np.inf  # constant columns do not count
    stored, other = (np.concatenate([_inputs(demos, i, by, space) for i in long]) for by in (0, lag))
    differ = np.any(stored != other, axis=1)
    errors = [np.square((changes - x @ model) / scale).sum(axis=1)[differ] for x in (stored, other)]
    if differ.sum() < MIN_STEPS:
        return None
    return Shift(lag, float(np.mean(errors[1] < errors[0])), int(differ.sum()))


def _long(steps: Steps) -> list[int]:
    """Episodes with a step that has two neighbours."""
    return [i for i, actions in enumerate(steps.actions) if len(actions) > 2]


def _changes(steps: Steps, i: int) -> np.ndarray:
    rows = steps.observations[i].reshape(len(steps.observations[i]), -1).astype(np.float64)
    return np.diff(rows, axis=0)[1:-1]


def _inputs(steps: Steps, i: int, lag: int, space: gym.Space) -> np.ndarray:
    """The model's inputs for the steps 1 … T − 2, which have neighbours: 1, observation, action, and their products."""
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
    """Coefficients of ridge regression on inputs scaled to unit size."""
    size = np.sqrt(np.mean(np.square(inputs), axis=0)) + 1e-12
    scaled: Any = inputs / size
    gram = scaled.T @ scaled + RIDGE * len(inputs) * np.eye(inputs.shape[1])
    return np.linalg.solve(gram, scaled.T @ outputs) / size[:, None]
