"""A task of one's own from an empty folder, as docs/own_task.md walks it: quoted exactly, short, and run in a shell."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scopil.cli import main
from scopil.data import storage

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples" / "own_task"
PAGE = (ROOT / "docs" / "own_task.md").read_text()
COMMANDS = re.findall(r"^```\n(scopil .*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0].splitlines()
BLOCKED = "import sys, runpy; sys.modules['scopil'] = sys.modules['jax'] = None; runpy.run_path('use_policy.py')"


def test_the_page_quotes_the_files_and_is_as_short_as_it_says():
    for file in filter(Path.is_file, FILES.iterdir()):
        assert f"# {file.name}\n{file.read_text().strip()}\n```" in PAGE, f"{file.name} is not what the page shows"
    code = [line for file in FILES.glob("*.py") for line in file.read_text().splitlines() if line.strip()]
    assert len(code) <= 60
    assert len(COMMANDS) <= 8


def test_the_extras_that_the_page_names_bring_what_its_files_import():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(re.findall(r"scopil\[(\w+)\]", PAGE))
    brought = {
        "gymnasium",
        "numpy",
        *(re.split(r"\W", need)[0] for e in extras for need in declared["optional-dependencies"][e]),
    }
    code = "\n".join(file.read_text() for file in FILES.glob("*.py"))
    imported = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))
    assert imported - {file.stem for file in FILES.glob("*.py")} <= brought


@pytest.fixture
def here(tmp_path, monkeypatch):
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in {"my_env", "my_rules", "my_expert"} - before:
        sys.modules.pop(name, None)


def test_the_expert_is_recorded_and_keeps_the_rules(here, capsys):
    for command in COMMANDS[:2]:
        assert main(shlex.split(command)[1:]) == 0
    out = capsys.readouterr().out
    assert "ok   rules        violations per episode: hurry = 0, wet = 0" in out
    assert "ok   alignment" in out
    demos = storage.load_demos("demos.npz")
    assert (len(demos), demos.as_given(demos.observations[0]).keys()) == (30, {"place", "speed"})


@pytest.mark.slow
def test_all_of_it_through_the_shell(here):
    """With few steps: what the learners learn is not the question here."""
    onnx = pytest.importorskip("onnxruntime")
    pytest.importorskip("imageio_ffmpeg")
    assert onnx is not None
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    said = []
    for command in COMMANDS:
        words = shlex.split(command)
        if words[0] == "scopil":
            few = ["--steps", "400"] if words[1] == "study" else []
            argv = [sys.executable, "-P", "-m", *words, *few]
        else:  # without scopil and JAX
            argv = [sys.executable, "-c", BLOCKED]
        done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        said.append(done.stdout)
    assert "at the door" in said[-1] or "still on the way" in said[-1]
    study = here / "out" / "my_study"
    text = (study / "report.md").read_text()
    for wanted in ("Violations (hurry)", "Violations (wet)", "SCOPIL", "SAC", "BC", "3 seeds"):
        assert wanted in text, wanted
    assert re.search(r"^\| Demonstra", text, re.MULTILINE)
    assert len(list((study / "runs").glob("*/*/policy.safetensors"))) == 9
    rows = (study / "runs" / "my_study" / "sac-0" / "metrics.jsonl").read_text()
    assert '"eval/violations/hurry"' in rows
    assert "<svg" in (study / "report.html").read_text()
    assert (here / "film.mp4").read_bytes()[4:8] == b"ftyp"
