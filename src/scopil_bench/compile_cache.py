"""The runs of one plan share a compilation cache, so only the first seed of a method compiles.

JAX executes the programs in its cache. The folder is therefore in the user's own cache folder, where no other user can
put one of the same name. It is created for one plan and removed with it. If the user has set
`JAX_COMPILATION_CACHE_DIR`, that folder is used instead.
"""

import os
import shutil
import stat
import tempfile
import weakref
from contextlib import ExitStack
from pathlib import Path

from scopil.files import is_locked, lock

CACHE = "JAX_COMPILATION_CACHE_DIR"
EVERY_PROGRAM = {  # cache small programs too
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
LOCK = ".lock"  # held by the process that uses the folder


class CompileCache:
    """A cache folder that is removed when this object is deleted. Without a cache folder of the user, there is none."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        if CACHE in os.environ:
            return
        try:
            place = _place()
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            _remove_abandoned(place)
            folder = Path(tempfile.mkdtemp(dir=place))
            held = lock(folder / LOCK)
        except (OSError, RuntimeError):  # RuntimeError: there is no home folder
            return
        self.folder = folder
        weakref.finalize(self, _remove, folder, held)

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


def _place() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scopil" / "programs"


def _remove(folder: Path, held: ExitStack) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    held.close()


def _remove_abandoned(place: Path) -> None:
    """Remove the folders of killed processes. The operating system has released their locks."""
    for folder in place.iterdir():
        if _is_private(folder) and (folder / LOCK).exists() and not is_locked(folder / LOCK):
            shutil.rmtree(folder, ignore_errors=True)
