"""The option --workers of the commands that train several runs."""

import os
from typing import Annotated

from scopil.cli.options import option
from scopil.errors import ConfigError

Workers = Annotated[int | None, option("runs at a time, one core each; default: the number of cores", "N")]


def number_of(workers: int | None) -> int:
    """The number of workers; by default the cores that this process may use."""
    if workers is not None and workers < 1:
        raise ConfigError(f"workers = {workers}; want at least 1.", setting="workers")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return workers or cores or 1
