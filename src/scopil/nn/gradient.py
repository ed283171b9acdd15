"""Gradient steps on parameters that are stored with the state of their optimiser."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax
from jaxtyping import Array, Float

Scalar = float | Float[Array, ""]
ADAM = optax.scale_by_adam()


class Trainable(NamedTuple):
    """Parameters and the state of their optimiser."""

    params: Any
    opt: optax.OptState


def trainable(params: Any, optimiser: optax.GradientTransformation = ADAM) -> Trainable:
    return Trainable(params, optimiser.init(params))


def gradient_step(
    old: Trainable,
    loss: Callable[[Any], tuple[Array, Any]],
    rate: Scalar,
    optimiser: optax.GradientTransformation = ADAM,
) -> tuple[Trainable, Array, Any]:
    """One descent step on `loss(params) → (value, extras)`. Returns the new parameters, the value and the extras."""
    (value, extras), grads = jax.value_and_grad(loss, has_aux=True)(old.params)
    updates, opt = optimiser.update(grads, old.opt, old.params)
    params = jax.tree.map(lambda p, u: p - rate * u, old.params, updates)
    return Trainable(params, opt), value, extras
