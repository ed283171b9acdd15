"""The paper's settings, for tests that follow its equations: no clone to begin with, the newest actor as the policy."""

from typing import Any

from scopil.algos.base import Algorithm
from scopil.config import PRINTED, build, settings


def printed(algorithm: Algorithm, **values: Any) -> Any:
    """A config of an algorithm, the paper's where it knows it."""
    known = any(s.name == PRINTED for s in settings(algorithm.config))
    return build(algorithm.config, ({PRINTED: True} if known else {}) | values)
