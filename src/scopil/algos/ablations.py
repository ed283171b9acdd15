"""The paper's ablations of SCOPIL: the same update with other parts plugged in."""

from scopil.algos.scopil import Parts, variant
from scopil.losses.duals import hold
from scopil.losses.imitation import nll_constraint

S_DGD = variant("s-dgd", "S-DGD", "SCOPIL with the multiplier fixed at λ₀", Parts(dual=hold))
S_EIC = variant("s-eic", "S-EiC", "SCOPIL without entropy in the constraint", Parts(constraint=nll_constraint))
S_DGD_EIC = variant("s-dgd-eic", "S-DGD-EiC", "SCOPIL with neither", Parts(constraint=nll_constraint, dual=hold))
ALGORITHMS = (S_DGD, S_EIC, S_DGD_EIC)
