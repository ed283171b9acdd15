"""Soft actor-critic, discrete: one number a sample, the caller averages. Letters as in docs/method.md.

Samples are columns: Q(s, ·) of a batch is (A, B).
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from scopil.core.distributions import Categorical, pick

Scalar = float | Float[Array, ""]


def soft_value(pi: Categorical, q: Float[Array, "A B"], alpha: Scalar) -> Float[Array, " B"]:
    """V(s) = Σ_a π(a|s) [ Q(s,a) − α log π(a|s) ]"""
    return pi.expect(q - alpha * pi.log_probs)


def td_target(
    reward: Float[Array, " B"], terminated: Bool[Array, " B"], v_next: Float[Array, " B"], discount: Scalar
) -> Float[Array, " B"]:
    """y = r + γ (1 − terminated) V(s'). A time-out is not a termination: it keeps its future value."""
    return reward + discount * jnp.where(terminated, 0.0, v_next)


def td_loss(
    q: Float[Array, "A B"], action: Int[Array, " B"], target: Float[Array, " B"]
) -> Float[Array, " B"]:
    """½ (Q(s,a) − y)²"""
    return 0.5 * (pick(q, action, axis=0) - target) ** 2


def policy_objective(pi: Categorical, q: Float[Array, "A B"], alpha: Scalar) -> Float[Array, " B"]:
    """J_π = α H(π(·|s)) + Σ_a π(a|s) Q(s,a), to be maximised."""
    return alpha * pi.entropy() + pi.expect(q)
