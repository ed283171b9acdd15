"""The paper's ablations of SCOPIL: the same update with other parts plugged in."""

from scopil.algos import scopil, scopil_continuous
from scopil.algos.scopil import Parts
from scopil.core.duals import hold
from scopil.core.imitation import nll_constraint

ABLATIONS = {
    ("s-dgd", "S-DGD"): Parts(dual=hold),  # λ stays at λ₀
    ("s-eic", "S-EiC"): Parts(constraint=nll_constraint),  # no entropy in the constraint
    ("s-dgd-eic", "S-DGD-EiC"): Parts(constraint=nll_constraint, dual=hold),
}
DISCRETE = tuple(scopil.variant(*names, parts) for names, parts in ABLATIONS.items())
CONTINUOUS = tuple(scopil_continuous.variant(*names, parts) for names, parts in ABLATIONS.items())
