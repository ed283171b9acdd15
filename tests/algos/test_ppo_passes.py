"""PPO's passes over a rollout: every row once a pass, and the bound on the KL."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scopil.algos.ppo import passes


def count(kl_of_pass, *, epochs: int, max_kl: float):
    """Counts how often each of 12 rows is used; `kl_of_pass` maps the rows used so far to a KL."""

    def step(seen, mini, key):
        return seen.at[mini].add(1), {"policy/kl": kl_of_pass(seen.sum())}

    return passes(
        jnp.zeros(12, jnp.int32), jnp.arange(12), step, jax.random.key(0), epochs=epochs, batch_size=4, max_kl=max_kl
    )


def test_every_row_comes_once_a_pass():
    seen, metrics = count(lambda n: jnp.float32(0.0), epochs=3, max_kl=1.0)
    np.testing.assert_array_equal(seen, 3)
    assert float(metrics["policy/epochs"]) == 3


@pytest.mark.parametrize(("max_kl", "made"), [(3.9, 1), (4.0, 2), (15.9, 2), (16.0, 3), (np.inf, 5)])
def test_no_pass_follows_one_that_moved_too_far(max_kl, made):
    """KL = rows seen before the step, so the means of the passes are 4, 16, 28, …"""
    seen, metrics = count(lambda n: n.astype(jnp.float32), epochs=5, max_kl=max_kl)
    np.testing.assert_array_equal(seen, made)
    assert float(metrics["policy/epochs"]) == made
    assert float(metrics["policy/kl"]) == 12 * made - 8


def test_a_policy_that_moved_backwards_is_not_stopped():
    _, metrics = count(lambda n: jnp.float32(-5.0), epochs=2, max_kl=0.03)  # the estimate is signed
    assert float(metrics["policy/epochs"]) == 2


def test_passes_differ_in_order_and_keys():
    def step(carry, mini, key):
        order, draws, at = carry
        draw = jax.random.uniform(key)
        return (order.at[at].set(mini), draws.at[at].set(draw), at + 1), {"policy/kl": jnp.float32(0.0)}

    start = (jnp.zeros((6, 4), jnp.int32), jnp.zeros(6), 0)
    (order, draws, _), _ = passes(start, jnp.arange(12), step, jax.random.key(0), epochs=2, batch_size=4, max_kl=1.0)
    assert not np.array_equal(order[:3], order[3:])
    assert len(set(np.asarray(draws).tolist())) == 6
