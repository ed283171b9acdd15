"""Running statistics scale observations to zero mean and unit variance, and rewards to unit variance of their return.

Without statistics (None) all functions return their input unchanged.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

Scalar = float | Float[Array, ""]
LIMIT = 10.0  # normalised values are clipped to ± this
EPS = 1e-8  # added to variances


class RunningStats(NamedTuple):
    """Mean and (population) variance of all samples so far."""

    mean: Float[Array, "*S"]
    var: Float[Array, "*S"]
    samples: Float[Array, ""]  # the number of samples


def new_stats(shape: tuple[int, ...] = ()) -> RunningStats:
    return RunningStats(jnp.zeros(shape, jnp.float32), jnp.ones(shape, jnp.float32), jnp.float32(1e-4))


def update_stats(stats: RunningStats | None, batch: Float[Array, "N *S"]) -> RunningStats | None:
    """The statistics of all samples including `batch` (Chan et al. 1979)."""
    if stats is None:
        return None
    n = batch.shape[0]
    total = stats.samples + n
    delta = batch.mean(0) - stats.mean
    spread = stats.var * stats.samples + batch.var(0) * n + delta**2 * (stats.samples * n / total)
    return RunningStats(stats.mean + delta * (n / total), spread / total, total)


def in_own_units(stats: RunningStats | None, batch: Float[Array, "N *S"]) -> RunningStats | None:
    """Sets the variance of components that are constant in `batch` to 1. With a variance of 0, any other value would be
    clipped."""
    if stats is None:
        return None
    return stats._replace(var=jnp.where(batch.max(0) > batch.min(0), stats.var, 1.0))


def normalise(stats: RunningStats | None, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
    """(x − mean) / √(var + 1e-8), clipped to ±10"""
    if stats is None:
        return x
    mean, scale = (jnp.broadcast_to(leaf, x.shape) for leaf in (stats.mean, jax.lax.rsqrt(stats.var + EPS)))
    return jnp.clip((x - mean) * scale, -LIMIT, LIMIT)


def normalise_in_numpy(stats: RunningStats | None, x: np.ndarray) -> np.ndarray:
    if stats is None:
        return x
    return np.clip((x - np.asarray(stats.mean)) / np.sqrt(np.asarray(stats.var) + EPS), -LIMIT, LIMIT)


class ReturnScale(NamedTuple):
    """The divisor of rewards or costs: the standard deviation of their running discounted return."""

    running: Float[Array, " N"]  # R ← γ R + r in the current episode of each environment
    stats: RunningStats


def new_scale(num_envs: int) -> ReturnScale:
    return ReturnScale(jnp.zeros(num_envs, jnp.float32), new_stats())


def restart_scale(scale: ReturnScale | None) -> ReturnScale | None:
    """The same statistics with zero returns, after a reset of all environments."""
    return None if scale is None else scale._replace(running=jnp.zeros_like(scale.running))


def scale_signal(
    scale: ReturnScale | None, signal: Float[Array, "T N"], ended: Bool[Array, "T N"], discount: Scalar
) -> tuple[ReturnScale | None, Float[Array, "T N"]]:
    """r / √(Var R + 1e-8), clipped to ±10. Var R covers all steps so far. The mean is not subtracted."""
    if scale is None:
        return None, signal

    def step(scale: ReturnScale, row):
        r, over = row
        running = discount * scale.running + r
        stats = update_stats(scale.stats, running)
        assert stats is not None
        scaled = jnp.clip(r * jax.lax.rsqrt(stats.var + EPS), -LIMIT, LIMIT)
        return ReturnScale(jnp.where(over, 0.0, running), stats), scaled

    return jax.lax.scan(step, scale, (signal, ended))
