"""Networks against NumPy, their first weights, and the targets that follow them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from probes import layers
from reference.ppo_numpy import forward as tanh_forward
from reference.soft_numpy import forward
from scopil.nn.nets import MLP, ConvNet, GaussianNet, affine, columns, network, orthogonal_mlp


@pytest.mark.parametrize(("hidden", "batch"), [((), (9,)), ((5, 6), (2, 3))])
def test_forward_equals_numpy(hidden, batch, getkey):
    net = jax.jit(lambda key: MLP((4, *hidden, 3), key))(getkey())
    x = np.random.default_rng(0).normal(size=(*batch, 4)).astype(np.float32)
    want, _ = forward(layers(net), x.astype(np.float64).reshape(-1, 4))
    got = jax.jit(lambda net, x: net(x))(net, jnp.asarray(x))
    assert got.shape == (*batch, 3)
    for one in (np.asarray(got).reshape(-1, 3), net.columns(columns(jnp.asarray(x).reshape(-1, 4))).T):
        np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-6)


def convolved(h: np.ndarray, kernel: np.ndarray, offset: np.ndarray, stride: int) -> np.ndarray:
    """One image, (height, width, channels), pixel by pixel."""
    side = len(kernel)
    rows, cols = ((n - side) // stride + 1 for n in h.shape[:2])
    out = np.zeros((rows, cols, len(offset)))
    for i in range(rows):
        for j in range(cols):
            window = h[i * stride : i * stride + side, j * stride : j * stride + side]
            out[i, j] = (window[..., None] * kernel).sum((0, 1, 2)) + offset
    return np.maximum(out, 0)


@pytest.mark.parametrize("image", [(9, 11, 2), (2, 9, 11), (37, 36, 3)])
def test_convolutions_equal_numpy(image, getkey):
    """Small and large images, channels first or last, with two more inputs: a critic has actions as inputs."""
    pixels = int(np.prod(image))
    net = network((pixels + 2, 5, 3), getkey(), image)
    assert isinstance(net, ConvNet)
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.integers(256, size=(2, pixels)), rng.normal(size=(2, 2))], 1).astype(np.float32)
    seen = []
    for row in rows.astype(np.float64):
        h = row[:pixels].reshape(image) / 255
        h = np.moveaxis(h, 0, -1) if image[0] < image[2] else h
        for kernel, offset, stride in zip(net.kernels, net.offsets, (4, 2, 1) if pixels > 2000 else (2, 2)):
            h = convolved(h, np.asarray(kernel, np.float64), np.asarray(offset, np.float64), stride)
        seen.append(np.concatenate([h.reshape(-1), row[pixels:]]))
    want, _ = forward(layers(net.mlp), np.stack(seen))
    got = jax.jit(lambda net, x: (net(x), net(x[0]), net.columns(columns(x)).T))(net, jnp.asarray(rows))
    for one, wanted in zip(got, (want, want[0], want)):
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-5)


def test_convolutions_without_jax(getkey):
    net = network((100, 5, 3), getkey(), (10, 10, 1))
    rows = np.random.default_rng(0).integers(256, size=(4, 100)).astype(np.float32)
    apply = net.in_numpy()
    np.testing.assert_allclose(apply(rows), net(jnp.asarray(rows)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(apply(rows[0]), apply(rows)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("outputs", [1, 3])
def test_gradients_of_a_layer_are_those_of_the_formula(outputs):
    """Σ (w h + b) ∘ c has gradients c hᵀ, c 1, wᵀ c; batched over seeds as well."""
    rng = np.random.default_rng(0)
    w, b, h, c = (rng.normal(size=(6, *shape)) for shape in ((outputs, 4), (outputs,), (4, 7), (outputs, 7)))
    grads = jax.grad(lambda w, b, h, c: (affine(w, b, h) * c).sum(), argnums=(0, 1, 2))
    wanted = [c @ h.swapaxes(1, 2), c.sum(2), w.swapaxes(1, 2) @ c]
    for got, want in zip(jax.jit(jax.vmap(grads))(*map(jnp.asarray, (w, b, h, c))), wanted):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_first_weights_are_uniform_within_their_bound(getkey):
    net = jax.jit(lambda key: MLP((100, 400, 3), key))(getkey())
    for fan_in, w, b in zip((100, 400), net.weights, net.biases):
        bound = fan_in**-0.5
        assert float(jnp.abs(w).max()) <= bound
        assert float(jnp.abs(b).max()) <= bound
        assert float(w.std()) == pytest.approx(bound / np.sqrt(3), rel=0.03)
        assert abs(float(w.mean())) < 0.05 * bound
    assert not np.array_equal(net.weights[0][:3, :3], net.weights[1][:3, :3])


def test_targets_move_a_share_of_the_way(getkey):
    target, online = MLP((4, 5, 3), getkey()), MLP((4, 5, 3), getkey())
    for rate in (0.0, 0.005, 1.0):
        moved = optax.incremental_update(online, target, rate)  # pyright: ignore[reportArgumentType]
        for old, new, now in zip(*(jax.tree.leaves(n) for n in (target, online, moved))):
            want = rate * np.asarray(new, np.float64) + (1 - rate) * np.asarray(old, np.float64)
            np.testing.assert_allclose(now, want, rtol=1e-6, atol=1e-7)


# --- PPO's networks ------------------------------------------------------------------------------------------------


def test_orthogonal_layers_are_tanh_layers_without_biases(getkey):
    net = orthogonal_mlp((5, 7, 6, 3), getkey(), 0.01)
    x = np.random.default_rng(0).normal(size=(2, 4, 5)).astype(np.float32)
    made = layers(net)
    np.testing.assert_allclose(net(jnp.asarray(x)), tanh_forward(made, x.astype(float)), rtol=1e-4, atol=1e-7)
    for w, gain in zip((w for w, _ in made), (2**0.5, 2**0.5, 0.01)):
        gram = w @ w.T if w.shape[0] < w.shape[1] else w.T @ w
        np.testing.assert_allclose(gram, gain**2 * np.eye(len(gram)), atol=1e-5)
    assert not any(b.any() for _, b in made)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
def test_a_gaussian_net_has_one_deviation_for_all_states(shape, getkey):
    net = GaussianNet(orthogonal_mlp((4, 5, 2), getkey(), 1.0), jnp.array([0.3, -1.0]))
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    got = np.asarray(net(jnp.asarray(x)))
    assert got.shape == (*shape[:-1], 4)
    np.testing.assert_array_equal(got[..., :2], net.mlp(jnp.asarray(x)))
    np.testing.assert_array_equal(got[..., 2:], np.broadcast_to(np.array([0.3, -1.0], np.float32), (*shape[:-1], 2)))
    np.testing.assert_allclose(net.in_numpy()(x), got, rtol=1e-5, atol=1e-6)
