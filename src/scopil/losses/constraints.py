"""The imitation constraint G of SCOPIL, one number per demonstrated pair, and the update of its multiplier.

The constraint is satisfied if the mean of G is ≤ 0.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from scopil.nn.distributions import Categorical, Resolved

Distribution = Categorical | Resolved
Actions = Int[Array, " B"] | Float[Array, "B A"]
Scalar = float | Float[Array, ""]


def nll_constraint(pi: Distribution, action: Actions, entropy_weight: Scalar, slack: Scalar) -> Float[Array, " B"]:
    """−log π(a|s) − δ: the demonstrator's KL up to a constant, no entropy (S-EiC, S-DGD-EiC)."""
    return -pi.log_prob(action) - slack


def entropic_constraint(pi: Distribution, action: Actions, entropy_weight: Scalar, slack: Scalar) -> Float[Array, " B"]:
    """−log π(a|s) − w H(π(·|s)) − δ, with w = 2βα   (paper, Eq. for L; docs/method.md derives it)"""
    return nll_constraint(pi, action, entropy_weight, slack) - entropy_weight * pi.entropy()


def within_budget(
    constraint: Callable[..., Float[Array, " B"]],
    pi: Distribution,
    action: Actions,
    entropy_weight: Scalar,
    budget: Scalar,
) -> Float[Array, ""]:
    """E_D of a constraint whose δ is what remains of a budget of −log π(a|s) after the constraint's entropy term.

    Its value is E_D[−log π(a|s)] − budget, so that entropy buys no distance from the demonstrator; its gradient is the
    constraint's own.
    """
    value = constraint(pi, action, entropy_weight, 0.0).mean()
    nll = -pi.log_prob(action).mean()
    return value - jax.lax.stop_gradient(value - nll) - budget


def ascend(multiplier: Scalar, violation: Scalar, rate: Scalar) -> Float[Array, ""]:
    """λ ← [λ + η G]₊; G > 0 means the constraint is broken.   (paper, Algorithm 1)

    No upper bound: a bound would hide an infeasible constraint, which we would rather see diverge.
    """
    return jnp.maximum(multiplier + rate * violation, 0.0)


def hold(multiplier: Scalar, violation: Scalar, rate: Scalar) -> Float[Array, ""]:
    """λ ← λ   (S-DGD, S-DGD-EiC)"""
    return jnp.asarray(multiplier)
