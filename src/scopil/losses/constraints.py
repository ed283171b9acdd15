"""The imitation constraint G of SCOPIL, with one value per demonstrated (s, a), and the update of its multiplier.

The constraint is satisfied if the mean of G is ≤ 0.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from scopil.nn.distributions import Categorical, Resolved

Distribution = Categorical | Resolved
Actions = Int[Array, " B"] | Float[Array, "B A"]
Scalar = float | Float[Array, ""]


def nll_constraint(pi: Distribution, action: Actions, entropy_weight: Scalar, slack: Scalar) -> Float[Array, " B"]:
    """−log π(a|s) − δ, without the entropy term: up to a constant, the KL from the demonstrator (S-EiC, S-DGD-EiC)."""
    return -pi.log_prob(action) - slack


def entropic_constraint(pi: Distribution, action: Actions, entropy_weight: Scalar, slack: Scalar) -> Float[Array, " B"]:
    """−log π(a|s) − w H(π(·|s)) − δ, with w = 2βα   (paper, equation of L; derivation: docs/method.md)"""
    return nll_constraint(pi, action, entropy_weight, slack) - entropy_weight * pi.entropy()


def within_budget(
    constraint: Callable[..., Float[Array, " B"]],
    pi: Distribution,
    action: Actions,
    entropy_weight: Scalar,
    budget: Scalar,
) -> Float[Array, ""]:
    """The value is E_D[−log π(a|s)] − budget; the gradient is that of `constraint`.

    The entropy term of the constraint therefore cannot compensate for a distance from the demonstrator.
    """
    value = constraint(pi, action, entropy_weight, 0.0).mean()
    nll = -pi.log_prob(action).mean()
    return value - jax.lax.stop_gradient(value - nll) - budget


def ascend(multiplier: Scalar, violation: Scalar, rate: Scalar) -> Float[Array, ""]:
    """λ ← [λ + η G]₊; G > 0 means that the constraint is violated (paper, Algorithm 1).

    λ has no upper bound: if the constraint is infeasible, λ diverges, and a bound would hide this.
    """
    return jnp.maximum(multiplier + rate * violation, 0.0)


def hold(multiplier: Scalar, violation: Scalar, rate: Scalar) -> Float[Array, ""]:
    """λ ← λ   (S-DGD, S-DGD-EiC)"""
    return jnp.asarray(multiplier)


class Dual(NamedTuple):
    """A multiplier with a state of its own: the initial state, the multiplier, and one step of the state."""

    init: Callable[[Any], Any]  # config → state
    value: Callable[[Any], Float[Array, ""]]  # state → multiplier
    step: Callable[[Any, Float[Array, ""], Any], Any]  # (state, violation, config) → state
