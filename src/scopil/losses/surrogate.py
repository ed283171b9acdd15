"""PPO's surrogates (Schulman et al. 2017): one number a sample, to be maximised; the caller averages."""

import jax.numpy as jnp
from jaxtyping import Array, Float

Scalar = float | Float[Array, ""]


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
    """Zero mean, unit sample deviation."""
    return centred(x) / (x.std(ddof=1) + 1e-8)
