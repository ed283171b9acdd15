"""The imitation constraint G of SCOPIL, one number per demonstrated pair. Feasible when its mean is ≤ 0."""

from collections.abc import Callable

import jax
from jaxtyping import Array, Float, Int

from scopil.nn.distributions import Categorical
from scopil.nn.gaussian import Resolved

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
