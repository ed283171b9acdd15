"""Signatures of this user's own folders: HMAC-SHA256 with a random key in the user's configuration folder."""

import hashlib
import hmac
import json
import os
import secrets
import stat
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

KEY_BYTES = 32


def config_folder() -> Path:
    """`scopil` in $XDG_CONFIG_HOME or ~/.config; on Windows in %APPDATA%. Raises RuntimeError without a home folder."""
    given = os.environ.get("APPDATA" if sys.platform == "win32" else "XDG_CONFIG_HOME")
    return (Path(given) if given else Path.home() / ".config") / "scopil"


def sign(content: Any) -> str | None:
    """The signature of JSON content; None if no key can be made or read, for example without a home folder."""
    try:
        key = _read(config_folder() / "key") or _create(config_folder() / "key")
    except (OSError, RuntimeError):
        return None
    return None if key is None else _signature(key, content)


def is_signed(content: Any, signature: Any) -> bool:
    """Whether this user signed the content on this machine."""
    try:
        key = _read(config_folder() / "key")
    except (OSError, RuntimeError):
        return False
    if key is None or not isinstance(signature, str) or not signature.isascii():
        return False
    return hmac.compare_digest(_signature(key, content), signature)


def _signature(key: bytes, content: Any) -> str:
    return hmac.new(key, json.dumps(content, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _read(path: Path) -> bytes | None:
    """The key; None if there is none, or if other users could have read or written it."""
    try:
        state = path.lstat()
    except FileNotFoundError:
        return None
    if os.name == "posix" and (
        state.st_uid != os.geteuid() or state.st_mode & 0o077 or not stat.S_ISREG(state.st_mode)
    ):
        warnings.warn(f"{path} is not used: want a file of yours that others cannot read. Remove it.", stacklevel=4)
        return None
    key = path.read_bytes()
    return key if len(key) == KEY_BYTES else None


def _create(path: Path) -> bytes | None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)  # only this user can read it
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with suppress(FileExistsError):  # another process was faster
            os.link(name, path)
    finally:
        os.unlink(name)
    return _read(path)
