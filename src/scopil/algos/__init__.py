"""One algorithm, one file."""

import gymnasium as gym

from scopil.algos import (
    ablations,
    bc,
    bc_continuous,
    icrl,
    ppo,
    ppo_dgd,
    ppo_lagrangian,
    sac,
    sac_continuous,
    sac_lagrangian,
    scopil,
    scopil_continuous,
)
from scopil.algos.base import Algorithm
from scopil.errors import EnvError

ALGORITHMS: dict[str, Algorithm] = {
    a.name: a
    for a in (
        scopil.ALGORITHM,
        sac.ALGORITHM,
        *ablations.DISCRETE,
        ppo.ALGORITHM,
        ppo_dgd.ALGORITHM,
        icrl.ALGORITHM,
        bc.ALGORITHM,
        ppo_lagrangian.ORACLE,
        sac_lagrangian.ORACLE,
    )
}
CONTINUOUS: dict[str, Algorithm] = {
    a.name: a
    for a in (
        scopil_continuous.ALGORITHM,
        sac_continuous.ALGORITHM,
        *ablations.CONTINUOUS,
        bc_continuous.ALGORITHM,
    )
}


def choose(name: str, action_space: gym.Space) -> Algorithm:
    """The form of an algorithm that an action space asks for."""
    if not isinstance(action_space, gym.spaces.Box):
        return ALGORITHMS[name]
    if name not in CONTINUOUS:
        raise EnvError(
            f"{name} learns discrete actions and the environment's are {action_space}; for a Box there are "
            f"{', '.join(CONTINUOUS)}."
        )
    return CONTINUOUS[name]


__all__ = ["ALGORITHMS", "CONTINUOUS", "Algorithm", "choose"]
