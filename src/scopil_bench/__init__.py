"""Studies, executor, statistics and report page. It imports `scopil`; only commands of `scopil` import it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scopil_bench.marble_maze.generate import demonstrate_tray as demonstrate_tray
    from scopil_bench.runner import train_runs as train_runs
    from scopil_bench.studies.base import Study as Study
    from scopil_bench.studies.running import run_study as run_study

_MODULE_OF = {
    "Study": "scopil_bench.studies.base",
    "demonstrate_tray": "scopil_bench.marble_maze.generate",
    "run_study": "scopil_bench.studies.running",
    "train_runs": "scopil_bench.runner",
}
__all__ = ["Study", "demonstrate_tray", "run_study", "train_runs"]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'scopil_bench' has no attribute {name!r}")
