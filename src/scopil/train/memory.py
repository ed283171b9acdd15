"""Whether training fits into memory, asked before anything is allocated."""

import os
from pathlib import Path

from scopil.errors import ConfigError

SHARE = 0.8  # of the machine's memory that a replay or a rollout may take
_CGROUP = Path("/sys/fs/cgroup/memory.max")  # the limit of a container


def machine_memory() -> int | None:
    """Bytes that this process may have at most; None where the system does not say."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    try:
        return min(found, int(_CGROUP.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return found


def refuse_too_large(setting: str, steps: int, row: int, observation: int) -> None:
    """Refuse to keep `steps` steps of `row` bytes each where they would not fit."""
    memory, wanted = machine_memory(), steps * row
    if memory is None or wanted <= SHARE * memory:
        return
    fits = int(SHARE * memory / row)
    raise ConfigError(
        f"{setting} = {steps:,} steps with observations of {observation:,} numbers need {wanted / 1e9:,.1f} GB, and "
        f"this machine has {memory / 1e9:,.1f} GB; lower {setting} to {fits:,} or less, or make the observations "
        f"smaller (gymnasium.wrappers.ResizeObservation and GrayscaleObservation, for images).",
        setting=setting,
    )
