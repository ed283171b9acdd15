"""Learn policies that do the task and keep the demonstrator's unwritten rules.

Public names load on first use, so that `import scopil` and `scopil --help` stay quick; type checkers see them all.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scopil._version import __version__ as __version__
from scopil.envs.registration import register

if TYPE_CHECKING:
    from scopil.agents import (
        BC,
        ICRL,
        PPO,
        PPODGD,
        SAC,
        SCOPIL,
        SDGD,
        Agent,
        OraclePPOLagrangian,
        OracleSACLagrangian,
        SCOPILRho,
        SDGDEiC,
        SEiC,
        load,
    )
    from scopil.algos.base import Algorithm, Data, Spaces
    from scopil.callbacks import EvalCallback
    from scopil.demos.dataset import Demonstrations, Episode
    from scopil.demos.record import record
    from scopil.demos.store import load_demos
    from scopil.envs.functional import CompiledEnv
    from scopil.envs.host import open_env
    from scopil.errors import ScopilError
    from scopil.evaluate.episodes import replay
    from scopil.evaluate.measures import average, measure_all
    from scopil.evaluate.rules import Rules
    from scopil.experiments.execute import train_runs
    from scopil.policy import Policy
    from scopil.report.episode_pictures import save_episodes
    from scopil.report.measure_tables import markdown_table, print_measures
    from scopil.studies.base import Study
    from scopil.studies.marble_maze import (
        Circle,
        HorizontalLine,
        MarbleMaze,
        MarbleParams,
        Rectangle,
        VerticalLine,
    )
    from scopil.studies.marble_maze.own_tray import demonstrate_tray
    from scopil.studies.running import run_study
    from scopil.train.run import Run, RunSpec
    from scopil.train.sinks import WandbCallback
    from scopil.train.trainer import TrainStatus
    from scopil.watch import Watch

__all__ = [
    "BC",
    "ICRL",
    "PPO",
    "PPODGD",
    "SAC",
    "SCOPIL",
    "SDGD",
    "Agent",
    "Algorithm",
    "Circle",
    "CompiledEnv",
    "Data",
    "Demonstrations",
    "Episode",
    "EvalCallback",
    "HorizontalLine",
    "MarbleMaze",
    "MarbleParams",
    "OraclePPOLagrangian",
    "OracleSACLagrangian",
    "Policy",
    "Rectangle",
    "Rules",
    "Run",
    "RunSpec",
    "SCOPILRho",
    "SDGDEiC",
    "SEiC",
    "ScopilError",
    "Spaces",
    "Study",
    "TrainStatus",
    "VerticalLine",
    "WandbCallback",
    "Watch",
    "average",
    "demonstrate_tray",
    "load",
    "load_demos",
    "markdown_table",
    "measure_all",
    "open_env",
    "print_measures",
    "record",
    "replay",
    "run_study",
    "save_episodes",
    "train_runs",
]
_HOMES = {
    "agents": "BC ICRL PPO PPODGD SAC SCOPIL SCOPILRho SDGD SDGDEiC SEiC Agent OraclePPOLagrangian "
    "OracleSACLagrangian load",
    "algos.base": "Algorithm Data Spaces",
    "callbacks": "EvalCallback",
    "demos.dataset": "Demonstrations Episode",
    "demos.record": "record",
    "demos.store": "load_demos",
    "envs.functional": "CompiledEnv",
    "envs.host": "open_env",
    "errors": "ScopilError",
    "evaluate.episodes": "replay",
    "evaluate.measures": "average measure_all",
    "evaluate.rules": "Rules",
    "experiments.execute": "train_runs",
    "policy": "Policy",
    "report.episode_pictures": "save_episodes",
    "report.measure_tables": "markdown_table print_measures",
    "studies.marble_maze": "Circle HorizontalLine MarbleMaze MarbleParams Rectangle VerticalLine",
    "studies.marble_maze.own_tray": "demonstrate_tray",
    "studies.base": "Study",
    "studies.running": "run_study",
    "train.run": "Run RunSpec",
    "train.sinks": "WandbCallback",
    "train.trainer": "TrainStatus",
    "watch": "Watch",
}
_HOME = {name: f"scopil.{home}" for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'scopil' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


register()
