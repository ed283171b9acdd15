"""The paper's ablations of SCOPIL: the same update with other parts plugged in."""

from scopil.algos.scopil import Parts, variant
from scopil.core.duals import hold
from scopil.core.imitation import nll_constraint

S_DGD = variant("s-dgd", "S-DGD", Parts(dual=hold))  # λ stays at λ₀
S_EIC = variant("s-eic", "S-EiC", Parts(constraint=nll_constraint))  # no entropy in the constraint
S_DGD_EIC = variant("s-dgd-eic", "S-DGD-EiC", Parts(constraint=nll_constraint, dual=hold))
