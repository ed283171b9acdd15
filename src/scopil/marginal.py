"""A learned constraint on one to three features, as arrays on the host: for words, pictures and audits."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Axis:
    """A feature and its bins. A number has `edges`; a category or a discrete action has `values`, one per bin."""

    name: str  # as in the environment's columns, e.g. `pose[0]`, `|vx, vy|`, `action`
    code: str  # a Python expression of obs, action and next_obs, e.g. `next_obs[2]`, `next_obs["pose"][0]`
    edges: np.ndarray | None = None  # (n + 1,), ascending
    values: tuple[Any, ...] | None = None  # n values; None stands for any other value
    module: str = ""  # of the user's function that `code` calls


@dataclass(frozen=True)
class Marginal:
    """The novelty table c of one constraint, its multiplier, and the transitions that it was made from."""

    axes: tuple[Axis, ...]
    novelty: np.ndarray  # c in [0, 1]: 0 where the demonstrator is found, 1 where only the learner is; one axis each
    multiplier: float  # μ; 0: the constraint does not bind
    budget: float  # the largest mean of c that the constraint allows
    demo_novelty: float  # mean c of held-out demonstrated transitions
    own_novelty: float  # mean c of the policy's newest transitions
    demo: np.ndarray  # (M, axes) values of demonstrated transitions; bin numbers for categories and discrete actions
    demo_episode: np.ndarray  # (M,)
    own: np.ndarray  # (C, axes) values of the transitions that are compared
    whose: str = "the learner, over training"  # made these transitions

    @property
    def name(self) -> str:
        return name_of([axis.name for axis in self.axes])


def name_of(features: list[str]) -> str:
    """The name of a constraint on features: `vx`, `vx at x`, `vx at x, flag`. Striking it out may name them in any
    order."""
    if len(features) == 1:
        return features[0]
    return f"{features[1]} at {', '.join([features[0], *features[2:]])}"
