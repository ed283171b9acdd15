"""The house is guarded: a room imports only what the graph allows, file names are unique, the door opens fast."""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import scopil

SRC = Path(scopil.__file__).parent

# Which rooms (a module or folder directly under scopil/) each room may import, beside itself. Nothing is passed on:
# a room that needs two others names both. `studies` is named by few, so that one task stays in one package.
PLAIN = {
    "_version",
    "errors",
    "types",
    "files",
    "images",
    "config",
    "treefile",
    "agent_settings",
    "user_code",
}
MAY_IMPORT: dict[str, set[str]] = {
    "_version": set(),
    "errors": set(),
    "agent_settings": set(),
    "types": set(),
    "files": {"errors"},
    "user_code": {"errors"},
    "images": {"errors", "files"},
    "config": {"errors", "types"},
    "treefile": {"errors", "types", "files", "core"},  # core: a replay ring is saved without its empty part
    "core": {"types", "config"},  # arrays in, arrays out
    "policy": {"core", "export"} | PLAIN,  # export: inside the methods that write files
    "envs": {"studies"} | PLAIN,  # studies: only in envs/registration.py, see ONLY_IN
    "demos": {"envs"} | PLAIN,
    "algos": {"core", "policy", "demos"} | PLAIN,  # demos: the type of demonstrated transitions
    "evaluate": {"core", "envs", "demos", "policy"} | PLAIN,
    "train": {"core", "algos", "envs", "demos", "evaluate", "policy"} | PLAIN,
    "export": {"core", "policy"} | PLAIN,
    "agents": {"core", "algos", "envs", "demos", "evaluate", "policy", "train"} | PLAIN,
    "watch": {"agents"} | PLAIN,
    "callbacks": {"agents", "evaluate", "train"} | PLAIN,
    "experiments": {"algos", "envs", "demos", "evaluate", "policy", "train", "agents", "studies"} | PLAIN,
    "report": {"evaluate", "train", "envs"} | PLAIN,  # envs: what draws an environment's episodes
    "studies": {
        *("core", "policy", "envs", "demos", "algos", "evaluate", "train"),
        *("agents", "export", "experiments", "report"),
        *PLAIN,
    },
}
MAY_IMPORT["studio"] = set(MAY_IMPORT)
MAY_IMPORT["cli"] = set(MAY_IMPORT)
ENTRY = {"__init__", "__main__"}  # the door may look into every room
# Where a room may import another in one place only.
ONLY_IN = {("envs", "studies"): {"registration.py"}}
SHARED_NAMES = {"__init__", "base"}  # file names that several rooms may have


def files() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imported_rooms(source: str, package: list[str]) -> set[str]:
    """Rooms of scopil that a file imports, anywhere in it. `package` is the file's own package, dotted apart."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = base + (node.module.split(".") if node.module else [])
            names = [[*module, alias.name] for alias in node.names]
        else:
            continue
        found |= {name[1] for name in names if name[0] == "scopil" and len(name) > 1}
    return found - {"__version__"}


def not_allowed(room: str, used: set[str], file: str = "") -> set[str]:
    one_place = {other for (here, other), places in ONLY_IN.items() if here == room and file not in places}
    return used - (MAY_IMPORT[room] - one_place) - {room}


def test_rooms_import_only_what_the_graph_allows():
    broken = []
    for path in files():
        room = room_of(path)
        if room in ENTRY:
            continue
        if room not in MAY_IMPORT:
            broken.append(f"{path}: no room {room!r} in MAY_IMPORT; say what it may import")
            continue
        package = ["scopil", *path.relative_to(SRC).parts[:-1]]
        used = imported_rooms(path.read_text(encoding="utf-8"), package)
        broken += [f"{path} imports scopil.{name}" for name in sorted(not_allowed(room, used, path.name))]
    assert not broken, "\n".join(broken)


def test_the_graph_names_rooms_only():
    assert set().union(*MAY_IMPORT.values()) <= set(MAY_IMPORT)
    assert not [pair for pair in ONLY_IN if pair[1] not in MAY_IMPORT[pair[0]]]


def test_the_guard_sees_every_form_of_import():
    forms = "import scopil.cli\nfrom scopil import train\ndef f():\n    from ..report import curves\nfrom .x import y"
    assert imported_rooms(forms, ["scopil", "envs"]) == {"cli", "train", "report", "envs"}
    assert not_allowed("envs", {"cli", "errors", "envs", "demos"}) == {"cli", "demos"}
    assert not_allowed("core", {"types", "core", "envs", "files"}) == {"envs", "files"}
    assert not_allowed("report", {"studies", "experiments", "report"}) == {"studies", "experiments"}
    assert not_allowed("envs", {"studies"}, "host.py") == {"studies"}
    assert not_allowed("envs", {"studies"}, "registration.py") == set()
    # Inside the package a name comes from its home, not from the door.
    assert not_allowed("envs", {"load_demos"}) == {"load_demos"}


def test_a_file_name_says_which_file_is_meant():
    homes = defaultdict(list)
    for path in files():
        homes[path.stem].append(str(path.relative_to(SRC)))
    # A command and the thing it commands share a name: cli/train.py starts train/.
    twice = {
        name: places
        for name, places in homes.items()
        if name not in SHARED_NAMES and len([p for p in places if room_of(SRC / p) != "cli"]) > 1
    }
    assert not twice, "\n".join(f"{name}: {', '.join(places)}" for name, places in twice.items())


@pytest.mark.parametrize("name", scopil.__all__)
def test_public_names_resolve_and_are_documented(name):
    thing = getattr(scopil, name)
    # A NamedTuple or dataclass without a docstring gets a generated one, "Name(field, …)".
    said = thing.__doc__ or ""
    assert said, f"scopil.{name} has no docstring"
    assert not said.startswith(f"{thing.__name__}("), f"scopil.{name} has only a generated docstring"
    assert name in dir(scopil)


def test_an_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = scopil.no_such_name


def test_import_is_light():
    heavy = ("jax", "matplotlib", "pygame", "minari", "equinox", "optax", "tensorboardX", "onnx")
    code = f"import sys, scopil; print([m for m in {heavy!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
