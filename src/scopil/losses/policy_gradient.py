"""Generalised advantage estimation (Schulman et al. 2016) and PPO's surrogates (Schulman et al. 2017).

A surrogate is one number per sample. The caller maximises the mean over samples.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Scalar = float | Float[Array, ""]


def gae(
    reward: Float[Array, "T N"],
    value: Float[Array, "T N"],
    next_value: Float[Array, "T N"],
    terminated: Bool[Array, "T N"],
    truncated: Bool[Array, "T N"],
    discount: Scalar,
    trace: Scalar,
) -> Float[Array, "T N"]:
    """δ_t = r_t + γ (1 − terminated) V(s'_t) − V(s_t);  A_t = δ_t + γ λ A_{t+1} within an episode.

    s'_t is the true successor state: its value also counts after a time limit and after the last row of the rollout.
    """
    delta = reward + discount * jnp.where(terminated, 0.0, next_value) - value
    carry_on = jnp.where(terminated | truncated, 0.0, discount * trace)

    def back(later, row):
        delta_t, carry_on_t = row
        now = delta_t + carry_on_t * later
        return now, now

    _, advantage = jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, carry_on), reverse=True)
    return advantage


def clipped(log_ratio: Float[Array, " B"], advantage: Float[Array, " B"], clip: Scalar) -> Float[Array, " B"]:
    """min(ρ A, clip(ρ, 1 ± ε) A),  ρ = π(a|s) / π_old(a|s)"""
    ratio = jnp.exp(log_ratio)
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def unclipped(log_ratio: Float[Array, " B"], advantage: Float[Array, " B"]) -> Float[Array, " B"]:
    """ρ A"""
    return jnp.exp(log_ratio) * advantage


def centred(x: Float[Array, " B"]) -> Float[Array, " B"]:
    return x - x.mean()


def standardised(x: Float[Array, " B"]) -> Float[Array, " B"]:
    """x with zero mean and unit sample standard deviation."""
    return centred(x) / (x.std(ddof=1) + 1e-8)
