"""User code: an environment, rules, features or an expert, named as `my_file.py:name` or `module:name`.

Only names given by the caller may be loaded, never names read from a file. `local_files` lists the files of such code.
`adopt` makes code that was read and checked before loadable from memory.
"""

import ast
import hashlib
import importlib
import importlib.util
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import decode_source, spec_from_loader
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
    """`my_file.py:name` → (my_file.py, name); the second is empty if only a file or module is named. Colons before
    `.py` are part of the file name, as in C:\\…"""
    where, found, attribute = name.partition(".py:")
    if found:
        return f"{where}.py", attribute
    where, colon, attribute = name.rpartition(":")
    if not colon or len(where) == 1:
        return name, ""
    return where, attribute


def is_file_name(name: str) -> bool:
    """Whether a name refers to a Python file, or to an object in one."""
    return split_name(name)[0].endswith(".py")


def names_object(name: Any) -> bool:
    """Whether a text names an object in code: `my_file.py:name` or `module:name`."""
    if not isinstance(name, str):
        return False
    where, attribute = split_name(name)
    in_code = where.endswith(".py") or all(map(str.isidentifier, where.split(".")))
    return in_code and re.fullmatch(r"[\w.<>]+", attribute) is not None  # <>: a function without a name


class Named(str):
    """The name of a user's function, and the function. A call raises ConfigError if the function fails."""

    function: Callable[..., Any]
    fault: ConfigError | None = None  # of the newest call that failed

    def __new__(cls, name: str, function: Callable[..., Any]) -> "Named":
        made = super().__new__(cls, name)
        made.function = function
        return made

    def __deepcopy__(self, memo: Any) -> "Named":
        return self

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Named":
        """By its module: `module:name`."""
        name = getattr(function, "__qualname__", type(function).__name__)
        return cls(f"{getattr(function, '__module__', None)}:{name}", function)

    def __call__(self, *given: Any) -> Any:
        try:
            return self.function(*given)
        except Exception as error:
            Named.fault = ConfigError(f"{self} failed: {place_of(error)}.")
            raise Named.fault from error

    @property
    def module(self) -> str:
        """The name to import in code beside the file."""
        where = split_name(self)[0]
        return re.sub(r"\W", "_", Path(where).stem) if where.endswith(".py") else where


def load_module(name: str, wanted: str) -> ModuleType:
    """Load a module by file or name, from this folder or installed. `wanted` is an example for error messages."""
    where, _ = split_name(name)
    try:
        if where in _ADOPTED:
            return _ADOPTED[where].module()
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
        public = [n for n, thing in vars(module).items() if not n.startswith("_") and not isinstance(thing, ModuleType)]
        raise ConfigError(f"{where} has no {attribute!r}; it has {', '.join(public) or 'nothing'}.")
    return getattr(module, attribute)


def place_of(error: BaseException) -> str:
    """An exception of user code on one line, with its place: the innermost line outside installed packages."""
    frames = traceback.extract_tb(error.__traceback__)
    installed = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))
    frames = [frame for frame in frames if not frame.filename.startswith(installed)] or frames
    text = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    if not frames:
        return text
    file = Path(frames[-1].filename)
    inside = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return f"{text} ({inside}, line {frames[-1].lineno})"


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


# --- copies of code ---------------------------------------------------------------------------------------------------


def local_files(name: str) -> dict[str, Path]:
    """The source files of user code, by their path relative to its folder: the named file or module, and the modules
    in the same folder that they import. Empty for an installed module."""
    where, _ = split_name(name)
    if where.endswith(".py"):
        main = Path(where).resolve()
        folder, found = main.parent, [main]
    else:
        folder = Path.cwd()
        found = _beside(folder, where.partition(".")[0])
    files: dict[str, Path] = {}
    while found:
        file = found.pop()
        if (key := file.relative_to(folder).as_posix()) not in files:
            files[key] = file
            found += [other for top in sorted(_imported(file)) for other in _beside(folder, top)]
    return files


