"""Running statistics against the moments of all samples."""

import jax
import jax.numpy as jnp
import numpy as np

from reference import ppo_numpy as ref
from scopil.nn import normalise
from scopil.nn.normalise import in_own_units, new_scale, new_stats, restart_scale, scale_signal, update_stats


def test_batches_add_up_to_the_moments_of_all_rows():
    rows = np.random.default_rng(0).normal(3.0, 2.0, (60, 4)).astype(np.float32)
    stats = new_stats((4,))
    for part in np.split(rows, [5, 6, 40]):
        stats = update_stats(stats, jnp.asarray(part))
        assert stats is not None
    mean, var = ref.moments(rows.astype(np.float64))
    np.testing.assert_allclose(stats.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(stats.var, var, rtol=1e-5)
    got = normalise.normalise(stats, jnp.asarray(rows))
    wanted = np.clip((rows - mean) / np.sqrt(var + 1e-8), -10, 10)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(normalise.normalise_in_numpy(stats, rows), wanted, rtol=1e-4, atol=1e-5)


def test_outliers_are_clipped_and_none_changes_nothing():
    x = jnp.array([[1e6], [-1e6], [0.5]])
    for one in (normalise.normalise(new_stats((1,)), x), normalise.normalise_in_numpy(new_stats((1,)), np.asarray(x))):
        np.testing.assert_allclose(one[:, 0], [10.0, -10.0, 0.5], rtol=1e-6)
    np.testing.assert_array_equal(normalise.normalise(None, x), x)
    assert update_stats(None, x) is None
    assert scale_signal(None, x, x > 0, 0.9)[1] is x


def test_a_signal_is_scaled_by_the_statistics_up_to_each_step():
    rng = np.random.default_rng(1)
    signal = rng.normal(-2.0, 3.0, (50, 4)).astype(np.float32)
    ended = rng.random((50, 4)) < 0.1
    wanted = ref.scaled(signal.astype(np.float64), ended, 0.9)
    half, first = scale_signal(new_scale(4), jnp.asarray(signal[:20]), jnp.asarray(ended[:20]), 0.9)
    _, second = scale_signal(half, jnp.asarray(signal[20:]), jnp.asarray(ended[20:]), 0.9)
    np.testing.assert_allclose(jnp.concatenate([first, second]), wanted, rtol=1e-4)


def test_a_restart_resets_the_returns_but_not_the_statistics():
    scale, _ = scale_signal(new_scale(2), jnp.ones((3, 2)), jnp.zeros((3, 2), bool), 0.9)
    again = restart_scale(scale)
    assert scale is not None
    assert again is not None
    assert np.all(np.asarray(scale.running) > 0)
    assert not np.any(again.running)
    jax.tree.map(np.testing.assert_array_equal, again.stats, scale.stats)


def test_a_component_that_grows_during_training_is_not_clipped():
    stats = new_stats((1,))
    update = jax.jit(update_stats)
    for scale in np.linspace(1.0, 100.0, 200):
        stats = update(stats, jnp.linspace(0.0, scale, 32)[:, None])
    assert 1.0 < float(normalise.normalise(stats, jnp.array([[100.0]]))[0, 0]) < 5.0


def test_a_constant_component_keeps_its_units():
    batch = jnp.stack([jnp.arange(200.0), jnp.full(200, 3.0)], axis=1)
    stats = in_own_units(update_stats(new_stats((2,)), batch), batch)
    seen = np.asarray(normalise.normalise(stats, jnp.array([[99.5, 3.0], [99.5, 3.5]])))
    np.testing.assert_allclose(seen[:, 1], [0.0, 0.5], atol=1e-3)
    np.testing.assert_allclose(seen[:, 0], 0.0, atol=1e-3)
    assert in_own_units(None, batch) is None
