"""log P(u ∈ interval) of a standard normal u, in float32, however far out the interval lies.

The upper tail Q(x) = 1 − Φ(x) is exp(m(x) − x²/2) with a slowly varying m, so that logs, differences and gradients of
tails never meet a number that overflows or vanishes.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

# m(x) − log t as a polynomial in 2t − 1, t = 1 / (1 + x/3.25): our Chebyshev fit, error below 4e-8 for all x ≥ 0.
_KNEE = 3.25
_FIT = (
    -1.4832276914287894,
    0.7315682450524974,
    0.10457386659341615,
    -0.032015519932453704,
    -0.020450776530389184,
    0.0030176133671334627,
    0.004622226179420172,
    -0.0003987333446059561,
    -0.00104263893744915,
    5.158360650721492e-05,
    0.0001546762920511812,
)


def scaled_tail(x: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """m(x) = log Q(x) + x²/2 for x ≥ 0."""
    t = 1.0 / (1.0 + x / _KNEE)
    s, value = 2.0 * t - 1.0, jnp.zeros_like(t)
    for c in reversed(_FIT):
        value = value * s + c
    return value + jnp.log(t)


def log_tail(x: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """log Q(x) for any x."""
    beyond = scaled_tail(jnp.abs(x)) - 0.5 * x**2  # log Q(|x|)
    return jnp.where(x >= 0, beyond, jnp.log1p(-jnp.exp(beyond)))


def log_interval(low: Float[Array, "*B"], width: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """log P(low ≤ u ≤ low + width), width > 0 and finite.

    The interval is mirrored to the right half, where log Q(low) + log(1 − Q(high)/Q(low)) has both logs stable. The
    width is an argument because far out it is lost in high − low.
    """
    left = low + 0.5 * width < 0
    low = jnp.where(left, -(low + width), low)
    high = low + width
    # log Q(low) − log Q(high): without the squares where both are tails, since there they are large and nearly equal
    tails = width * (low + 0.5 * width) + scaled_tail(jnp.abs(low)) - scaled_tail(high)
    gap = jnp.where(low >= 0, tails, log_tail(low) - log_tail(high))
    return log_tail(low) + jnp.log(-jnp.expm1(-gap))


def log_cell(
    low: Float[Array, "*B"],
    width: Float[Array, "*B"],
    to_bottom: Bool[Array, "*B"],
    to_top: Bool[Array, "*B"],
) -> Float[Array, "*B"]:
    """log P(u ∈ cell): [low, low + width], or all below low + width (`to_bottom`), or all above low (`to_top`)."""
    closed = log_interval(low, width)
    open_ended = log_tail(jnp.where(to_bottom, -(low + width), low))
    return jnp.where(to_bottom | to_top, open_ended, closed)
