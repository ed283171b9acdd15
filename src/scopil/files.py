"""Atomic writes, checksums, safe reading of archives, and file locks."""

import hashlib
import io
import json
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import filelock
import numpy as np

_SEAL = b"scopil sha256 "
SEAL_BYTES = len(_SEAL) + 64
SMALL, MOST_UNPACKED = 2**28, 20  # an archive of n bytes may unpack to SMALL + MOST_UNPACKED · n bytes


def seal(*pieces: bytes | memoryview) -> bytes:
    """The seal to write at the end of a file: a fixed prefix and the SHA-256 checksum of all pieces."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return _SEAL + digest.hexdigest().encode()


def unsealed(data: bytes) -> bytes | None:
    """The body of sealed data; None if there is no seal. Raises ValueError if the checksum does not match."""
    body, tail = data[:-SEAL_BYTES], data[-SEAL_BYTES:]
    if not tail.startswith(_SEAL):
        return None
    if seal(body) != tail:
        raise ValueError("checksum does not match")
    return body


def parse_json(text: str | bytes) -> Any:
    """`json.loads`, but it raises ValueError instead of RecursionError for text that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error


def unpacks_to_far_more(unpacked: int, held: int) -> bool:
    """Whether an archive of `held` bytes unpacks to too many bytes."""
    return unpacked > SMALL + MOST_UNPACKED * held


def read_npz(data: bytes, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, np.ndarray | None]:
    """The arrays of a `.npz` by name. Arrays that are not `wanted` are not read; their value is None. Raises ValueError
    if an array holds neither numbers nor text, or if the archive unpacks to too many bytes."""
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
    """Write a temporary file, flush it to disk, then rename it to `path`: a reader gets the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A part of the name, because names have at most 255 bytes.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.umask(mask := os.umask(0))
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def is_line(text: object) -> bool:
    """Whether a value from a file is text that is safe to print: without line breaks and escape sequences."""
    return isinstance(text, str) and text.isprintable()


def odd_entry(folder: Path) -> str | None:
    """A message about the first entry in a folder that is not a plain file or folder; None if there is none. Writing to
    a link changes a file elsewhere, and reading a pipe or a device may never end."""
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in (*folders, *files)):
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:  # a temporary file of a running process
                continue
            if stat.S_ISLNK(mode):
                return f"{path} is a link"
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                return f"{path} is neither a file nor a folder"
    return None


class Locked(OSError):
    """The lock is held by another process, or by another call of `lock`."""


def lock(path: Path, wait: float = 0.0) -> ExitStack:
    """Take the lock of a file; `close()`, the end of a `with` block, or the end of the process releases it. The file is
    created if it is missing; its content is never changed. Raises `Locked` if the lock is not free within `wait`
    seconds, and OSError for a symbolic link, because a link could create a file anywhere."""
    if path.is_symlink():
        raise OSError(f"{path} is a symbolic link; want a plain file. Remove the link.")
    # Raises on a file system without locks: filelock's fallback, a marker file, would outlive a killed process.
    held = filelock.FileLock(path, timeout=wait, thread_local=False, fallback_to_soft=False)
    try:
        held.acquire()
    except filelock.Timeout as error:
        raise Locked(f"{path} is locked by another process.") from error
    stack = ExitStack()
    stack.callback(held.release, force=True)
    return stack


def is_locked(path: Path) -> bool:
    """Whether the lock of a file is held now. A free lock is taken briefly; no file is created."""
    try:
        if os.path.lexists(path):
            lock(path).close()
    except Locked:
        return True
    return False
