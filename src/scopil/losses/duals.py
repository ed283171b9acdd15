"""Multipliers: plain projected ascent, or none at all."""

import jax.numpy as jnp
from jaxtyping import Array, Float

Scalar = float | Float[Array, ""]


def ascend(multiplier: Scalar, violation: Scalar, rate: Scalar) -> Float[Array, ""]:
    """λ ← [λ + η G]₊; G > 0 means the constraint is broken.   (paper, Algorithm 1)

    No upper bound: a bound would hide an infeasible constraint, which we would rather see diverge.
    """
    return jnp.maximum(multiplier + rate * violation, 0.0)


def hold(multiplier: Scalar, violation: Scalar, rate: Scalar) -> Float[Array, ""]:
    """λ ← λ   (S-DGD, S-DGD-EiC)"""
    return jnp.asarray(multiplier)
