"""Files: written so that a reader never sees half of one, and locked so that two processes never write one folder."""

import hashlib
import io
import json
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock
import numpy as np

_SEAL = b"scopil sha256 "
SEAL_BYTES = len(_SEAL) + 64
SMALL, MOST_UNPACKED = (2**28, 20)  # bytes that any archive may unpack to, and how many more for each of its own


def seal(*pieces: bytes | memoryview) -> bytes:
    """What to write after a file's pieces so that a reader sees any damage: a SHA-256 over every byte of them."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return _SEAL + digest.hexdigest().encode()


def unsealed(data: bytes) -> bytes | None:
    """The body of sealed data; None when there is no seal. Raises ValueError when the seal does not match."""
    body, tail = data[:-SEAL_BYTES], data[-SEAL_BYTES:]
    if not tail.startswith(_SEAL):
        return None
    if seal(body) != tail:
        raise ValueError("checksum does not match")
    return body


def parse_json(text: str | bytes) -> Any:
    """`json.loads`, with a ValueError for text that is nested deeper than Python's stack."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error


def unpacks_to_far_more(unpacked: int, held: int) -> bool:
    """Whether an archive of `held` bytes unpacks to so many that it is refused unread."""
    return unpacked > SMALL + MOST_UNPACKED * held


def read_npz(data: bytes, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, np.ndarray | None]:
    """The arrays of a `.npz` by name, None for those that are not wanted, which are not opened. Raises ValueError for
    anything but plain arrays of numbers and text, and for an archive that unpacks to far more than it is."""
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        if not isinstance(archive, np.lib.npyio.NpzFile) or archive.zip is None:
            raise ValueError("a single array; want an archive of arrays by name")
        unpacked = sum(member.file_size for member in archive.zip.infolist())
        if unpacks_to_far_more(unpacked, len(data)):
            raise ValueError(f"{len(data):,} bytes unpack to {unpacked:,}, which no data of this kind does")
        arrays: dict[str, np.ndarray | None] = {}
        for name in archive.files:
            arrays[name] = array = archive[name] if wanted(name) else None
            if array is not None and not (isinstance(array, np.ndarray) and array.dtype.kind in "biufU"):
                raise ValueError(f"{name} is {getattr(array, 'dtype', 'no array')}; want plain numbers")
    return arrays


def write_atomically(path: Path, *pieces: bytes | memoryview) -> None:
    """Write beside the target, flush to disk, then rename over it: the old file or the new one, never a mix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def is_line(text: object) -> bool:
    """Whether a value from a file is a line of text that a terminal can be given: no line ends, no escape sequences."""
    return isinstance(text, str) and text.isprintable()


def odd_entry(folder: Path) -> str | None:
    """What is wrong with the first entry below a folder that is not a plain file or folder: a link leads elsewhere when
    it is written to, and reading a pipe or a device may never end."""
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in (*folders, *files)):
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:  # a temporary file of a run under way
                continue
            if stat.S_ISLNK(mode):
                return f"{path} is a link"
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                return f"{path} is neither a file nor a folder"
    return None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


class Locked(OSError):
    """Another process, or another lock of this one, holds the file."""


class Lock:
    """A held lock; `release()` or the end of a `with` block gives it up. Made by `lock`."""

    def __init__(self, held: filelock.BaseFileLock):
        self._held = held

    def release(self) -> None:
        """Give the lock up. A second call does nothing."""
        self._held.release(force=True)

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def lock(path: Path, wait: float = 0.0) -> Lock:
    """Take the lock of a file, at once or within `wait` seconds, or raise `Locked`. The operating system gives it up
    when the process dies.

    The file is created when it is missing, left in place afterwards on Unix, and its content is never changed. A
    symbolic link is refused, since following one could create a file anywhere.
    """
    if path.is_symlink():
        raise OSError(f"{path} is a symbolic link; wanted a plain file to lock. Remove the link.")
    # A file system without locks raises: filelock's own way out, a marker file, would outlive a killed process.
    held = filelock.FileLock(path, timeout=wait, thread_local=False, fallback_to_soft=False)
    try:
        held.acquire()
    except filelock.Timeout as error:
        raise Locked(f"{path} is locked by another process.") from error
    return Lock(held)


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock of a file now. Creates nothing."""
    if not os.path.lexists(path):
        return False
    try:
        lock(path).release()
    except Locked:
        return True
    return False
