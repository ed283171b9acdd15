"""Distributions over actions: categorical, and squashed Gaussian.

Categorical probabilities are stored as logarithms: with `log(softmax(z))` a deterministic policy's entropy is NaN.

A squashed Gaussian action in [−1, 1]^A is tanh u with u ~ N(μ(s), σ(s)²), with independent components. Densities
are those of the action in [−1, 1]^A, for any bounds of the environment's box.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from scopil.types import PRNGKey

Scalar = float | Float[Array, ""]
LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
LOG_STD_MIDDLE, LOG_STD_REACH = 0.5 * (LOG_STD_MAX + LOG_STD_MIN), 0.5 * (LOG_STD_MAX - LOG_STD_MIN)
EDGE = 1.0 - 1e-6  # the largest |action| that is passed to atanh, which stays finite in float32


def pick(values: Float[Array, "..."], action: Int[Array, "*B"], axis: int = -1) -> Float[Array, "*B"]:
    """values(s, a) at the given actions, as a masked sum. A gather would be slower: its gradient is a scatter."""
    chosen = jax.nn.one_hot(action, values.shape[axis], dtype=bool, axis=axis)
    return jnp.sum(jnp.where(chosen, values, 0.0), axis=axis)


class Categorical(eqx.Module):
    """π(·|s) over A actions, batched over all other axes. `axis` is the axis of the actions: the last, or the first if
    samples are columns."""

    log_probs: Float[Array, "..."]
    axis: int = eqx.field(static=True)

    def __init__(self, logits: Float[Array, "..."], axis: int = -1):
        self.log_probs = jax.nn.log_softmax(logits, axis)
        self.axis = axis

    @property
    def num_actions(self) -> int:
        return self.log_probs.shape[self.axis]

    @property
    def probs(self) -> Float[Array, "..."]:
        return jnp.exp(self.log_probs)

    def log_prob(self, action: Int[Array, "*B"]) -> Float[Array, "*B"]:
        return pick(self.log_probs, action, self.axis)

    def expect(self, values: Float[Array, "..."]) -> Float[Array, "*B"]:
        """Σ_a π(a|s) values(s, a)"""
        return jnp.sum(self.probs * values, axis=self.axis)

    def entropy(self) -> Float[Array, "*B"]:
        """H(π(·|s)) in nats."""
        return -self.expect(self.log_probs)

    def kl_to(self, other: "Categorical") -> Float[Array, "*B"]:
        """KL(self ‖ other) in nats."""
        return self.expect(self.log_probs - other.log_probs)

    def sample(self, key: PRNGKey) -> Int[Array, "*B"]:
        return jax.random.categorical(key, self.log_probs, axis=self.axis)

    def mode(self) -> Int[Array, "*B"]:
        return jnp.argmax(self.log_probs, axis=self.axis)

    def matches(self, action: Int[Array, "*B"]) -> Bool[Array, "*B"]:
        """Whether the greedy action equals `action`."""
        return self.mode() == action


def soft_clip_log_std(raw: Any, tanh: Callable[[Any], Any]) -> Any:
    """log σ from a network's output: nearly the identity inside the bounds. A hard clip would have no gradient outside
    the bounds. `tanh` is `jnp.tanh` for JAX arrays and `np.tanh` for NumPy arrays."""
    return LOG_STD_MIDDLE + LOG_STD_REACH * tanh((raw - LOG_STD_MIDDLE) / LOG_STD_REACH)


class SquashedGaussian(eqx.Module):
    """π(·|s), batched over any leading axes."""

    mean: Float[Array, "*B A"]  # μ: mean of u
    log_std: Float[Array, "*B A"]  # log σ: σ is the standard deviation of u

    def __init__(self, outputs: Float[Array, "*B A2"]):
        """`outputs`: the 2A outputs of a network."""
        self.mean, raw = jnp.split(outputs, 2, axis=-1)
        self.log_std = soft_clip_log_std(raw, jnp.tanh)

    def at(self, noise: Float[Array, "*B A"]) -> tuple[Float[Array, "*B A"], Float[Array, "*B"]]:
        """a = tanh(μ + σξ) and log π(a|s) = Σ [ log N(u; μ, σ²) − log(1 − tanh²u) ], both differentiable in μ, σ."""
        u = self.mean + jnp.exp(self.log_std) * noise
        return jnp.tanh(u), self._log_density(noise, u)

    def log_prob(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        """log π(a|s), the density. Actions are clipped to ±(1 − 1e-6)."""
        u = jnp.arctanh(jnp.clip(action, -EDGE, EDGE))
        return self._log_density((u - self.mean) * jnp.exp(-self.log_std), u)

    def _log_density(self, noise: Float[Array, "*B A"], u: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        log_normal = -0.5 * noise**2 - self.log_std - 0.5 * math.log(2 * math.pi)
        return (log_normal - log_slope(u)).sum(-1)

    def sample(self, key: PRNGKey) -> Float[Array, "*B A"]:
        return self.at(jax.random.normal(key, self.mean.shape, self.mean.dtype))[0]

    def kl_to(self, other: "SquashedGaussian") -> Float[Array, "*B"]:
        """KL(self ‖ other) in nats, which squashing does not change."""
        ratio = jnp.exp(2.0 * (self.log_std - other.log_std))
        away = ((self.mean - other.mean) * jnp.exp(-other.log_std)) ** 2
        return 0.5 * (ratio + away - 1.0 - jnp.log(ratio)).sum(-1)

    def mode(self) -> Float[Array, "*B A"]:
        """tanh μ, the median."""
        return jnp.tanh(self.mean)

    def log_mass(self, action: Float[Array, "*B A"], resolution: Scalar) -> Float[Array, "*B"]:
        """log P(|a' − a| ≤ ε in every component), a' ~ π(·|s): the likelihood of an action recorded at resolution ε.

        A cell that reaches a bound includes the Gaussian's tail beyond it: an action at its bound is a censored
        observation. The result is ≤ 0 and finite for every action.
        """
        low, high = action - resolution, action + resolution
        to_bottom, to_top = low <= -EDGE, high >= EDGE
        edge_low, edge_high = (jnp.arctanh(jnp.clip(x, -EDGE, EDGE)) for x in (low, high))
        scale = jnp.exp(-self.log_std)
        return log_cell((edge_low - self.mean) * scale, (edge_high - edge_low) * scale, to_bottom, to_top).sum(-1)


def log_slope(u: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """log(1 − tanh²u) without cancellation: at |u| = 10, 1 − tanh²u is 0 in float32."""
    return 2.0 * (math.log(2.0) - u - jax.nn.softplus(-2.0 * u))


class Sampled(eqx.Module):
    """π(·|s) with one sampled action. The value at this action estimates the expectation over actions."""

    action: Float[Array, "*B A"]
    log_pi: Float[Array, "*B"]

    def __init__(self, pi: SquashedGaussian, noise: Float[Array, "*B A"]):
        self.action, self.log_pi = pi.at(noise)

    def entropy(self) -> Float[Array, "*B"]:
        """An estimate of the differential entropy."""
        return -self.log_pi


class Resolved(eqx.Module):
    """π(·|s) at resolution ε: a distribution over cells of width 2ε. Likelihoods are ≤ 1 and entropies are in nats, as
    for discrete actions. The imitation constraint uses this distribution."""

    pi: SquashedGaussian
    noise: Float[Array, "*B A"]  # for the estimate of the entropy
    resolution: Scalar

    def log_prob(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        return self.pi.log_mass(action, self.resolution)

    def entropy(self) -> Float[Array, "*B"]:
        """An estimate of h(π) − A log 2ε, the entropy over cells that are small relative to σ."""
        return -self.pi.at(self.noise)[1] - self.noise.shape[-1] * jnp.log(2.0 * self.resolution)

    def matches(self, action: Float[Array, "*B A"]) -> Array:
        """Whether the greedy action is in the cell of `action`."""
        return (jnp.abs(self.pi.mode() - action) <= self.resolution).all(-1)


# --- log P(u ∈ cell) of a standard normal u, in float32, for cells at any distance from 0 -----------------------------
#
# The upper tail Q(x) = 1 − Φ(x), x ≥ 0, is t exp(p − x²/2) with t = 1/(1 + x/3.25) and p a slowly varying polynomial:
# ratios of tails neither overflow nor underflow. The code takes one log, at the end, and has an explicit gradient:
# the composition of logs of tails took fifteen times as long on a CPU.

# p as a polynomial in 2t − 1: a Chebyshev fit, error below 4e-8 for all x ≥ 0.
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
    """log P(u ∈ cell). The cell is [low, low + width], (−∞, low + width] if `to_bottom`, [low, ∞) if `to_top`.

    The width is an argument because rounding makes high − low inexact far from 0.
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
    """log P, φ(low)/P and φ(high)/P; φ is 0 at an infinite end."""
    closed = ~(to_bottom | to_top)
    # A cell below 0 is mirrored, so that `near` is the end closer to 0: then P = Q(near) − Q(far).
    left = to_bottom | (closed & (low + 0.5 * width < 0))
    near = jnp.where(left, -(low + width), low)
    far = near + width
    inside = near < 0  # the cell contains 0, and P = 1 − Q(−near) − Q(far)
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
