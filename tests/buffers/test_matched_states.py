"""Which episodes are matched with demonstrated ones, and which of their states are kept."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scopil.buffers import matched_states


def test_reach_is_a_quantile_of_nearest_neighbour_distances():
    rng = np.random.default_rng(0)
    starts = rng.normal(size=(10, 2))
    starts, group = np.concatenate([starts, starts[:3]]), np.r_[np.arange(10), 0, 1, 2]
    nearest = [min(np.hypot(*(a - b)) for b, h in zip(starts, group) if h != g) for a, g in zip(starts, group)]
    within = np.sort(nearest)[int(np.ceil(0.9 * 12))]
    got = matched_states.reach_of(jnp.asarray(starts, jnp.float32), jnp.asarray(group), 0.9)
    assert float(got) == pytest.approx(within, rel=1e-5)


def test_with_one_start_every_episode_is_matched():
    reach = matched_states.reach_of(jnp.zeros((4, 2)), jnp.zeros(4, jnp.int32), 0.9)
    assert 1e30 < float(reach) < np.inf


def play(own: Any, place: list[float], began: list[bool], value: float, known: Any = True) -> Any:
    """One step of every environment, from these places, to states that hold `value`."""
    reached, first = jnp.full((len(place), 1), value), jnp.asarray(began)
    starts = jnp.array([[0.0], [1.0]])
    informed = jnp.broadcast_to(jnp.asarray(known), first.shape)
    return matched_states.offer(own, reached, first, jnp.asarray(place)[:, None], informed, starts, jax.random.key(0))


def test_the_start_of_an_episode_decides_for_all_its_steps():
    own = matched_states.empty(100, 1, 2)._replace(reach=jnp.float32(0.2))
    own = play(own, [0.1, 5.0], [True, True], 1.0)
    assert own.playing.tolist() == [True, False]
    own = play(own, [9.0, 1.1], [False, False], 2.0)  # far from every start, near one: it does not matter any more
    assert own.playing.tolist() == [True, False]
    own = play(own, [3.0, 1.1], [True, True], 3.0)  # both begin anew
    assert own.playing.tolist() == [False, True]
    assert int(own.kept) == 3
    assert own.states[:4, 0].tolist() == [1.0, 2.0, 3.0, 0.0]


def test_an_episode_whose_start_is_unknown_is_not_matched():
    """The first one after a warm-up, for example, even where it passes a demonstrated start."""
    own = play(matched_states.empty(100, 1, 1)._replace(reach=jnp.float32(0.2)), [0.0], [False], 1.0)
    assert own.playing.tolist() == [False]
    assert int(own.kept) == 0


def test_unknown_states_are_not_kept():
    own = matched_states.empty(100, 1, 2)._replace(reach=jnp.float32(0.2))
    own = play(own, [0.0, 1.0], [True, True], 1.0, known=[True, False])
    own = play(own, [9.0, 9.0], [False, False], 2.0, known=[False, True])
    assert own.playing.tolist() == [True, True]  # the episodes stay matched
    assert own.states[:3, 0].tolist() == [1.0, 2.0, 0.0]


def test_kept_states_are_a_uniform_sample():
    own = matched_states.empty(50, 1, 1)._replace(reach=jnp.float32(1.0))

    def run(seed: Any) -> Any:
        def body(number: Any, own: Any) -> Any:
            rows, yes = jnp.full((1, 1), number, jnp.float32), jnp.ones(1, bool)
            key = jax.random.fold_in(jax.random.key(seed), number)
            return matched_states.offer(own, rows, yes, jnp.zeros((1, 1)), yes, jnp.zeros((1, 1)), key)

        return jax.lax.fori_loop(0, 1_000, body, own).states[:, 0]

    kept = np.concatenate([np.asarray(jax.jit(run)(seed)) for seed in range(40)])
    share = np.histogram(kept, bins=10, range=(0, 1_000))[0] / len(kept)
    np.testing.assert_allclose(share, 0.1, atol=4 * (0.09 / 2_000) ** 0.5)


def test_the_first_states_are_the_demonstrated_ones():
    shown = jnp.arange(5.0)[:, None]
    known = jnp.array([True, True, False, True, True])
    some = matched_states.begin_with(matched_states.empty(100, 1, 1), shown, known, jnp.float32(0.5))
    assert some.states[: int(some.kept), 0].tolist() == [0.0, 1.0, 3.0, 4.0]
    own = matched_states.begin_with(matched_states.empty(100, 1, 1), shown, jnp.ones(5, bool), jnp.float32(0.5))
    assert int(own.kept) == 5
    np.testing.assert_array_equal(own.states[:5], shown)
    assert float(own.reach) == 0.5
