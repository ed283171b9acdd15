"""The house is guarded: a layer looks only downward, rooms stay small, the door opens fast."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import scopil

SRC = Path(scopil.__file__).parent
MAX_LINES = 350

# A module or folder may import itself and what stands before it.
LAYERS = [
    "errors",
    "types",
    "files",
    "images",
    "config",
    "envs",
    "demos",
    "core",
    "algos",
    "evaluate",
    "train",
    "agents",
    "export",
    "experiments",
    "report",
    "cli",
]
FORBIDDEN = {"core": {"envs", "demos", "files", "images", "config"}}  # arrays in, arrays out
ENTRY = {"__init__", "__main__"}  # the door may look into every room


def files() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def layer_of(path: Path) -> str:
    first = path.relative_to(SRC).parts[0]
    return first.removesuffix(".py")


def imported_layers(source: str, package: list[str]) -> set[str]:
    """Layers of scopil that a file imports, anywhere in it. `package` is the file's own package, dotted apart."""
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


def broken_by(layer: str, used: set[str]) -> set[str]:
    allowed = set(LAYERS[: LAYERS.index(layer) + 1]) - FORBIDDEN.get(layer, set())
    return used - allowed


def test_no_file_looks_upward():
    broken = []
    for path in files():
        layer = layer_of(path)
        if layer in ENTRY:
            continue
        assert layer in LAYERS, f"{path} is in no layer: say where it stands in LAYERS"
        package = ["scopil", *path.relative_to(SRC).parts[:-1]]
        broken += [
            f"{path} imports scopil.{used}"
            for used in broken_by(layer, imported_layers(path.read_text(), package))
        ]
    assert not broken, "\n".join(broken)


def test_the_guard_sees_every_form_of_import():
    forms = "import scopil.cli\nfrom scopil import train\ndef f():\n    from ..report import curves\nfrom .x import y"
    assert imported_layers(forms, ["scopil", "envs"]) == {"cli", "train", "report", "envs"}
    assert broken_by("envs", {"cli", "errors", "envs", "demos"}) == {"cli", "demos"}
    assert broken_by("core", {"types", "core", "envs"}) == {"envs"}
    assert broken_by("envs", {"load_demos"}) == {
        "load_demos"
    }  # inside the package a name comes from its home


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SRC)))
def test_no_room_is_overfull(path):
    lines = len(path.read_text().splitlines())
    assert lines <= MAX_LINES, f"{path} has {lines} lines; split it"


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
