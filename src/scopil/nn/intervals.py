"""log P(u ∈ cell) of a standard normal u, in float32, however far out the cell lies.

The upper tail Q(x) = 1 − Φ(x), x ≥ 0, is t exp(p − x²/2) with t = 1/(1 + x/3.25) and p a slowly varying polynomial, so
that ratios of tails never meet a number that overflows or vanishes. There is one log, at the end, and the gradient is
written down: composed of logs of tails, both took fifteen times as long on a CPU.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

# p as a polynomial in 2t − 1: our Chebyshev fit, error below 4e-8 for all x ≥ 0.
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
_PEAK = 1.0 / math.sqrt(2.0 * math.pi)  # φ(0)


def tail(x: Float[Array, "*B"]) -> tuple[Float[Array, "*B"], Float[Array, "*B"]]:
    """(t, p) with Q(x) = t exp(p − x²/2), for x ≥ 0."""
    t = 1.0 / (1.0 + x / _KNEE)
    s, p = 2.0 * t - 1.0, jnp.zeros_like(t)
    for c in reversed(_FIT):
        p = p * s + c
    return t, p


@jax.custom_jvp
def log_cell(
    low: Float[Array, "*B"], width: Float[Array, "*B"], to_bottom: Bool[Array, "*B"], to_top: Bool[Array, "*B"]
) -> Float[Array, "*B"]:
    """log P(u ∈ cell): [low, low + width], or all below low + width (`to_bottom`), or all above low (`to_top`).

    The width is an argument because far out it is lost in high − low.
    """
    return _cell(low, width, to_bottom, to_top)[0]


@log_cell.defjvp
def _log_cell_jvp(primals, tangents):
    value, at_low, at_high = _cell(*primals)
    d_low, d_width = tangents[:2]
    return value, at_high * (d_low + d_width) - at_low * d_low


def _cell(
    low: Float[Array, "*B"], width: Float[Array, "*B"], to_bottom: Bool[Array, "*B"], to_top: Bool[Array, "*B"]
) -> tuple[Float[Array, "*B"], Float[Array, "*B"], Float[Array, "*B"]]:
    """log P, φ(low)/P and φ(high)/P; an end that is open has density 0."""
    closed = ~(to_bottom | to_top)
    # Mirrored where that brings the nearer end of a tail to the left: then P = Q(near) − Q(far).
    left = to_bottom | (closed & (low + 0.5 * width < 0))
    near = jnp.where(left, -(low + width), low)
    far = near + width
    inside = near < 0  # the cell holds 0, and P = 1 − Q(−near) − Q(far)
    t, p = tail(jnp.abs(near))
    t_far, p_far = tail(jnp.abs(far))
    step = width * (near + 0.5 * width)  # far²/2 − near²/2
    drop = jnp.where(closed, jnp.exp(-step), 0.0)  # φ(far)/φ(near)
    ratio = drop * jnp.exp(p_far - p) * t_far / t  # Q(far)/Q(near)
    half, half_far = 0.5 * near**2, 0.5 * far**2
    outside = t * jnp.exp(p - half) + jnp.where(closed, t_far * jnp.exp(p_far - half_far), 0.0)
    mass = jnp.where(inside, 1.0 - outside, t * (1.0 - ratio))
    value = jnp.log(mass) + jnp.where(inside, 0.0, p - half)
    at_near = _PEAK * jnp.exp(-jnp.where(inside, half, p)) / mass
    at_far = at_near * drop
    return value, jnp.where(left, at_far, at_near), jnp.where(left, at_near, at_far)
