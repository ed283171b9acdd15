"""Compiled programs are kept between processes, in JAX's compilation cache in the user's cache folder.

JAX executes the programs that it finds there. Only the user may write to the folder, and there is one per kind of
processor. JAX writes its files in place, so that a reader could find half a file. Therefore every process gives JAX a
folder of its own, with links to the kept programs, and adds its new programs when it ends. The folder may be deleted at
any time. `JAX_ENABLE_COMPILATION_CACHE=false` turns the cache off; `JAX_COMPILATION_CACHE_DIR` names another folder,
which JAX then uses directly.
"""

import atexit
import hashlib
import os
import platform
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from scopil.files import is_locked, lock

LARGEST = 512 * 2**20  # bytes of kept programs; the programs not used for longest are removed
KEPT = "kept-"  # begins the names of folders with kept programs
LOCK = ".lock"  # held by the process that uses the folder


def use() -> None:
    """Use the cache from now on, unless the user has set one or turned it off, or there is no place for it."""
    settings: Any = jax.config
    if settings.jax_compilation_cache_dir or not settings.jax_enable_compilation_cache:
        return
    with suppress(OSError, RuntimeError):  # RuntimeError: there is no home folder
        folder = _begin(_place())
        settings.update("jax_persistent_cache_min_compile_time_secs", 0)  # small programs too
        settings.update("jax_persistent_cache_min_entry_size_bytes", -1)
        # Caches for GPUs would make the path of the folder a part of the key of every program.
        settings.update("jax_persistent_cache_enable_xla_caches", "none")
        settings.update("jax_compilation_cache_dir", str(folder))
        compilation_cache.reset_cache()  # JAX looks for a cache once, at the first program of a process


def _place() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scopil" / "programs"


def _begin(place: Path) -> Path:
    """A folder for this process with links to the kept programs."""
    kept = place / f"{KEPT}{_processor()}"
    for folder in (place, kept):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(folder):
            raise PermissionError(f"{folder} is not private")
    _remove_abandoned(place)
    _trim(place)
    folder = Path(tempfile.mkdtemp(dir=place))
    held = lock(folder / LOCK)
    for program in _programs(kept):
        with suppress(OSError):
            os.link(program, folder / program.name)
    atexit.register(_end, folder, kept, held, os.getpid())
    return folder


def _end(folder: Path, kept: Path, held: ExitStack, process: int) -> None:
    """Keep the new programs. A link appears as a whole, and fails if another process made it first."""
    if os.getpid() != process:  # a fork
        return
    if _is_private(kept):
        for program in _programs(folder):
            with suppress(OSError):
                os.link(program, kept / program.name)
    held.close()
    shutil.rmtree(folder, ignore_errors=True)


def _programs(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from (file for file in folder.iterdir() if file.name != LOCK)


def _trim(place: Path) -> None:
    """Remove the programs that were not used for longest if there are too many."""
    found = []
    for file in place.glob(f"{KEPT}*/*"):
        with suppress(OSError):
            about = file.stat()
            found.append((max(about.st_atime, about.st_mtime), about.st_size, file))
    size = 0
    for _, more, file in sorted(found, reverse=True):
        size += more
        if size > LARGEST:
            with suppress(OSError):
                file.unlink()


def _remove_abandoned(place: Path) -> None:
    """Remove the folders of killed processes. The operating system has released their locks."""
    for folder in place.iterdir():
        if _is_private(folder) and (folder / LOCK).exists() and not is_locked(folder / LOCK):
            shutil.rmtree(folder, ignore_errors=True)


def _is_private(folder: Path) -> bool:
    found = folder.lstat()
    if not hasattr(os, "getuid"):  # Windows: the folder belongs to the user
        return stat.S_ISDIR(found.st_mode)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _processor() -> str:
    """A name for this kind of processor: programs may use instructions that others do not have."""
    facts = [platform.machine(), platform.processor()]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        facts += sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
