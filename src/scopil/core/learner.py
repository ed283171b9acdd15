"""One gradient step: parameters with their Adam state."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax
from jaxtyping import Array, Float

Scalar = float | Float[Array, ""]


class Learned(NamedTuple):
    """Parameters and the optimiser's memory of them."""

    params: Any
    opt: optax.OptState


def learned(params: Any) -> Learned:
    return Learned(params, optax.scale_by_adam().init(params))


def descend(
    learner: Learned, loss: Callable[[Any], tuple[Array, Any]], rate: Scalar
) -> tuple[Learned, Array, Any]:
    """One Adam step on `loss(params) → (value, extras)`; returns the new learner, the value and the extras."""
    (value, extras), grads = jax.value_and_grad(loss, has_aux=True)(learner.params)
    updates, opt = optax.scale_by_adam().update(grads, learner.opt, learner.params)
    params = jax.tree.map(lambda p, u: p - rate * u, learner.params, updates)
    return Learned(params, opt), value, extras
