"""One algorithm, one file."""

from scopil.algos import bc, icrl, ppo, ppo_dgd, ppo_lagrangian, sac, sac_lagrangian, scopil
from scopil.algos.ablations import S_DGD, S_DGD_EIC, S_EIC
from scopil.algos.base import Algorithm

ALGORITHMS: dict[str, Algorithm] = {
    a.name: a
    for a in (
        scopil.ALGORITHM,
        sac.ALGORITHM,
        S_DGD,
        S_EIC,
        S_DGD_EIC,
        ppo.ALGORITHM,
        ppo_dgd.ALGORITHM,
        icrl.ALGORITHM,
        bc.ALGORITHM,
        ppo_lagrangian.ORACLE,
        sac_lagrangian.ORACLE,
    )
}

__all__ = ["ALGORITHMS", "Algorithm"]
