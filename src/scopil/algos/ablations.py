"""The paper's ablations of SCOPIL: the same update with another constraint or another dual step."""

from scopil.algos.scopil import variant
from scopil.losses.constraints import hold, nll_constraint

S_DGD = variant("s-dgd", "S-DGD", "SCOPIL with the multiplier fixed at λ₀", dual=hold)
S_EIC = variant("s-eic", "S-EiC", "SCOPIL without entropy in the constraint", constraint=nll_constraint)
S_DGD_EIC = variant("s-dgd-eic", "S-DGD-EiC", "SCOPIL with neither", constraint=nll_constraint, dual=hold)
