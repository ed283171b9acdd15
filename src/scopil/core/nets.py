"""Small multilayer perceptrons as plain pytrees."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scopil.types import PRNGKey

Activation = Literal["relu", "tanh"]
_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"relu": jax.nn.relu, "tanh": jnp.tanh}
_IN_NUMPY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
}


class MLP(eqx.Module):
    """Hidden layers and a linear head, for any leading axes. Weights are (in, out)."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    activation: Activation = eqx.field(static=True)

    def __init__(self, sizes: Sequence[int], key: PRNGKey, activation: Activation = "relu"):
        """Weights and biases uniform in ±1/√fan_in, all from one draw: every draw costs compile time."""
        shapes = [(fan_in + 1, fan_out) for fan_in, fan_out in pairwise(sizes)]
        ends = np.cumsum([rows * columns for rows, columns in shapes])
        unit = jax.random.uniform(key, (int(ends[-1]),), minval=-1.0, maxval=1.0)
        layers = [
            part.reshape(shape) * (shape[0] - 1) ** -0.5
            for part, shape in zip(jnp.split(unit, ends[:-1]), shapes)
        ]
        self.weights = tuple(layer[:-1] for layer in layers)
        self.biases = tuple(layer[-1] for layer in layers)
        self.activation = activation

    def __call__(self, x: Float[Array, "*B in"]) -> Float[Array, "*B out"]:
        """Computed with samples as columns: 256 of them fill vector registers, nine outputs do not (a third faster
        on a CPU than rows; benchmarks/README.md)."""
        *hidden, (w, b) = zip(self.weights, self.biases)
        h = x.reshape(-1, x.shape[-1]).T
        for w_h, b_h in hidden:
            h = _ACTIVATIONS[self.activation](w_h.T @ h + b_h[:, None])
        y = w.T @ h + b[:, None]
        return y.T.reshape(*x.shape[:-1], y.shape[0])

    def in_numpy(self) -> Callable[[np.ndarray], np.ndarray]:
        """The same function without JAX: for one observation ten times faster than a compiled call."""
        *hidden, (w, b) = [(np.array(w), np.array(b)) for w, b in zip(self.weights, self.biases)]
        act = _IN_NUMPY[self.activation]

        def apply(x: np.ndarray) -> np.ndarray:
            for w_h, b_h in hidden:
                x = act(x @ w_h + b_h)
            return x @ w + b

        return apply


def orthogonal_mlp(sizes: Sequence[int], key: PRNGKey, head_gain: float) -> MLP:
    """tanh layers with orthogonal weights of gain √2, a head of gain `head_gain`, and no biases to begin with."""
    k_net, *keys = jax.random.split(key, len(sizes))
    net = MLP(sizes, k_net, "tanh")
    gains = [2**0.5] * (len(net.weights) - 1) + [head_gain]
    weights = tuple(
        jax.nn.initializers.orthogonal(gain)(k, w.shape, w.dtype)
        for gain, k, w in zip(gains, keys, net.weights)
    )
    biases = tuple(jnp.zeros_like(b) for b in net.biases)
    return eqx.tree_at(lambda m: (m.weights, m.biases), net, (weights, biases))


def polyak(target: MLP, online: MLP, rate: float | Array) -> MLP:
    """ψ ← ε φ + (1 − ε) ψ"""
    return jax.tree.map(lambda psi, phi: rate * phi + (1 - rate) * psi, target, online)
