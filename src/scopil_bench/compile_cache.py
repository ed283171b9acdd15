"""What runs of one plan have compiled, shared between their processes: the second seed of a method compiles nothing.

JAX runs what it finds in its compilation cache, so the folder is one that nobody else can read or write, made anew for
every plan and removed with it. A `JAX_COMPILATION_CACHE_DIR` that the user has set is used instead.
"""

import os
import shutil
import stat
import tempfile
import weakref
from pathlib import Path

CACHE = "JAX_COMPILATION_CACHE_DIR"
EVERY_PROGRAM = {  # also the small ones, of which there are many
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
PREFIX = "scopil-programs-"  # then the number of the process that made it


class Programs:
    """A cache that is removed when this is."""

    def __init__(self) -> None:
        _remove_left_behind()
        self.folder = None if CACHE in os.environ else Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        if self.folder is not None:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        """For a process that trains. Nothing is shared where the folder is gone: the next one of that name may be
        somebody else's."""
        if self.folder is None or not _is_private(self.folder):
            return {}
        return EVERY_PROGRAM | {CACHE: str(self.folder)}


def _is_private(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    if not hasattr(os, "getuid"):  # Windows: the temporary folder is the user's own
        return stat.S_ISDIR(found.st_mode)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _remove_left_behind() -> None:
    """Of our processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        number = folder.name.removeprefix(PREFIX).partition("-")[0]
        if number.isdecimal() and _is_private(folder) and not _is_alive(int(number)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    if not hasattr(os, "getuid"):
        return True  # Windows: asking would end it
    try:
        os.kill(process, 0)
    except (ProcessLookupError, PermissionError, OverflowError):  # gone; its number may be another user's by now
        return False
    return True
