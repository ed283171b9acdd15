"""Describe the files of a folder without reading them whole. A file may be damaged, or made to exhaust time or memory:
its type and size are checked first, little of it is read, and each file has a time limit."""

import math
import os
import signal
import stat
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from scopil.errors import CheckpointError, ConfigError, DatasetError, ScopilError, refused_as
from scopil.files import parse_json

SECONDS = 2.0  # time limit per file
LARGEST_SET = 2**30  # bytes of a set of demonstrations, or of a policy
MOST_UNPACKED = 2**31  # bytes of all arrays of a set
LARGEST_PART = 2**25  # bytes of a header, of the lengths of a set's episodes, or of a directory of an archive
DIRECTORY = b"PK\5\6"  # begins the last record of an archive, which gives the size of its directory
LOCATOR = b"PK\6\7"  # before that record: the directory is described elsewhere, as in archives above 4 GB
NOT_YET = "not read yet: the files before it took too long; open the page again."
_known: dict[Path, tuple[tuple[int, ...] | None, dict[str, Any]]] = {}  # version and description of each file


def plain(path: Path, largest: int = LARGEST_SET) -> Path:
    """The path, if it is a plain file of at most `largest` bytes or if there is nothing. Raises ConfigError."""
    try:
        state = path.lstat()
    except FileNotFoundError:
        return path
    if not stat.S_ISREG(state.st_mode):
        raise ConfigError(f"{path.name} is not a plain file; want no link, pipe, device or folder.")
    if state.st_size > largest:
        raise ConfigError(f"{path.name} has {state.st_size:,} bytes; the studio reads at most {largest:,}.")
    return path


def plain_set(path: Path) -> Path:
    """The path, if a set of demonstrations there, or nothing, can be read whole. Raises ConfigError or DatasetError."""
    if plain(path).exists():
        with _archive(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > MOST_UNPACKED:
            raise DatasetError(
                f"{path.name} unpacks to {unpacked:,} bytes; the studio reads at most {MOST_UNPACKED:,}."
            )
    return path


def version_of(state: os.stat_result) -> tuple[int, ...]:
    """Differs after a file was replaced, also if the clock was set back."""
    return state.st_ino, state.st_mtime_ns, state.st_size


def set_about(path: Path, until: float = math.inf) -> dict[str, Any]:
    """Environment, episodes and steps of a set; or its `problem`. After the time `until` no new file is read."""
    return _described(_set_about, path, until)


def policy_about(path: Path, until: float = math.inf) -> dict[str, Any]:
    """Fields of the note in a file written by `agent.save`; or its `problem`."""
    return _described(_policy_about, path, until)


def _described(describe: Callable[[Path], dict[str, Any]], path: Path, until: float) -> dict[str, Any]:
    try:
        state = plain(path).stat()
    except (ScopilError, OSError) as error:
        return {"problem": str(error)}
    version, (known, found) = version_of(state), _known.get(path, (None, {}))
    if known == version:
        return found
    if time.monotonic() > until:
        return {"problem": NOT_YET}
    try:
        with time_limit(path.name):
            found = describe(path)
    except (ScopilError, OSError) as error:
        found = {"problem": str(error)}
    _known[path] = version, found
    return found


def _set_about(path: Path) -> dict[str, Any]:
    with refused_as(DatasetError, path), _archive(path) as archive:
        names = archive.namelist()
        if "header.npy" not in names:  # arrays of another program
            return {"env": None, "episodes": None, "steps": None}
        header, lengths = parse_json(str(_part(archive, "header.npy"))), _part(archive, "lengths.npy")
        env = header["env_id"]
        if not isinstance(env, str | None) or lengths.ndim != 1:
            raise ValueError("environment or lengths of another type")
        return {"env": env, "episodes": len(lengths), "steps": int(lengths.sum())}


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive whose directory is small enough to be read."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - 2**16 - 22))  # the last record may be followed by a comment of 2¹⁶ bytes
        head, found, record = file.read().rpartition(DIRECTORY)
        if not found or len(record) < 18:
            raise DatasetError(f"{path.name}: not a readable .npz, probably truncated or damaged.")
        if head[-20:].startswith(LOCATOR) or int.from_bytes(record[8:12], "little") > LARGEST_PART:
            raise DatasetError(f"{path.name}: too many arrays; the studio does not open it.")
        with refused_as(DatasetError, path), zipfile.ZipFile(file) as archive:
            yield archive


def _part(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    if (size := archive.getinfo(name).file_size) > LARGEST_PART:
        raise DatasetError(f"{name} has {size:,} bytes; want at most {LARGEST_PART:,}.")
    with archive.open(name) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _policy_about(path: Path) -> dict[str, Any]:
    with refused_as(CheckpointError, path), path.open("rb") as file:
        if (size := int.from_bytes(file.read(8), "little")) > LARGEST_PART:
            raise ValueError(f"a header of {size:,} bytes")
        note = parse_json(parse_json(file.read(size))["__metadata__"]["scopil"])["note"]
        return {key: note[key] for key in ("config", "title", "seed", "env", "env_steps") if key in note}


@contextmanager
def time_limit(name: str) -> Iterator[None]:
    """Raise TimeoutError, which is an OSError, if the block takes more than SECONDS. It interrupts reading from a pipe
    or a slow disk. Only the main thread gets signals, and Windows has no such timer; there is no limit then."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    timeout = TimeoutError(f"{name}: not read within {SECONDS:g} s.")
    over = False

    def late(*_: object) -> None:
        nonlocal over
        over = True
        raise timeout

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    except Exception as error:
        if over and error is not timeout:  # other code has caught it
            raise timeout from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
