"""What the loops say of the episodes they play."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.algos.base import Metrics
from scopil.envs.functional import EnvState
from scopil.types import Transition


def tally(
    transition: Transition, after: EnvState, so_far: Float[Array, " N"]
) -> tuple[Float[Array, " N"], Metrics]:
    """The returns of the episodes being played, and sums over those that ended with this step."""
    ended = transition.terminated | transition.truncated
    total = so_far + transition.reward
    sums = {
        "count": ended.sum().astype(jnp.float32),
        "return": jnp.where(ended, total, 0.0).sum(),
        "steps": jnp.where(ended, after.steps, 0).sum().astype(jnp.float32),
        "reward": transition.reward.sum(),
    }
    return jnp.where(ended, 0.0, total), sums


def summary(sums: dict[str, Metrics], blocks: Any, block_steps: int) -> Metrics:
    """Means, from the sums over `blocks` of each update's metrics and of the episodes' tallies."""
    episodes = sums["episodes"]
    played = jnp.maximum(episodes["count"], 1.0)
    none = jnp.where(episodes["count"] > 0, 1.0, jnp.nan)  # no episode ended: there is no mean
    return {name: value / blocks for name, value in sums["update"].items()} | {
        "episode/count": episodes["count"],
        "episode/return": none * episodes["return"] / played,
        "episode/steps": none * episodes["steps"] / played,
        "env/reward": episodes["reward"] / (blocks * block_steps),
    }
