"""Code of the caller's own: an environment, rules or an expert in a file, named as `my_file.py:name` or `module:name`.

Only what a caller gives as an argument may be loaded here; a name that was read from a file is not such an argument.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from scopil.errors import ConfigError


def python() -> list[str]:
    """For processes of our own. `python -m` would import from the current folder before the standard library: so only
    where this process does too."""
    here = {"", os.getcwd()} & set(sys.path)
    return [sys.executable, *([] if here else ["-P"])]


def split_name(name: str) -> tuple[str, str]:
    """`my_file.py:name` → (my_file.py, name); the second is empty where only a file or module is named. A drive's
    colon (C:\\…) separates nothing."""
    where, colon, attribute = name.rpartition(":")
    if not colon or len(where) == 1:
        return name, ""
    return where, attribute


def is_file_name(name: str) -> bool:
    """Whether a name is that of a Python file, or of something in one."""
    return split_name(name)[0].endswith(".py")


def load_module(name: str, wanted: str) -> ModuleType:
    """A module by its file or by its name, from this folder or installed. `wanted` is an example for messages."""
    where, _ = split_name(name)
    try:
        return _from_file(Path(where)) if where.endswith(".py") else _by_name(where)
    except FileNotFoundError as error:
        raise ConfigError(
            f"no file {where} in {Path.cwd()}; want a Python file, as in {wanted}, or its whole path."
        ) from error
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"cannot import {name!r}: {error}; looked in {Path.cwd()} and among installed packages. Want a file or a "
            f"module, as in {wanted}."
        ) from error
    except Exception as error:  # whatever a file of the caller's raises
        raise ConfigError(f"{where} fails when it is imported: {type(error).__name__}: {error}.") from error


def load_object(name: str, wanted: str) -> Any:
    """What is called `my_file.py:name` or `module:name`."""
    where, attribute = split_name(name)
    if not attribute:
        raise ConfigError(f"{name!r} names a file or module and nothing in it; want {wanted}.")
    module = load_module(name, wanted)
    if not hasattr(module, attribute):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise ConfigError(f"{where} has no {attribute!r}; it has {', '.join(public) or 'nothing'}.")
    return getattr(module, attribute)


@contextmanager
def findable(folder: Path) -> Iterator[None]:
    """Modules of a folder can be imported, after everything that is installed: no file there can pose as a package."""
    if (place := str(folder)) in sys.path:
        yield
        return
    sys.path.append(place)
    try:
        yield
    finally:
        sys.path.remove(place)


def _by_name(name: str) -> ModuleType:
    with findable(Path.cwd()):
        return importlib.import_module(name)


def _from_file(file: Path) -> ModuleType:
    """One file is one module, however often and by whichever path it is named."""
    file = file.resolve(strict=True)
    known = sys.modules.get(file.stem)
    if known is not None and _same(known, file):
        return known
    name = file.stem if known is None and importlib.util.find_spec(file.stem) is None else f"{file.stem}@{file}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # classes and copies look their module up by name
    try:
        with findable(file.parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _same(module: ModuleType, file: Path) -> bool:
    found = getattr(module, "__file__", None)
    return found is not None and Path(found).resolve() == file
