"""The squashed Gaussian policy: an action in [−1, 1]^A is tanh u with u ~ N(μ(s), σ(s)²), each component by itself.

Densities are those of the action in [−1, 1]^A, whatever the units of the environment's box.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.nn.intervals import log_cell
from scopil.types import PRNGKey

Scalar = float | Float[Array, ""]
LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
LOG_STD_MIDDLE, LOG_STD_REACH = 0.5 * (LOG_STD_MAX + LOG_STD_MIN), 0.5 * (LOG_STD_MAX - LOG_STD_MIN)
EDGE = 1.0 - 1e-6  # atanh stays finite in float32


def soft_clip_log_std(raw: Any, tanh: Callable[[Any], Any]) -> Any:
    """log σ from a network's output, nearly the identity within its range: a hard clip would leave a policy at the edge
    of the range without a gradient back. Pass NumPy's tanh for NumPy's arrays."""
    return LOG_STD_MIDDLE + LOG_STD_REACH * tanh((raw - LOG_STD_MIDDLE) / LOG_STD_REACH)


class SquashedGaussian(eqx.Module):
    """π(·|s), for any leading axes."""

    mean: Float[Array, "*B A"]  # μ, of u
    log_std: Float[Array, "*B A"]  # log σ, of u

    def __init__(self, outputs: Float[Array, "*B A2"]):
        """From a network's 2A outputs."""
        self.mean, raw = jnp.split(outputs, 2, axis=-1)
        self.log_std = soft_clip_log_std(raw, jnp.tanh)

    def at(self, noise: Float[Array, "*B A"]) -> tuple[Float[Array, "*B A"], Float[Array, "*B"]]:
        """a = tanh(μ + σξ) and log π(a|s) = Σ [ log N(u; μ, σ²) − log(1 − tanh²u) ], both differentiable in μ, σ."""
        u = self.mean + jnp.exp(self.log_std) * noise
        return jnp.tanh(u), self._log_density(noise, u)

    def log_prob(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        """log π(a|s), the density. An action at its bound is taken to lie a millionth inside it."""
        u = jnp.arctanh(jnp.clip(action, -EDGE, EDGE))
        return self._log_density((u - self.mean) * jnp.exp(-self.log_std), u)

    def _log_density(self, noise: Float[Array, "*B A"], u: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        log_normal = -0.5 * noise**2 - self.log_std - 0.5 * math.log(2 * math.pi)
        return (log_normal - log_slope(u)).sum(-1)

    def sample(self, key: PRNGKey) -> Float[Array, "*B A"]:
        return self.at(jax.random.normal(key, self.mean.shape, self.mean.dtype))[0]

    def mode(self) -> Float[Array, "*B A"]:
        """tanh μ, the median."""
        return jnp.tanh(self.mean)

    def log_mass(self, action: Float[Array, "*B A"], resolution: Scalar) -> Float[Array, "*B"]:
        """log P(|a' − a| ≤ ε in every component), a' ~ π(·|s): what an action recorded at resolution ε tells.

        A cell that reaches a bound holds all of the Gaussian's tail beyond it: an action at its bound is a censored
        observation, of which only "at least this much" is known. Never positive, finite for every action.
        """
        low, high = action - resolution, action + resolution
        to_bottom, to_top = low <= -EDGE, high >= EDGE
        edge_low, edge_high = (jnp.arctanh(jnp.clip(x, -EDGE, EDGE)) for x in (low, high))
        scale = jnp.exp(-self.log_std)
        return log_cell((edge_low - self.mean) * scale, (edge_high - edge_low) * scale, to_bottom, to_top).sum(-1)


def log_slope(u: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """log(1 − tanh²u), without the cancellation: at |u| = 10 the difference is 0 in float32."""
    return 2.0 * (math.log(2.0) - u - jax.nn.softplus(-2.0 * u))


class Sampled(eqx.Module):
    """π(·|s) with one action drawn from it: expectations over actions become values at that action."""

    action: Float[Array, "*B A"]
    log_pi: Float[Array, "*B"]

    def __init__(self, pi: SquashedGaussian, noise: Float[Array, "*B A"]):
        self.action, self.log_pi = pi.at(noise)

    def entropy(self) -> Float[Array, "*B"]:
        """An estimate of the density's entropy."""
        return -self.log_pi


class Resolved(eqx.Module):
    """π(·|s) at resolution ε: a distribution over cells of width 2ε, with likelihoods ≤ 1 and an entropy in nats like
    those of discrete actions. The imitation constraint asks it about demonstrated actions."""

    pi: SquashedGaussian
    noise: Float[Array, "*B A"]  # of the entropy's estimate
    resolution: Scalar

    def log_prob(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        return self.pi.log_mass(action, self.resolution)

    def entropy(self) -> Float[Array, "*B"]:
        """An estimate of h(π) − A log 2ε, the entropy of cells that are small beside the policy's width."""
        return -self.pi.at(self.noise)[1] - self.noise.shape[-1] * jnp.log(2.0 * self.resolution)

    def matches(self, action: Float[Array, "*B A"]) -> Array:
        """Whether the greedy action falls into the demonstrated action's cell."""
        return (jnp.abs(self.pi.mode() - action) <= self.resolution).all(-1)
