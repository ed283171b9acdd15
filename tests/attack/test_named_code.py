"""Code named in a file is never imported, unless the caller allows it.

An id with a colon, `module:Id-v0`, makes Gymnasium import the module. The files below name a module that Python can
find and that writes a file when it is imported.
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
from scopil.envs.naming import OWN_CODE, names_code, split_options
from scopil.errors import ConfigError, EnvError
from scopil.eval.rules import load_rules, name_of_rules
from scopil.train.run import Run
from scopil.user_code import load_object
from scopil_bench.runner import prepare
from scopil_bench.studies import _OURS

EVIL = f"evil_module:{ENV}"
STRING = "evil_module.py"


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


def test_loading_an_agent_or_a_run_imports_nothing(run, imported):
    for load in (scopil.load, lambda path: Run.open(path).env()):
        with pytest.raises(EnvError, match="trust_env"):
            load(run)
    with pytest.raises(EnvError, match="trust_env"):
        scopil.load(run / "policy.safetensors")
    note = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(note | {"env": "evil_module.py:Env"}))  # a file instead of a module
    with pytest.raises(EnvError, match="trust_env"):
        Run.open(run).env()
    assert not imported()


def test_no_command_imports_code_named_in_a_file(run, demos, imported, capsys):
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
    for verb in ("check", "show"):
        assert main(["demos", verb, str(demos)]) == 0
        assert "--trust-env" in capsys.readouterr().out
    assert not imported()


@pytest.mark.parametrize("give", [["--trust-env"], ["--env", EVIL]])
def test_the_caller_may_name_code(give, run, demos, imported, capsys):
    assert scopil.load(run, env=EVIL if EVIL in give else None, trust_env=EVIL not in give).env_id == EVIL
    assert main(["evaluate", str(run), "--episodes", "1", *give]) == 0
    assert imported()
    assert main(["demos", "check", str(demos), "--trust-env"]) in (0, 2)
    assert "--trust-env" not in capsys.readouterr().out


def test_a_run_created_by_the_caller_is_trusted(tmp_path, imported):
    """`scopil reproduce` and `train_runs` open the runs they created."""
    mine = untrained_run(tmp_path / "mine", env=EVIL)
    assert mine.trust_env
    assert not Run.open(mine.folder).trust_env
    assert Run.open(mine.folder).env_name() == EVIL  # signed
    assert prepare(mine.folder, mine.spec).trust_env


@pytest.mark.parametrize(
    "name",
    [
        "evil_module.py",
        "evil_module:rule",
        "scopil.py",
        "scopil.py:rule",
        "scopil_bench.py:rule",
        "scopil.experiments.tuning:TUNING",
        f"{__name__}:STRING",
        "scopil_bench.planning:NOTE",  # the text "study.json"
        "scopil_bench.studies.rules.corridor:EVIL",
        "scopil_bench.studies.rules.corridor",
    ],
)
def test_rules_named_in_a_run_folder_are_not_imported(name, run, imported, tmp_path):
    """Also not from a file in the current folder with the name of a package of this distribution."""
    for package in ("scopil", "scopil_bench"):
        (tmp_path / f"{package}.py").write_text((tmp_path / "evil_module.py").read_text())
    note = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(note | {"env": ENV, "rules": name}))
    with pytest.raises(ConfigError, match="trust_env"):
        Run.open(run).rules()
    assert not imported()


@pytest.mark.parametrize(
    ("name", "outside"),
    [
        ("scopil_bench.studies.rules:rules/Speed-v0", False),
        ("scopil_bench.studies.rules:rules/Speed-v0(max_episode_steps=5)", False),
        ("scopil_bench.studies.rules:rules/Speed-v0(path='evil_module.py')", True),
        ("scopil_bench.py:Env", True),
        ("scopil_bench_evil.module:Env-v0", True),
        ("scopil_bench.studies:evil_module.py:Env", True),
        ("scopil_bench.__main__:Env-v0", True),
        ("scopil_bench.studies.rules:CartPole-v1", True),
        ("scopil_bench.planning:NOTE", True),
        ("scopil:Env-v0", True),
    ],
)
def test_environments_of_the_built_in_studies_may_be_named_in_files(name, outside):
    assert names_code(name) is outside


def test_the_built_in_studies_name_no_other_code():
    studies = [load_object(place, "") for place in _OURS.values()]
    tasks = [task for study in studies for task in study.tasks.values()]
    named = {split_options(task.env)[0] for task in tasks} | {name_of_rules(task.rules) for task in tasks}
    assert {name for name in named if name and ":" in name} == OWN_CODE


def test_a_name_that_leads_to_text_is_no_rule(tmp_path):
    """The text is not read as the name of other rules."""
    (tmp_path / "given.py").write_text("RULE = 'evil_module.py'")
    with pytest.raises(ConfigError, match="want a function or a dict"):
        load_rules("given.py:RULE")


def test_rules_of_the_bench_load_from_a_run_folder(run):
    note = json.loads((run / "run.json").read_text())
    name = "scopil_bench.studies.rules.corridor:RULES"
    (run / "run.json").write_text(json.dumps(note | {"env": ENV, "rules": name}))
    rules = Run.open(run).rules()
    assert rules is not None
    assert rules.source == name


def test_a_study_named_in_a_folder_is_not_run(tmp_path, imported, capsys):
    """Only the command line may name a study by its file."""
    (tmp_path / "out/runs/task/sac-0").mkdir(parents=True)
    (tmp_path / "out/runs/task/sac-0/run.json").touch()
    (tmp_path / "out/study.json").write_text(json.dumps({"study": "evil_module.py", "budget": "full"}))
    assert "no study 'evil_module.py'" in refused(["report", "out"], capsys)
    assert not imported()