def _imported(file: Path) -> set[str]:
    """The top-level names of the modules that a file imports by absolute name."""
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError):  # not executed, or it would have failed before
        return set()
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.partition(".")[0] for name in names}


def _beside(folder: Path, top: str) -> list[Path]:
    """The files of a module or package in this folder. Installed modules take precedence over it."""
    module, package = folder / f"{top}.py", folder / top
    if not module.is_file() and not package.is_dir():
        return []
    elsewhere = [place for place in sys.path if Path(place).resolve() != folder]
    if top in sys.stdlib_module_names or PathFinder.find_spec(top, elsewhere) is not None:
        return []
    if module.is_file() and not (package / "__init__.py").is_file():
        return [module]
    return sorted(file for file in package.rglob("*.py") if file.is_file())


def adopt(name: str, texts: Mapping[str, bytes], folder: Path) -> str:
    """Make user code loadable from its texts, which have the keys of `local_files`. Returns the name to load it by.

    Nothing is read from `folder`: its files may change after their check, and it may hold others. Code in a file gets
    a name that contains a digest: equal texts are loaded once, and modules of this process keep their names."""
    where, attribute = split_name(name)
    parts = [part for key in sorted(texts) for part in (key.encode(), texts[key])]
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]
    known, main = where, None
    if where.endswith(".py"):
        known, main = f"{Path(where).stem.replace('.', '_')}@{digest}.py", Path(where).name
    if known not in _ADOPTED or _ADOPTED[known].digest != digest:
        _ADOPTED[known] = _Adopted(known.removesuffix(".py"), main, texts, folder, digest)
    return f"{known}:{attribute}" if attribute else known


class _Adopted(MetaPathFinder, ExecutionLoader):
    """Finds and loads the modules of adopted code. `main` is the key of the named file; None: a module is named."""

    def __init__(self, name: str, main: str | None, texts: Mapping[str, bytes], folder: Path, digest: str):
        self._name, self._main, self.digest = name, main, digest
        self._sources = {_module_name(key): (folder / key, text) for key, text in texts.items()}
        for module in list(self._sources):  # a folder without __init__.py is a package too
            for dots in range(1, module.count(".") + 1):
                package = ".".join(module.split(".")[:dots])
                self._sources.setdefault(package, (folder / package.replace(".", "/") / "__init__.py", b""))
        if main is not None:
            self._sources[name] = self._sources[_module_name(main)]

    def module(self) -> ModuleType:
        """The named module. While it is loaded, imports find the adopted modules first."""
        if (known := sys.modules.get(self._name)) is not None and self._is_equal(known):
            return known
        before = {key: sys.modules.pop(key) for key in self._sources if key in sys.modules}
        sys.meta_path.insert(0, self)
        try:
            return importlib.import_module(self._name)
        finally:
            sys.meta_path.remove(self)
            sys.meta_path.append(self)  # for imports inside functions
            if self._main is not None:
                sys.modules.update(before)

    def _is_equal(self, module: ModuleType) -> bool:
        if module.__loader__ is self:
            return True
        try:
            return Path(str(module.__file__)).read_bytes() == self._sources[self._name][1]
        except (OSError, KeyError):
            return False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname not in self._sources:
            return None
        spec = spec_from_loader(fullname, self, is_package=self.is_package(fullname))
        if spec is not None and spec.submodule_search_locations is not None:
            spec.submodule_search_locations = []  # modules that were not adopted are not found
        return spec

    def is_package(self, fullname: str) -> bool:
        return self._sources[fullname][0].name == "__init__.py"

    def get_filename(self, fullname: str) -> str:
        return str(self._sources[fullname][0])

    def get_source(self, fullname: str) -> str:
        return decode_source(self._sources[fullname][1])


def _module_name(file: str) -> str:
    """`a/b.py` → a.b; `a/__init__.py` → a."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


_ADOPTED: dict[str, _Adopted] = {}  # by the file or module of their name
