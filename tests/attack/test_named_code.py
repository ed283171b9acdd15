"""A file may name an environment, never the code that is imported: only the caller chooses that.

An id with a colon, `module:Id-v0`, makes Gymnasium import the module. Each file below names one that leaves a mark
when it is imported, and lies where Python would find it.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import scopil
from runs import ENV, untrained_run
from samples import marble_episodes
from scopil.cli import main
from scopil.data import storage
from scopil.errors import ConfigError, EnvError
from scopil.train.run import Run
from scopil_bench.runner import prepare

EVIL = f"evil_module:{ENV}"


@pytest.fixture(autouse=True)
def imported(tmp_path, monkeypatch):
    """Returns whether the module was imported."""
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield (tmp_path / "ran").exists
    sys.modules.pop("evil_module", None)


@pytest.fixture
def run(tmp_path) -> Path:
    """A finished run folder whose run.json and policy name the module."""
    folder = untrained_run(tmp_path / "run").folder
    made = Run(folder, replace(Run.open(folder).spec, env=EVIL), Run.open(folder).settings)
    arrays = scopil.load(folder)
    arrays.env_id = EVIL
    arrays.save(folder / "policy.safetensors")
    (folder / "run.json").write_text(json.dumps(made.note()))
    return folder


@pytest.fixture
def demos(tmp_path) -> Path:
    storage.write(replace(marble_episodes(steps=3, episodes=2), env_id=EVIL), tmp_path / "demos.npz")
    return tmp_path / "demos.npz"


def refused(argv: list[str], capsys) -> str:
    assert main(argv) == 2
    return capsys.readouterr().err


def test_loading_an_agent_imports_nothing(run, imported):
    for path in (run, run / "policy.safetensors"):
        with pytest.raises(EnvError, match=r"add --trust-env \(trust_env=True\), or name .* \(env="):
            scopil.load(path)
    assert not imported()


def test_opening_a_run_imports_nothing(run, imported):
    with pytest.raises(EnvError, match="trust_env"):
        Run.open(run).env()
    assert not imported()


def test_no_command_imports_what_a_file_names(run, demos, imported, capsys):
    (unfinished := run.parent / "unfinished").mkdir()
    (unfinished / "run.json").write_text((run / "run.json").read_text())
    for argv in (
        ["evaluate", str(run)],
        ["evaluate", str(run / "policy.safetensors")],
        ["report", str(run), "--out", str(run / "report")],
        ["train", "--resume", str(unfinished)],
        ["render", "--demos", str(demos), "--out", "a.png"],
        ["demos", "enough", str(demos), "--steps", "1"],
    ):
        assert "--trust-env" in refused(argv, capsys), argv
    assert main(["demos", "check", str(demos)]) == 0
    assert "--trust-env" in capsys.readouterr().out
    assert main(["demos", "show", str(demos)]) == 0
    assert "--trust-env" in capsys.readouterr().out
    assert not imported()


def test_the_caller_may_name_code(run, imported):
    assert scopil.load(run, env=EVIL).env_id == EVIL
    assert imported()


@pytest.mark.parametrize("give", [["--trust-env"], ["--env", EVIL]])
def test_the_command_line_may_name_code(give, run, imported, capsys):
    assert main(["evaluate", str(run), "--episodes", "1", *give]) == 0
    assert imported()


def test_the_switch_trusts_the_file(run, demos, imported, capsys):
    assert scopil.load(run, trust_env=True).env_id == EVIL
    assert imported()
    assert main(["demos", "check", str(demos), "--trust-env"]) in (0, 2)
    assert "--trust-env" not in capsys.readouterr().out


def test_a_run_of_the_callers_own_is_trusted_again(tmp_path, imported):
    """`scopil reproduce` and `train_runs` open what they created, and tell their processes so."""
    mine = untrained_run(tmp_path / "mine", env=EVIL)
    assert mine.trust_env
    assert not Run.open(mine.folder).trust_env
    assert prepare(mine.folder, mine.spec).trust_env


def test_a_path_to_a_file_is_code_too(run):
    """Whatever stands before the colon, a module or a file."""
    note = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(note | {"env": "evil_module.py:Env"}))
    with pytest.raises(EnvError, match="trust_env"):
        Run.open(run).env()


@pytest.mark.parametrize("name", ["evil_module.py", "evil_module:rule", "scopil.py", "scopil.py:rule"])
def test_a_run_folder_names_no_rules_of_its_own(name, run, imported, tmp_path):
    """A file in the current folder may be called scopil.py."""
    (tmp_path / "scopil.py").write_text((tmp_path / "evil_module.py").read_text())
    note = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(note | {"env": ENV, "rules": name}))
    with pytest.raises(ConfigError, match="trust_env"):
        Run.open(run).rules()
    assert not imported()


@pytest.mark.parametrize("name", ["study.json", "results.json"])
def test_a_study_s_folder_names_no_file_to_run(tmp_path, imported, capsys, name):
    """The name of a study may be a file's on the command line, never in a folder."""
    (tmp_path / "out").mkdir()
    note = {"study": "evil_module.py", "budget": "full"}
    body = note if name == "study.json" else note | {"format": 2, "runs": [], "unfinished": {}}
    (tmp_path / "out" / name).write_text(json.dumps(body))
    assert "no study 'evil_module.py'" in refused(["report", "out"], capsys)
    assert not imported()
