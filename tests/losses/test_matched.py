"""Which episodes are matched with demonstrated ones."""

import jax.numpy as jnp
import numpy as np
import pytest

from scopil.losses import matched


def test_reach_is_a_quantile_of_nearest_neighbour_distances():
    rng = np.random.default_rng(0)
    starts = rng.normal(size=(10, 2))
    starts, group = np.concatenate([starts, starts[:3]]), np.r_[np.arange(10), 0, 1, 2]
    nearest = [min(np.hypot(*(a - b)) for b, h in zip(starts, group) if h != g) for a, g in zip(starts, group)]
    within = np.sort(nearest)[int(np.ceil(0.9 * 12))]
    got = matched.reach_of(jnp.asarray(starts, jnp.float32), jnp.asarray(group), 0.9)
    assert float(got) == pytest.approx(within, rel=1e-5)


def test_with_one_start_every_episode_is_matched():
    reach = matched.reach_of(jnp.zeros((4, 2)), jnp.zeros(4, jnp.int32), 0.9)
    assert 1e30 < float(reach) < np.inf


def test_places_near_any_start_match():
    places, starts = jnp.array([[0.1, 0.0], [1.0, 0.3], [5.0, 0.0]]), jnp.array([[0.0, 0.0], [1.0, 0.0]])
    assert matched.matches(places, starts, jnp.float32(0.2)).tolist() == [True, False, False]
    assert matched.matches(places, starts, jnp.float32(0.35)).tolist() == [True, True, False]
