"""One gradient step: parameters with their optimiser's state."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax
from jaxtyping import Array, Float

Scalar = float | Float[Array, ""]
ADAM = optax.scale_by_adam()


class Learned(NamedTuple):
    """Parameters and the optimiser's memory of them."""

    params: Any
    opt: optax.OptState


def learned(params: Any, rule: optax.GradientTransformation = ADAM) -> Learned:
    return Learned(params, rule.init(params))


def descend(
    learner: Learned,
    loss: Callable[[Any], tuple[Array, Any]],
    rate: Scalar,
    rule: optax.GradientTransformation = ADAM,
) -> tuple[Learned, Array, Any]:
    """One step on `loss(params) → (value, extras)` by `rule`, Adam's unless another is given; returns the new
    learner, the value and the extras."""
    (value, extras), grads = jax.value_and_grad(loss, has_aux=True)(learner.params)
    updates, opt = rule.update(grads, learner.opt, learner.params)
    params = jax.tree.map(lambda p, u: p - rate * u, learner.params, updates)
    return Learned(params, opt), value, extras
