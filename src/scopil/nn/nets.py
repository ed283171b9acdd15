"""Multilayer perceptrons as pytrees. For image observations, convolutions compute the inputs of the perceptron."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scopil.types import PRNGKey

Activation = Literal["relu", "tanh"]
_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"relu": jax.nn.relu, "tanh": jnp.tanh}
_IN_NUMPY: dict[str, Callable[[np.ndarray], np.ndarray]] = {"relu": lambda x: np.maximum(x, 0.0), "tanh": np.tanh}


@jax.custom_vjp
def affine(w: Float[Array, "out in"], b: Float[Array, " out"], h: Float[Array, "in B"]) -> Float[Array, "out B"]:
    """w h + b, with samples as columns: a batch of 256 samples fills the CPU's vector registers, a row of nine outputs
    does not."""
    return w @ h + b[:, None]


def _affine_fwd(w, b, h):
    return affine(w, b, h), (w, h)


def _affine_bwd(saved, g):
    """The gradients of `affine`. wᵀ is copied first, because on a CPU XLA takes twice as long for a product with a
    transposed view (benchmarks/README.md). The same holds for g."""
    w, h = saved
    g = jax.lax.optimization_barrier(g)
    rows = _two_rows(g)
    return (rows @ h.T)[: len(g)], g.sum(axis=1), jax.lax.optimization_barrier(_two_rows(w).T) @ rows


def _two_rows(x: Float[Array, "out in"]) -> Float[Array, "_ in"]:
    """`x` with at least two rows, the second of zeros. XLA computes a product with one row in another way: it computes
    that row anew for every element of the result."""
    return x if len(x) > 1 else jnp.concatenate([x, jnp.zeros_like(x)])


affine.defvjp(_affine_fwd, _affine_bwd)


def columns(x: Float[Array, "B in"]) -> Float[Array, "in B"]:
    """`x` with samples as columns, copied into contiguous memory because several networks read it."""
    return jax.lax.optimization_barrier(x.T)


class MLP(eqx.Module):
    """Hidden layers and a linear head. Weights are (out, in)."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    activation: Activation = eqx.field(static=True)

    def __init__(self, sizes: Sequence[int], key: PRNGKey, activation: Activation = "relu"):
        """Weights and biases are uniform in ±1/√fan_in. One random call draws them all: each call adds compile time."""
        shapes = [(fan_in + 1, fan_out) for fan_in, fan_out in pairwise(sizes)]
        ends = np.cumsum([rows * columns for rows, columns in shapes])
        unit = jax.random.uniform(key, (int(ends[-1]),), minval=-1.0, maxval=1.0)
        layers = [
            part.reshape(shape) * (shape[0] - 1) ** -0.5 for part, shape in zip(jnp.split(unit, ends[:-1]), shapes)
        ]
        self.weights = tuple(layer[:-1].T for layer in layers)
        self.biases = tuple(layer[-1] for layer in layers)
        self.activation = activation

    def __call__(self, x: Float[Array, "*B in"]) -> Float[Array, "*B out"]:
        """The outputs for inputs with any number of leading axes."""
        y = self.columns(x.reshape(-1, x.shape[-1]).T)
        return y.T.reshape(*x.shape[:-1], y.shape[0])

    def columns(self, h: Float[Array, "in B"]) -> Float[Array, "out B"]:
        """The outputs for samples as columns. This layout is a third faster on a CPU."""
        *hidden, head = zip(self.weights, self.biases)
        for layer in hidden:
            h = _ACTIVATIONS[self.activation](affine(*layer, h))
        return affine(*head, h)

    def in_numpy(self) -> Callable[[np.ndarray], np.ndarray]:
        """The network as a NumPy function. For one observation it is ten times faster than a compiled call."""
        *hidden, (w, b) = [(np.array(w.T), np.array(b)) for w, b in zip(self.weights, self.biases)]
        act = _IN_NUMPY[self.activation]

        def apply(x: np.ndarray) -> np.ndarray:
            for w_h, b_h in hidden:
                x = act(x @ w_h + b_h)
            return x @ w + b

        return apply


