"""User code: an environment, rules or an expert, named as `my_file.py:name` or `module:name`.

Only names given by the caller may be loaded, never names read from a file.
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
    """The command for child processes. `python -m` imports from the current folder before the standard library. `-P`
    prevents that; it is left out if this process imports from the current folder too."""
    here = {"", os.getcwd()} & set(sys.path)
    return [sys.executable, *([] if here else ["-P"])]


def split_name(name: str) -> tuple[str, str]:
    """`my_file.py:name` → (my_file.py, name); the second is empty if only a file or module is named. The colon of a
    drive (C:\\…) is part of the file name."""
    where, colon, attribute = name.rpartition(":")
    if not colon or len(where) == 1:
        return name, ""
    return where, attribute


def is_file_name(name: str) -> bool:
    """Whether a name refers to a Python file, or to an object in one."""
    return split_name(name)[0].endswith(".py")


def load_module(name: str, wanted: str) -> ModuleType:
    """Load a module by file or name, from this folder or installed. `wanted` is an example for error messages."""
    where, _ = split_name(name)
    try:
        if where.endswith(".py"):
            return _from_file(Path(where))
        with findable(Path.cwd()):
            return importlib.import_module(where)
    except FileNotFoundError as error:
        raise ConfigError(f"no file {where} in {Path.cwd()}; want a Python file, as in {wanted}.") from error
    except ModuleNotFoundError as error:
        places = f"looked in {Path.cwd()} and among installed packages"
        raise ConfigError(f"cannot import {name!r}: {error}; {places}. Want a name as in {wanted}.") from error
    except Exception as error:  # raised by the user's file
        raise ConfigError(f"{where} fails when it is imported: {type(error).__name__}: {error}.") from error


def load_object(name: str, wanted: str) -> Any:
    """The object named `my_file.py:name` or `module:name`."""
    where, attribute = split_name(name)
    if not attribute:
        raise ConfigError(f"{name!r} names no object in a file or module; want {wanted}.")
    module = load_module(name, wanted)
    if not hasattr(module, attribute):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise ConfigError(f"{where} has no {attribute!r}; it has {', '.join(public) or 'nothing'}.")
    return getattr(module, attribute)


@contextmanager
def findable(folder: Path) -> Iterator[None]:
    """Makes the modules of a folder importable. Installed packages take precedence over them."""
    if (place := str(folder)) in sys.path:
        yield
        return
    sys.path.append(place)
    try:
        yield
    finally:
        sys.path.remove(place)


def _from_file(file: Path) -> ModuleType:
    """The module of a file. Every call returns the same module, whichever path names the file."""
    file = file.resolve(strict=True)
    known = sys.modules.get(file.stem)
    if known is not None and (source := getattr(known, "__file__", None)) and Path(source).resolve() == file:
        return known
    name = file.stem if known is None and importlib.util.find_spec(file.stem) is None else f"{file.stem}@{file}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pickle and copy look modules up by name
    try:
        with findable(file.parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
