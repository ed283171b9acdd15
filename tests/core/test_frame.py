"""Between the environment's units and the networks'."""

import jax.numpy as jnp
import numpy as np
import pytest

from scopil.core.frame import NumpyFrame, frame
from scopil.types import Transition

LOW, HIGH = (-1.0, 0.0, -0.1), (3.0, 0.5, 1000.0)


def test_a_lopsided_box_maps_to_the_unit_cube_and_back():
    f = frame(2, LOW, HIGH, False)
    corners = jnp.asarray([LOW, HIGH, [1.0, 0.25, 499.95]])
    np.testing.assert_allclose(f.unit(corners), [[-1] * 3, [1] * 3, [0] * 3], atol=1e-6)
    np.testing.assert_allclose(f.out(f.unit(corners)), corners, rtol=1e-5, atol=1e-4)


def test_no_action_leaves_the_box_by_a_rounding_error():
    rng = np.random.default_rng(0)
    for _ in range(50):
        low, high = np.sort(rng.normal(size=(2, 3)).astype(np.float32) * 10, axis=0)
        f = frame(2, tuple(map(float, low)), tuple(map(float, high)), False)
        for out in (f.out(jnp.ones((1, 3))), NumpyFrame(f).out(np.ones((1, 3), np.float32))):
            assert (np.asarray(out) <= high).all()
        assert (np.asarray(f.out(-jnp.ones((1, 3)))) >= low).all()


def test_observations_are_normalised_by_all_that_was_seen_and_clipped():
    rng = np.random.default_rng(1)
    one, two = (rng.normal(3.0, 20.0, size=(n, 2)).astype(np.float32) for n in (30, 50))
    f = frame(2, LOW, HIGH, True).watch(jnp.asarray(one), jnp.asarray(two)).watch(jnp.asarray(two))
    rows = np.concatenate([one, two, two]).astype(np.float64)
    x = np.array([[1.0, -5.0], [1e6, -1e6]], np.float32)
    want = np.clip((x - rows.mean(0)) / rows.std(0), -10, 10)
    np.testing.assert_allclose(f.see(jnp.asarray(x)), want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(NumpyFrame(f).see(x), want, rtol=1e-4, atol=1e-4)
    assert (np.abs(want[1]) == 10).all()


def test_a_coordinate_that_grows_while_training_stays_in_sight():
    f = frame(1, (-1.0,), (1.0,), True)
    for scale in np.linspace(1.0, 100.0, 200):
        f = f.watch(jnp.linspace(0.0, scale, 32)[:, None])
    assert 1.0 < float(f.see(jnp.array([[100.0]]))[0, 0]) < 5.0


def test_without_statistics_observations_pass_as_they_are():
    f = frame(2, LOW, HIGH, False)
    x = jnp.array([[1e6, -3.0]])
    np.testing.assert_array_equal(f.watch(x).see(x), x)


def test_a_batch_is_seen_through_it():
    f = frame(1, (-2.0,), (2.0,), True).watch(jnp.array([[1.0], [3.0]]))
    flag = jnp.zeros(1, bool)
    batch = Transition(jnp.array([[3.0]]), jnp.array([[1.0]]), jnp.ones(1), jnp.array([[1.0]]), flag, flag)
    seen = f.through(batch)
    have = (
        float(seen.obs[0, 0]),
        float(seen.action[0, 0]),
        float(seen.next_obs[0, 0]),
        float(seen.reward[0]),
    )
    assert have == pytest.approx((1.0, 0.5, -1.0, 1.0), abs=1e-3)
