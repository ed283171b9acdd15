"""What an on-policy learner is made of, beyond `base.Algorithm`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Float, Int

from scopil.algos.base import Algorithm, Metrics
from scopil.types import Transition


class Rollout(NamedTuple):
    """What one policy met: T steps of N environments, every leaf (T, N, …)."""

    step: Transition  # as the environment gave it
    seen: Float[Array, "T N D"]  # observations as the networks saw them
    next_seen: Float[Array, "T N D"]  # of the true successors
    told: Float[Array, "T N"] | None  # what the environment tells an oracle; None to everybody else


@dataclass(frozen=True, kw_only=True)
class OnPolicyAlgorithm(Algorithm):
    """`update` is (state, rollout, all demo pairs, config, key) → state, metrics. The state has `obs_stats`, the
    running statistics of observations (or None), which the loop keeps and `policy` applies."""

    oracle: bool = False  # is told the true cost, which no learner of the paper is


class Trajectories(NamedTuple):
    """M games padded to one length."""

    obs: Float[Array, "M T D"]
    action: Int[Array, "M T"]
    mask: Bool[Array, "M T"]  # which steps were played


@dataclass(frozen=True, kw_only=True)
class InverseAlgorithm(OnPolicyAlgorithm):
    """Alternates a forward phase, `forward_steps` of `update`, with a backward one: `backward` is (state, the
    experts' games, its own games, config, number of backward phases before) → state, metrics."""

    backward: Callable[..., tuple[Any, Metrics]]
