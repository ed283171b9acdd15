"""One algorithm, one file. Names are looked up here, for command lines and run folders only.

Another package adds its own through the entry-point group `scopil.algorithms`, each naming an `Algorithm`.
"""

import warnings
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from scopil.algos import (
    ablations,
    bc,
    icrl,
    ppo,
    ppo_dgd,
    ppo_lagrangian,
    sac,
    sac_lagrangian,
    scopil,
    scopil_rho,
)
from scopil.algos.base import Algorithm
from scopil.config import config, near
from scopil.errors import ConfigError

_OURS = (
    scopil.ALGORITHM,
    scopil_rho.ALGORITHM,
    sac.ALGORITHM,
    *ablations.ALGORITHMS,
    ppo.ALGORITHM,
    ppo_dgd.ALGORITHM,
    icrl.ALGORITHM,
    bc.ALGORITHM,
    ppo_lagrangian.ORACLE,
    sac_lagrangian.ORACLE,
)


@cache
def registered() -> dict[str, Algorithm]:
    """Every algorithm with a name: ours, then those of installed packages."""
    found = {algorithm.name: algorithm for algorithm in _OURS}
    for point in entry_points(group="scopil.algorithms"):
        try:
            algorithm = point.load()
        except Exception as error:  # another package's fault must not stop ours
            warnings.warn(
                f"the algorithm {point.name!r} ({point.value}) cannot be loaded: {error}.", stacklevel=2
            )
            continue
        if not isinstance(algorithm, Algorithm):
            raise ConfigError(
                f"entry point {point.name!r} ({point.value}) is a {type(algorithm).__name__}; want a scopil.Algorithm."
            )
        found.setdefault(algorithm.name, algorithm)
    return found


def find(name: str) -> Algorithm:
    """The algorithm of a name."""
    known = registered()
    if name not in known:
        raise ConfigError(
            f"no algorithm is called {name!r}; there are {', '.join(known)}.{near(str(name), known)}"
        )
    return known[name]


def stand_in(name: str, title: str) -> Algorithm:
    """In place of an algorithm that is not installed here: its runs can be read, played and reported, not trained."""

    def refuse(*_: Any) -> Any:
        refuse_stand_in(made)

    made = Algorithm(
        name=name,
        title=title,
        summary="not installed here",
        config=_Nothing,
        init=refuse,
        update=refuse,
        policy=refuse,
        wants=frozenset(),
    )
    return made


def is_stand_in(algorithm: Algorithm) -> bool:
    return algorithm.config is _Nothing


def refuse_stand_in(algorithm: Algorithm) -> None:
    """Say what to do where an algorithm has to be the real one."""
    if is_stand_in(algorithm):
        raise ConfigError(
            f"{algorithm.name} is not a registered algorithm; pass the algorithm itself (Run.open(folder, algorithm), "
            f"scopil.load(path, algorithm=...)), or install the package that registers it."
        )


@config
class _Nothing:
    """No settings."""


__all__ = ["Algorithm", "find", "is_stand_in", "refuse_stand_in", "registered", "stand_in"]
