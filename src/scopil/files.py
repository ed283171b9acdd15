"""Writing so that a reader never sees half a file."""

import hashlib
import os
import tempfile
from pathlib import Path

_SEAL = b"scopil sha256 "
SEAL_BYTES = len(_SEAL) + 64


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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
