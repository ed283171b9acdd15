"""Detection of actions that are stored one step too early or too late.

In a correct set, action k leads from observation k to observation k + 1. A linear model of (observation, action) →
change of the observation is fitted to random play in the environment. At steps where the action changes, the true
action predicts the change of the observation better than the next or previous action. Without an environment, the model
is fitted to the demonstrations. That is weaker evidence, since the next action depends on the next observation.
"""

import math
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from scopil.data.dataset import Demonstrations, Episode

LAGS = (1, -1)  # offsets of the neighbouring actions
MIN_STEPS = 30  # fewest steps at which the action changes; with fewer there is no result
MIN_Z = 4.0  # z-score from which a set counts as shifted
RIDGE = 1e-3
MAX_COLUMNS = 2_000  # most columns of the linear model; the memory of the fit is quadratic in them


class Shift(NamedTuple):
    """How much better the action at offset `lag` predicts the change than the stored action."""

    lag: int
    steps: int  # number of steps at which the two actions differ
    z: float  # of the mean logarithm of the ratio of the errors; positive if that action predicts better

    @property
    def found(self) -> bool:
        """Whether the set is shifted by `lag`."""
        return self.z > MIN_Z


def likeliest_shift(demos: Demonstrations, played: Demonstrations | None) -> Shift | None:
    """The lag with the largest z-score. None if too few actions change, or if the model is `too_wide`.

    `played` is random play in the environment. Without it, the model is fitted to `demos`."""
    source = demos if played is None else played
    same_shape = source.observation_space.shape == demos.observation_space.shape
    if too_wide(demos) or not same_shape or not _long(source) or not _long(demos):
        return None
    space = demos.action_space
    inputs, changes = _inputs(source, 0, space), _changes(source)
    model = _fit(inputs, changes)
    noise = np.sqrt(np.mean(np.square(changes - inputs @ model), axis=0))
    shifts = [_shift(demos, model, noise, lag) for lag in LAGS]
    return max((s for s in shifts if s is not None), key=lambda s: s.z, default=None)


def too_wide(demos: Demonstrations) -> bool:
    """Whether the model would have more than `MAX_COLUMNS` columns."""
    seen, space = math.prod(demos.observation_space.shape or ()), demos.action_space
    done = int(space.n) if isinstance(space, gym.spaces.Discrete) else math.prod(space.shape or ())
    return 1 + seen + done + seen * done > MAX_COLUMNS


def _shift(demos: Demonstrations, model: np.ndarray, noise: np.ndarray, lag: int) -> Shift | None:
    """`noise` is the model's error in each column, which counts the less the larger it is."""
    changes = _changes(demos)
    scale = changes.std(axis=0)
    scale[scale < 1e-8] = np.inf  # ignores constant columns
    scale = np.maximum(noise, 0.01 * scale)
    stored, other = (_inputs(demos, by, demos.action_space) for by in (0, lag))
    differ = np.any(stored != other, axis=1)
    if differ.sum() < MIN_STEPS:
        return None
    errors = [np.square((changes - x @ model) / scale).sum(axis=1)[differ] for x in (stored, other)]
    gains = np.log1p(errors[0]) - np.log1p(errors[1])  # near 0 where both errors are within the noise
    z = float(gains.mean() / max(gains.std(), 1e-12) * math.sqrt(len(gains)))
    return Shift(lag, int(differ.sum()), z)


def _long(demos: Demonstrations) -> list[Episode]:
    """Episodes with a step that has two neighbours."""
    return [e for e in demos if len(e) > 2]


def _changes(demos: Demonstrations) -> np.ndarray:
    rows = [e.observations for e in _long(demos)]
    return np.concatenate([np.diff(r.reshape(len(r), -1).astype(np.float64), axis=0)[1:-1] for r in rows])


def _inputs(demos: Demonstrations, lag: int, space: gym.Space) -> np.ndarray:
    """The model's inputs at steps 1 … T − 2, which have two neighbours: 1, observation, action, and their products."""
    rows = []
    for e in _long(demos):
        actions = e.actions
        if isinstance(space, gym.spaces.Discrete):
            actions = np.eye(int(space.n))[np.asarray(actions, int) - int(space.start)]
        at = np.arange(1, len(e) - 1)
        seen = e.observations[at].reshape(len(at), -1)
        done = np.asarray(actions, np.float64).reshape(len(e), -1)[at + lag]
        both = (seen[:, :, None] * done[:, None, :]).reshape(len(at), -1)
        rows.append(np.concatenate([np.ones((len(at), 1)), seen, done, both], axis=1).astype(np.float64))
    return np.concatenate(rows)


def _fit(inputs: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Coefficients of ridge regression on inputs scaled to unit size."""
    size = np.sqrt(np.mean(np.square(inputs), axis=0)) + 1e-12
    scaled: Any = inputs / size
    gram = scaled.T @ scaled + RIDGE * len(inputs) * np.eye(inputs.shape[1])
    return np.linalg.solve(gram, scaled.T @ outputs) / size[:, None]
