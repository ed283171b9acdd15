"""The import graph: studio → bench → scopil, and inside `scopil` a folder imports only what the table allows."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import scopil
import scopil_bench

SRC = Path(scopil.__file__).parents[1]
PACKAGES = {"scopil": set(), "scopil_bench": {"scopil"}, "scopil_studio": {"scopil", "scopil_bench"}}
PLAIN = {
    "_version",
    "compile_cache",
    "errors",
    "types",
    "files",
    "config",
    "sb3",
    "serialization",
    "user_code",
    "signing",
    "terminal",
}
MATHS = {"nn", "losses", "buffers"}
# What each module or folder directly under scopil/ may import, beside itself.
MAY_IMPORT: dict[str, set[str]] = {
    "_version": set(),
    "xla_flags": set(),
    "errors": set(),
    "types": set(),
    "files": {"errors"},
    "compile_cache": {"files"},
    "user_code": {"errors"},
    "signing": set(),
    "terminal": set(),
    "sb3": {"errors"},
    "config": {"errors", "types", "sb3", "user_code"},
    "marginal": set(),
    "shapes": {"marginal"},
    "explain": {"marginal", "shapes"} | PLAIN,
    "nn": {"types", "config"},
    "buffers": {"types", "nn"},
    "losses": {"types", "nn"},
    "serialization": {"errors", "types", "files", "buffers"},  # a replay ring is saved without its empty part
    "export": MATHS | PLAIN | {"policy"},
    "policy": MATHS | PLAIN | {"export"},  # export: inside the methods that write files
    "envs": {"data"} | PLAIN,  # data: the class of an episode
    "envs/marble_maze": {"envs", "data", "eval"} | PLAIN,
    "data": {"envs"} | PLAIN,
    "algos": {"policy", "data", "marginal"} | MATHS | PLAIN,  # data: the type of demonstrated transitions
    "registry": {"algos", "agent"} | PLAIN,
    "eval": {"envs", "data", "policy"} | MATHS | PLAIN,
    "train": {"algos", "registry", "envs", "data", "eval", "policy"} | MATHS | PLAIN,
    "agent": {"algos", "envs", "data", "eval", "explain", "loading", "marginal", "policy", "train"}
    | MATHS
    | PLAIN,  # loading: in Agent.load
    "loading": {"agent", "algos", "registry", "envs", "policy", "train"} | MATHS | PLAIN,
    "audit": {"algos", "data", "marginal"} | MATHS | PLAIN,
    "certify": {"algos", "audit", "data", "eval"} | MATHS | PLAIN,
    "familiarity": {"agent", "loading"} | PLAIN,
    "callbacks": {"agent", "eval", "train"} | PLAIN,
}
MAY_IMPORT["cli"] = set(MAY_IMPORT)
ENTRY = {"__init__", "__main__"}


def imported(source: str, package: list[str]) -> list[list[str]]:
    """Every imported name, dotted apart. `package` is the file's own package."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = base + (node.module.split(".") if node.module else [])
            found += [[*module, alias.name] for alias in node.names]
    return found


def modules(package: str) -> dict[Path, list[list[str]]]:
    return {
        path: imported(path.read_text(encoding="utf-8"), list(path.relative_to(SRC).parts[:-1]))
        for path in sorted((SRC / package).rglob("*.py"))
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_one_way(package):
    others = PACKAGES.keys() - PACKAGES[package] - {package}
    broken = [f"{path}: {'.'.join(n)}" for path, names in modules(package).items() for n in names if n[0] in others]
    assert not broken, "\n".join(broken)


def test_folders_import_only_what_the_table_allows():
    broken = []
    for path, names in modules("scopil").items():
        inside = path.relative_to(SRC / "scopil")
        part = inside.parts[0].removesuffix(".py")
        if inside.parent.as_posix() in MAY_IMPORT:
            part = inside.parent.as_posix()
        if part not in ENTRY:
            used = {name[1] for name in names if name[0] == "scopil" and len(name) > 1} - {"__version__", part}
            broken += [f"{path} imports scopil.{name}" for name in sorted(used - MAY_IMPORT[part])]
    assert not broken, "\n".join(broken)


def test_the_guard_sees_every_form_of_import():
    forms = "import scopil.cli\nfrom scopil import train\ndef f():\n    from ..report import curves\nfrom .x import y"
    assert {".".join(n[:2]) for n in imported(forms, ["scopil", "envs"])} == {
        *("scopil.cli", "scopil.train", "scopil.report", "scopil.envs")
    }


@pytest.mark.parametrize("package", [scopil, scopil_bench], ids=lambda p: p.__name__)
def test_public_names_resolve_and_are_documented(package):
    for name in package.__all__:
        thing = getattr(package, name)
        # A NamedTuple or dataclass without a docstring gets a generated one, "Name(field, …)".
        assert thing.__doc__, name
        assert not thing.__doc__.startswith(f"{thing.__name__}("), name
    with pytest.raises(AttributeError):
        _ = package.no_such_name


def test_import_is_light():
    heavy = ("jax", "matplotlib", "pygame", "minari", "equinox", "optax", "tensorboardX", "onnx")
    code = f"import sys, scopil, scopil_bench; print([m for m in {heavy!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
