"""The runs of one plan share a compilation cache, so only the first seed of a method compiles.

JAX executes the programs in its cache. The folder is therefore private to the user. It is created for one plan and
removed with it. If the user has set `JAX_COMPILATION_CACHE_DIR`, that folder is used instead.
"""

import os
import shutil
import stat
import tempfile
import weakref
from pathlib import Path

CACHE = "JAX_COMPILATION_CACHE_DIR"
EVERY_PROGRAM = {  # cache small programs too
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
PREFIX = "scopil-programs-"  # followed by the id of the process that created the folder


class CompileCache:
    """A cache folder that is removed when this object is deleted."""

    def __init__(self) -> None:
        _remove_abandoned()
        self.folder = None if CACHE in os.environ else Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        if self.folder is not None:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        """Environment variables for a training process. Empty if the folder was removed or is not private: another
        user may have created a folder with that name."""
        if self.folder is None or not _is_private(self.folder):
            return {}
        return EVERY_PROGRAM | {CACHE: str(self.folder)}


def _is_private(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    if not hasattr(os, "getuid"):  # Windows: the temporary folder belongs to the user
        return stat.S_ISDIR(found.st_mode)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _remove_abandoned() -> None:
    """Remove the folders of killed processes."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        number = folder.name.removeprefix(PREFIX).partition("-")[0]
        if number.isdecimal() and _is_private(folder) and not _is_alive(int(number)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    if not hasattr(os, "getuid"):
        return True  # on Windows, os.kill would end the process
    try:
        os.kill(process, 0)
    except (ProcessLookupError, PermissionError, OverflowError):  # it ended; another user's process may have its id
        return False
    return True
