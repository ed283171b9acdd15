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


@jax.custom_vjp
def affine(
    w: Float[Array, "out in"], b: Float[Array, " out"], h: Float[Array, "in B"]
) -> Float[Array, "out B"]:
    """w h + b, with samples as columns: 256 of them fill vector registers, nine outputs do not."""
    return w @ h + b[:, None]


def _affine_fwd(w, b, h):
    return affine(w, b, h), (w, h)


def _affine_bwd(saved, g):
    """The usual gradients; wᵀ is laid out first, since XLA's product with a transposed view takes twice as long on a
    CPU (benchmarks/README.md)."""
    w, h = saved
    return g @ h.T, g.sum(axis=1), jax.lax.optimization_barrier(w.T) @ g


affine.defvjp(_affine_fwd, _affine_bwd)


def columns(x: Float[Array, "B in"]) -> Float[Array, "in B"]:
    """Samples as columns, laid out so in memory: several networks will read them."""
    return jax.lax.optimization_barrier(x.T)


class MLP(eqx.Module):
    """Hidden layers and a linear head. Weights are (out, in)."""

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
        self.weights = tuple(layer[:-1].T for layer in layers)
        self.biases = tuple(layer[-1] for layer in layers)
        self.activation = activation

    def __call__(self, x: Float[Array, "*B in"]) -> Float[Array, "*B out"]:
        """For any leading axes."""
        y = self.columns(x.reshape(-1, x.shape[-1]).T)
        return y.T.reshape(*x.shape[:-1], y.shape[0])

    def columns(self, h: Float[Array, "in B"]) -> Float[Array, "out B"]:
        """The same of samples that are columns, a third faster on a CPU."""
        *hidden, head = zip(self.weights, self.biases)
        for layer in hidden:
            h = _ACTIVATIONS[self.activation](affine(*layer, h))
        return affine(*head, h)

    def in_numpy(self) -> Callable[[np.ndarray], np.ndarray]:
        """The same function without JAX: for one observation ten times faster than a compiled call."""
        *hidden, (w, b) = [(np.array(w.T), np.array(b)) for w, b in zip(self.weights, self.biases)]
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
        jax.nn.initializers.orthogonal(gain)(k, w.shape[::-1], w.dtype).T
        for gain, k, w in zip(gains, keys, net.weights)
    )
    biases = tuple(jnp.zeros_like(b) for b in net.biases)
    return eqx.tree_at(lambda m: (m.weights, m.biases), net, (weights, biases))


class GaussianNet(eqx.Module):
    """A network for the mean of a Gaussian beside a log σ that does not depend on the observation."""

    mlp: MLP
    log_std: Float[Array, " A"]

    def __call__(self, x: Float[Array, "*B in"]) -> Float[Array, "*B A2"]:
        mean = self.mlp(x)
        return jnp.concatenate([mean, jnp.broadcast_to(self.log_std, mean.shape)], axis=-1)

    def in_numpy(self) -> Callable[[np.ndarray], np.ndarray]:
        mean_of, log_std = self.mlp.in_numpy(), np.array(self.log_std)

        def apply(x: np.ndarray) -> np.ndarray:
            mean = mean_of(x)
            return np.concatenate([mean, np.broadcast_to(log_std, mean.shape)], axis=-1)

        return apply


Network = MLP | GaussianNet