def orthogonal_mlp(sizes: Sequence[int], key: PRNGKey, head_gain: float) -> MLP:
    """tanh layers with orthogonal weights of gain √2, a head of gain `head_gain`, and zero biases."""
    k_net, *keys = jax.random.split(key, len(sizes))
    net = MLP(sizes, k_net, "tanh")
    gains = [2**0.5] * (len(net.weights) - 1) + [head_gain]
    weights = tuple(
        jax.nn.initializers.orthogonal(gain)(k, w.shape[::-1], w.dtype).T
        for gain, k, w in zip(gains, keys, net.weights)
    )
    biases = tuple(jnp.zeros_like(b) for b in net.biases)
    return eqx.tree_at(lambda m: (m.weights, m.biases), net, (weights, biases))


# The shape of an image. Channels (colours or frames) are the first axis if it is shorter than the last, else the last.
Image = tuple[int, int, int]
# (channels, side of the kernel, stride) of every layer. `_LARGE` has the layers of Mnih et al. 2015.
_LARGE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
_SMALL = ((16, 3, 2), (32, 3, 2))
_LARGE_SIDE, _SMALL_SIDE = 36, 7  # smallest height or width of an image, in pixels, for these layers


class ConvNet(eqx.Module):
    """Convolutions, followed by an MLP. Each input is a row that begins with the pixels of an image. The MLP reads the
    outputs of the convolutions and the rest of the row.

    Pixels are in [0, 255], in the order of the image's axes. Kernels are (height, width, in, out).
    """

    kernels: tuple[Array, ...]
    offsets: tuple[Array, ...]
    mlp: MLP
    image: Image = eqx.field(static=True)
    width: int = eqx.field(static=True)  # numbers per input row

    @property
    def strides(self) -> list[int]:
        return [stride for _, _, stride in _layers(self.image)]

    @property
    def channels_first(self) -> bool:
        return self.image[0] < self.image[2]

    def __call__(self, x: Float[Array, "*B in"]) -> Float[Array, "*B out"]:
        """The outputs for inputs with any number of leading axes."""
        return self.mlp(self.features(x))

    def columns(self, h: Float[Array, "in B"]) -> Float[Array, "out B"]:
        return self.mlp.columns(self.features(h.T).T)

    def features(self, x: Float[Array, "*B in"]) -> Float[Array, "*B features"]:
        """The inputs of the MLP."""
        rows, pixels = x.reshape(-1, x.shape[-1]), np.prod(self.image)
        h = self._channels_last(rows[:, :pixels]) / 255.0
        for kernel, offset, stride in zip(self.kernels, self.offsets, self.strides):
            flat = kernel.reshape(-1, kernel.shape[-1])
            h = jax.nn.relu(_windows(h, len(kernel), stride) @ flat + offset[None, None, None])
        found = jnp.concatenate([h.reshape(rows.shape[0], -1), rows[:, pixels:]], axis=1)
        return found.reshape(*x.shape[:-1], found.shape[-1])

    def _channels_last(self, pixels: Any) -> Any:
        images = pixels.reshape(-1, *self.image)
        return images.transpose(0, 2, 3, 1) if self.channels_first else images

    def in_numpy(self) -> Callable[[np.ndarray], np.ndarray]:
        features, mlp = self.features_in_numpy(), self.mlp.in_numpy()
        return lambda x: mlp(features(x))

    def features_in_numpy(self) -> Callable[[np.ndarray], np.ndarray]:
        """`features` in NumPy, for rows that hold the pixels alone."""
        layers = [(np.array(k), np.array(b), s) for k, b, s in zip(self.kernels, self.offsets, self.strides)]

        def apply(x: np.ndarray) -> np.ndarray:
            h = self._channels_last(x) / np.float32(255.0)
            for kernel, offset, stride in layers:
                windows = np.lib.stride_tricks.sliding_window_view(h, kernel.shape[:2], axis=(1, 2))
                h = np.tensordot(windows[:, ::stride, ::stride], kernel, ((4, 5, 3), (0, 1, 2)))
                h = np.maximum(h + offset, 0.0)
            return h.reshape(*x.shape[:-1], -1)

        return apply


