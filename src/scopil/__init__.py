"""Learn policies that do the task and keep the demonstrator's unwritten rules.

Public names load on first use, so that `import scopil` and `scopil --help` stay quick.
"""

from importlib import import_module
from typing import Any

from scopil.envs.registration import register

_HOME = {
    "MarbleMaze": "scopil.studies.marble_maze",
    "MarbleParams": "scopil.studies.marble_maze",
    "Circle": "scopil.studies.marble_maze",
    "HorizontalLine": "scopil.studies.marble_maze",
    "VerticalLine": "scopil.studies.marble_maze",
    "Rectangle": "scopil.studies.marble_maze",
    "CompiledEnv": "scopil.envs.functional",
    "Demonstrations": "scopil.demos.dataset",
    "Episode": "scopil.demos.dataset",
    "load_demos": "scopil.demos.store",
    "ScopilError": "scopil.errors",
    "SCOPIL": "scopil.agents",
    "SAC": "scopil.agents",
    "SDGD": "scopil.agents",
    "SEiC": "scopil.agents",
    "SDGDEiC": "scopil.agents",
    "PPO": "scopil.agents",
    "PPODGD": "scopil.agents",
    "ICRL": "scopil.agents",
    "BC": "scopil.agents",
    "OraclePPOLagrangian": "scopil.agents",
    "OracleSACLagrangian": "scopil.agents",
    "load": "scopil.agents",
    "export_onnx": "scopil.export",
    "export_jax": "scopil.export",
}
__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'scopil' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


register()
