"""The imitation constraint G of SCOPIL, one number per demonstrated pair. Feasible when its mean is ≤ 0."""

from jaxtyping import Array, Float, Int

from scopil.core.distributions import Categorical
from scopil.core.gaussian import Resolved

Distribution = Categorical | Resolved
Actions = Int[Array, " B"] | Float[Array, "B A"]
Scalar = float | Float[Array, ""]


def nll_constraint(
    pi: Distribution, action: Actions, entropy_weight: Scalar, slack: Scalar
) -> Float[Array, " B"]:
    """−log π(a|s) − δ: the demonstrator's KL up to a constant, no entropy (S-EiC, S-DGD-EiC)."""
    return -pi.log_prob(action) - slack


def entropic_constraint(
    pi: Distribution, action: Actions, entropy_weight: Scalar, slack: Scalar
) -> Float[Array, " B"]:
    """−log π(a|s) − w H(π(·|s)) − δ, with w = 2βα   (paper, Eq. for L; docs/method.md derives it)"""
    return nll_constraint(pi, action, entropy_weight, slack) - entropy_weight * pi.entropy()
