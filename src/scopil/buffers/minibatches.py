"""Passes over a rollout in shuffled minibatches, until they are done or the policy has moved far enough."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.types import PRNGKey

Metrics = dict[str, Float[Array, ""]]
Step = Callable[[Any, Any, PRNGKey], tuple[Any, Metrics]]  # (carry, minibatch, key) → carry, metrics with "policy/kl"


def passes(
    carry: Any, data: Any, step: Step, key: PRNGKey, *, epochs: int, batch_size: int, max_kl: float | Float[Array, ""]
) -> tuple[Any, Metrics]:
    """At most `epochs` passes of `step` over `data`; none after one whose mean `policy/kl` exceeds `max_kl`.

    The metrics are the last pass's means and `policy/epochs`, the passes made.
    """
    rows = jax.tree.leaves(data)[0].shape[0]
    count = rows // batch_size
    assert count * batch_size == rows, (rows, batch_size)

    def one_pass(carry: Any, epoch: Array) -> tuple[Any, Metrics]:
        k_order, k_steps = jax.random.split(jax.random.fold_in(key, epoch))
        order = jax.random.permutation(k_order, rows)
        shuffled = jax.tree.map(lambda x: x[order].reshape(count, batch_size, *x.shape[1:]), data)
        keys = jax.random.split(k_steps, count)
        carry, metrics = jax.lax.scan(lambda c, x: step(c, *x), carry, (shuffled, keys))
        return carry, jax.tree.map(jnp.mean, metrics)

    def wanted(loop):
        _, epoch, metrics = loop
        return (epoch < epochs) & (metrics["policy/kl"] <= max_kl)

    def body(loop):
        carry, epoch, _ = loop
        carry, metrics = one_pass(carry, epoch)
        return carry, epoch + 1, metrics

    shapes = jax.eval_shape(one_pass, carry, jnp.int32(0))[1]
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    carry, made, metrics = jax.lax.while_loop(wanted, body, (carry, jnp.int32(0), zeros))
    return carry, metrics | {"policy/epochs": made.astype(jnp.float32)}
