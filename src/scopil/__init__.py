"""Learn policies that solve a task and keep the demonstrator's unwritten rules.

Public names are imported on first use, so that `import scopil` and `scopil --help` stay fast. The classes of the
algorithms (`scopil.SCOPIL`, `scopil.SAC`, …) are generated from `scopil.registry.BUILT_IN`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scopil import registry
from scopil._version import __version__ as __version__
from scopil.envs.naming import register

if TYPE_CHECKING:
    from scopil.agent import Agent as Agent
    from scopil.algos.base import Algorithm as Algorithm
    from scopil.algos.base import Data as Data
    from scopil.algos.base import Spaces as Spaces
    from scopil.callbacks import EvalCallback as EvalCallback
    from scopil.callbacks import NovelBudget as NovelBudget
    from scopil.data.dataset import Demonstrations as Demonstrations
    from scopil.data.dataset import Episode as Episode
    from scopil.data.record import record as record
    from scopil.data.recorder import Recorder as Recorder
    from scopil.data.storage import load_demos as load_demos
    from scopil.envs.gym_env import open_env as open_env
    from scopil.envs.jax_env import CompiledEnv as CompiledEnv
    from scopil.envs.marble_maze import Circle as Circle
    from scopil.envs.marble_maze import HorizontalLine as HorizontalLine
    from scopil.envs.marble_maze import MarbleMaze as MarbleMaze
    from scopil.envs.marble_maze import MarbleParams as MarbleParams
    from scopil.envs.marble_maze import Rectangle as Rectangle
    from scopil.envs.marble_maze import VerticalLine as VerticalLine
    from scopil.errors import ScopilError as ScopilError
    from scopil.eval.episodes import replay as replay
    from scopil.eval.measures import average as average
    from scopil.eval.measures import measure_all as measure_all
    from scopil.eval.pictures import save_episodes as save_episodes
    from scopil.eval.rules import Rules as Rules
    from scopil.eval.tables import markdown_table as markdown_table
    from scopil.eval.tables import print_measures as print_measures
    from scopil.familiarity import Watch as Watch
    from scopil.loading import load as load
    from scopil.policy import Policy as Policy
    from scopil.train.logging import WandbCallback as WandbCallback
    from scopil.train.run import Run as Run
    from scopil.train.run import RunSpec as RunSpec
    from scopil.train.trainer import TrainStatus as TrainStatus

_NAMES = {
    "agent": "Agent",
    "algos.base": "Algorithm Data Spaces",
    "callbacks": "EvalCallback NovelBudget",
    "data.dataset": "Demonstrations Episode",
    "data.record": "record",
    "data.recorder": "Recorder",
    "data.storage": "load_demos",
    "envs.gym_env": "open_env",
    "envs.jax_env": "CompiledEnv",
    "envs.marble_maze": "Circle HorizontalLine MarbleMaze MarbleParams Rectangle VerticalLine",
    "errors": "ScopilError",
    "eval.episodes": "replay",
    "eval.measures": "average measure_all",
    "eval.pictures": "save_episodes",
    "eval.rules": "Rules",
    "eval.tables": "markdown_table print_measures",
    "familiarity": "Watch",
    "loading": "load",
    "policy": "Policy",
    "train.logging": "WandbCallback",
    "train.run": "Run RunSpec",
    "train.trainer": "TrainStatus",
}
_MODULE_OF = {name: f"scopil.{module}" for module, names in _NAMES.items() for name in names.split()}
_CLASSES = {name for name, _ in registry.BUILT_IN.values()}
_MOVED = {"Study", "demonstrate_tray", "run_study", "train_runs"}
__all__ = sorted(_MODULE_OF.keys() | _CLASSES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    if name in _CLASSES:
        return registry.agent_class(name)
    hint = f"; it is scopil_bench.{name}" if name in _MOVED else ""
    raise AttributeError(f"module 'scopil' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


register()