def _windows(h: Float[Array, "B H W C"], side: int, stride: int) -> Float[Array, "B h w window"]:
    """The pixels under each position of a kernel. Inside a compiled loop on a CPU, XLA's own convolution takes ten
    times as long."""
    rows, columns = ((n - side) // stride * stride + 1 for n in h.shape[1:3])
    parts = [h[:, i : i + rows : stride, j : j + columns : stride] for i in range(side) for j in range(side)]
    return jnp.concatenate(parts, axis=-1)


Net = MLP | ConvNet


def network(
    sizes: Sequence[int], key: PRNGKey, image: Image | None = None, make: Callable[[Sequence[int], PRNGKey], MLP] = MLP
) -> Net:
    """A network with `sizes[0]` inputs: an MLP, or with `image` a ConvNet. The inputs of a ConvNet begin with the
    pixels."""
    if image is None:
        return make(sizes, key)
    key, *keys = jax.random.split(key, 1 + len(_layers(image)))
    kernels, offsets = [], []
    height, width, channels = _sides(image)
    for k, (out, side, stride) in zip(keys, _layers(image)):
        reach = (side * side * channels) ** -0.5  # as in an MLP: uniform in ±1/√fan_in
        drawn = jax.random.uniform(k, (side * side * channels + 1, out), minval=-reach, maxval=reach)
        kernels.append(drawn[:-1].reshape(side, side, channels, out))
        offsets.append(drawn[-1])
        height, width, channels = (height - side) // stride + 1, (width - side) // stride + 1, out
    features = height * width * channels + sizes[0] - int(np.prod(image))
    return ConvNet(tuple(kernels), tuple(offsets), make((features, *sizes[1:]), key), image, sizes[0])


def convolves(image: Image | None) -> bool:
    """Whether an image is large enough for convolutions."""
    return image is not None and min(_sides(image)[:2]) >= _SMALL_SIDE


def _layers(image: Image) -> tuple[tuple[int, int, int], ...]:
    return _LARGE if min(_sides(image)[:2]) >= _LARGE_SIDE else _SMALL


def _sides(image: Image) -> tuple[int, int, int]:
    """Height, width and channels."""
    a, b, c = image
    return (b, c, a) if a < c else (a, b, c)


def width_of(net: "Network") -> int:
    """The number of inputs of a network."""
    if isinstance(net, GaussianNet):
        return width_of(net.mlp)
    return net.width if isinstance(net, ConvNet) else net.weights[0].shape[1]


def image_of(net: "Network") -> Image | None:
    """The axes of a network's input image, or None."""
    if isinstance(net, GaussianNet):
        return image_of(net.mlp)
    return net.image if isinstance(net, ConvNet) else None


def top(net: "Network") -> MLP:
    """The MLP at the output of a network."""
    while not isinstance(net, MLP):
        net = net.mlp
    return net


class GaussianNet(eqx.Module):
    """A network for the mean of a Gaussian, and a log σ that does not depend on the observation."""

    mlp: Net
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


Network = Net | GaussianNet


def form_of(net: Network) -> dict[str, Any]:
    """The structure of a network as JSON, without its arrays."""
    mlp, image = top(net), image_of(net)
    made: dict[str, Any] = {"sizes": [width_of(net), *(len(b) for b in mlp.biases)], "activation": mlp.activation}
    return made if image is None else made | {"image": list(image)}


def net_from(form: dict[str, Any], key: PRNGKey, given: int = 0) -> tuple[Net, tuple[int, ...]]:
    """A network with the structure of `form_of`, and its sizes. `given` inputs follow the observation. Raises KeyError,
    TypeError or ValueError if the form is invalid."""
    sizes = tuple(int(n) for n in form["sizes"])
    if not 2 <= len(sizes) <= 64 or not all(0 < n <= 1 << 20 for n in sizes):
        raise ValueError(f"a network of sizes {sizes}")
    if form["activation"] not in get_args(Activation):
        raise ValueError(f"activation {form['activation']!r}")
    image: Image | None = None
    if "image" in form:
        a, b, c = (int(n) for n in form["image"])
        image = a, b, c
        if min(a, b, c) < 1 or a * b * c != sizes[0] - given or not convolves(image):
            raise ValueError(f"an image of {image} in rows of {sizes[0] - given}")
    return network(sizes, key, image, partial(MLP, activation=form["activation"])), sizes
