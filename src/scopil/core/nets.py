"""Small multilayer perceptrons as plain pytrees."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.types import PRNGKey


class MLP(eqx.Module):
    """ReLU layers and a linear head, for any leading axes. Weights are (in, out): `x @ w + b`."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    def __init__(self, sizes: Sequence[int], key: PRNGKey):
        """Weights and biases uniform in ±1/√fan_in."""
        weights, biases = [], []
        for fan_in, fan_out, k in zip(sizes[:-1], sizes[1:], jax.random.split(key, len(sizes) - 1)):
            k_weight, k_bias = jax.random.split(k)
            bound = fan_in**-0.5
            weights.append(jax.random.uniform(k_weight, (fan_in, fan_out), minval=-bound, maxval=bound))
            biases.append(jax.random.uniform(k_bias, (fan_out,), minval=-bound, maxval=bound))
        self.weights, self.biases = tuple(weights), tuple(biases)

    def __call__(self, x: Float[Array, "*B in"]) -> Float[Array, "*B out"]:
        *hidden, (w, b) = zip(self.weights, self.biases)
        for w_h, b_h in hidden:
            x = jax.nn.relu(_affine(x, w_h, b_h))
        return _affine(x, w, b)


def _affine(x: Array, w: Array, b: Array) -> Array:
    y = x @ w
    return y + jnp.broadcast_to(b, y.shape)


def polyak(target: MLP, online: MLP, rate: float | Array) -> MLP:
    """ψ ← ε φ + (1 − ε) ψ"""
    return jax.tree.map(lambda psi, phi: rate * phi + (1 - rate) * psi, target, online)
