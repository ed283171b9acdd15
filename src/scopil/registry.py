"""The algorithms by name. A built-in algorithm is one file in `algos/` and one line in `BUILT_IN`.

The command, the class `scopil.<Class>`, its signature, the help text and the tables of the docs are generated from this
line and its `Algorithm`. Other packages add algorithms through the entry-point group `scopil.algorithms`.
"""

import warnings
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `import scopil` reads BUILT_IN and must not import JAX
    from scopil.agent import Agent
    from scopil.algos.base import Algorithm

# command: (class, location of its `Algorithm`)
BUILT_IN: dict[str, tuple[str, str]] = {
    "scopil": ("SCOPIL", "scopil.algos.scopil:ALGORITHM"),
    "scopil-rho": ("SCOPILRho", "scopil.algos.scopil_rho:ALGORITHM"),
    "scopil-clone": ("SCOPILClone", "scopil.algos.scopil_clone:ALGORITHM"),
    "sac": ("SAC", "scopil.algos.sac:ALGORITHM"),
    "s-dgd": ("SDGD", "scopil.algos.ablations:S_DGD"),
    "s-eic": ("SEiC", "scopil.algos.ablations:S_EIC"),
    "s-dgd-eic": ("SDGDEiC", "scopil.algos.ablations:S_DGD_EIC"),
    "ppo": ("PPO", "scopil.algos.ppo:ALGORITHM"),
    "ppo-dgd": ("PPODGD", "scopil.algos.ppo_dgd:ALGORITHM"),
    "icrl": ("ICRL", "scopil.algos.icrl:ALGORITHM"),
    "vicrl": ("VICRL", "scopil.algos.vicrl:ALGORITHM"),
    "bc": ("BC", "scopil.algos.bc:ALGORITHM"),
    "gail-sac": ("GAILSAC", "scopil.algos.gail_sac:ALGORITHM"),
    "safe-qil": ("SafeQIL", "scopil.algos.safe_qil:ALGORITHM"),
    "oracle-ppo-lagrangian": ("OraclePPOLagrangian", "scopil.algos.ppo_lagrangian:ORACLE"),
    "oracle-sac-lagrangian": ("OracleSACLagrangian", "scopil.algos.sac_lagrangian:ORACLE"),
    "oracle-ppo-pid": ("OraclePPOPID", "scopil.algos.pid_lagrangian:PPO_ORACLE"),
    "oracle-sac-pid": ("OracleSACPID", "scopil.algos.pid_lagrangian:SAC_ORACLE"),
}


@cache
def registered() -> "dict[str, Algorithm]":
    """All algorithms by name: built-in algorithms first, then algorithms of installed packages."""
    from scopil.algos.base import Algorithm
    from scopil.errors import ConfigError

    found = {command: _load(where) for command, (_, where) in BUILT_IN.items()}
    for point in entry_points(group="scopil.algorithms"):
        try:
            algorithm = point.load()
        except Exception as error:  # an error in another package must not stop scopil
            warnings.warn(f"the algorithm {point.name!r} ({point.value}) cannot be loaded: {error}.", stacklevel=2)
            continue
        if not isinstance(algorithm, Algorithm):
            raise ConfigError(
                f"entry point {point.name!r} ({point.value}) is a {type(algorithm).__name__}; want a scopil.Algorithm."
            )
        found.setdefault(algorithm.name, algorithm)
    return found


def find(name: str) -> "Algorithm":
    """The algorithm with this name."""
    from scopil.config import near
    from scopil.errors import ConfigError

    known = registered()
    if name not in known:
        raise ConfigError(
            f"no algorithm is called {name!r}; there are {', '.join(known)}.{near(str(name).lower(), known)}"
        )
    return known[name]


@cache
def agent_class(name: str) -> "type[Agent]":
    """The class of a built-in algorithm, by the name of the class."""
    from scopil.agent import class_for

    return class_for(name, _load(dict(BUILT_IN.values())[name]))


def _load(where: str) -> "Algorithm":
    module, _, attribute = where.partition(":")
    return getattr(import_module(module), attribute)
