"""`scopil train`: options, output, warnings, and a run from its first step to its table."""

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import scopil
from hosts import OWN
from runs import untrained_run
from scopil.cli import main
from scopil.cli.interrupts import INTERRUPTED
from scopil.cli.options import whole_number
from scopil.data import storage
from scopil.registry import find, registered
from scopil.train import run as run_module
from scopil.train import trainer
from scopil.train.run import Run
from scopil.train.trainer import TrainStatus
from toys import registered_toy, toy, toy_demos

TINY = ["--hidden", "8", "--batch-size", "32", "--replay-size", "128", "--eval-every", "500"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(trainer, "CHUNK", 500)
    return tmp_path


def test_help_names_every_algorithm_and_every_setting(capsys):
    assert main(["train", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in registered())
    assert "scopil resume RUN" in out
    assert main(["train", "scopil", "--help"]) == 0
    out = capsys.readouterr().out
    for option in ("--out", "--env", "--demos", "--steps", "--seed", "--multiplier-init", "--slack", "--learning-rate"):
        assert option in out
    assert "γ per environment step" in out  # meaning and range, as the config has them
    assert "[0, 1]" in out
    assert main(["train", "scopil-rho", "--help"]) == 0
    assert "--shield {off,learning,always}" in capsys.readouterr().out


def test_help_shows_the_defaults_of_the_kind_of_actions(here, capsys):
    with registered_toy(toy(continuous=True), "test/Toy-v0") as env:
        assert main(["train", "scopil", "--env", env, "--help"]) == 0
        continuous = " ".join(capsys.readouterr().out.split())
        assert main(["train", "scopil", f"--env={env}", "--help"]) == 0
        assert " ".join(capsys.readouterr().out.split()) == continuous
    assert main(["train", "scopil", "--help"]) == 0
    numbered = " ".join(capsys.readouterr().out.split())
    assert "(default: 64 64)" in continuous
    assert "(default: 64 64)" not in numbered
    assert "(default: 32 32)" in numbered


def refused(argv: list[str], capsys) -> str:
    assert main(["train", *argv]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("text", ["100000", "100_000", "1e5", "1E+5", "100000.0"])
def test_whole_numbers_may_be_written_short(text):
    assert whole_number(text) == 100_000


@pytest.fixture
def unfinished(here) -> Run:
    run = untrained_run(here / "run")
    run.policy_file.unlink()
    return run


def test_resuming_a_finished_run_does_nothing(here, capsys):
    untrained_run(here / "run")
    assert main(["train", "--resume", "run"]) == 0
    assert "run is finished: 1,000 steps. Next: scopil evaluate run" in capsys.readouterr().out


def test_an_evaluation_is_a_plain_line_without_a_terminal(unfinished, capsys, monkeypatch):
    def train(self, observe, between, doing):
        between(100)
        observe(TrainStatus(500, {"eval/violations": 2.0, "critic/loss": 1.25}, None))
        return True

    monkeypatch.setattr(Run, "train", train)
    assert main(["resume", "run"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if "steps" in line] == [
        "SAC  100/1,000 steps  ",
        "SAC  500/1,000 steps  eval viol 2",
    ]
    assert main(["resume", "run", "--verbosity", "full"]) == 0
    assert "eval/violations 2  critic/loss 1.25" in capsys.readouterr().out
    assert main(["resume", "run", "--verbosity", "quiet"]) == 0
    assert capsys.readouterr().out == ""
    # A budget smaller than the warm-up: no row, no table.
    monkeypatch.setattr(Run, "train", lambda *_: True)
    assert main(["resume", "run"]) == 0
    assert "Next: scopil evaluate run, or scopil report run" in capsys.readouterr().out


@pytest.mark.parametrize("continuous", [False, True], ids=["numbered", "continuous"])
def test_a_run_is_trained_stopped_resumed_and_tabled(continuous, here, capsys, monkeypatch):
    env = toy(continuous)
    demos = toy_demos(continuous)
    demos.save("demos.npz")
    loop = run_module.make_loop(find("scopil"), env, demos)
    monkeypatch.setattr(run_module, "make_loop", lambda *_: loop)
    with registered_toy(env, "test/Toy-v0") as env_id:
        argv = ["scopil", "--env", env_id, "--demos", "demos.npz", "--out", "run", "--steps", "1000", *TINY]
        with monkeypatch.context() as patch:
            patch.setattr("scopil.cli.train._signals", already_asked)
            assert main(["train", *argv, "--seed", "3", "--demo-batch-size", "8", "--discount", "0.5"]) == INTERRUPTED
        out = " ".join(capsys.readouterr().out.split())
        assert "SCOPIL evaluation before training … SCOPIL compiling …" in out
        assert "stopped at step 500, saved; to continue: scopil resume run" in out
        assert not Run.open(here / "run").finished

        assert main(["train", "--resume", "run"]) == 0
        out = capsys.readouterr().out
    rows = Run.open(here / "run").metrics.rows()
    assert [r["env_steps"] for r in rows] == [0, 500, 1000]
    table = next(line for line in out.splitlines() if line.startswith("SCOPIL, greedy, unseen starts"))
    assert f"{rows[-1]['eval/reward']:.2f}" in table
    assert "1,000/1,000" in out
    assert "λ" in out
    spec = json.loads((here / "run" / "run.json").read_text())
    assert (spec["seed"], spec["steps"], spec["config"]["batch_size"]) == (3, 1000, 32)
    assert (spec["config"]["discount"], spec["config"]["normalise_obs"]) == (0.5, continuous)


class already_asked:
    """In place of a signal before the end of the first chunk."""

    def __init__(self, console):
        pass

    def __enter__(self):
        return self

    def is_set(self) -> bool:
        return True

    def __exit__(self, *_):
        pass


def test_warnings_are_one_plain_line(unfinished, capsys, monkeypatch):
    def train(self, observe, *_):
        warnings.simplefilter("default")
        warnings.warn("a [b] c", stacklevel=1)
        observe(TrainStatus(500, {"eval/violations": 1.5, "episode/return": float("nan")}, None))
        return False

    monkeypatch.setattr(Run, "train", train)
    assert main(["train", "--resume", "run"]) == INTERRUPTED
    out = capsys.readouterr().out
    assert "warning: a [b] c\n" in out
    assert "eval viol 1.5" in out
    assert "nan" not in out


def shown_in(env_id: str, **arrays) -> None:
    rng = np.random.default_rng(0)
    rows = {"observations": rng.uniform(-1, 1, (9, 2)).astype(np.float32), "actions": rng.integers(3, size=9)}
    storage.write(replace(scopil.load_demos(rows | arrays), env_id=env_id), Path("shown.npz"))


def test_warnings_before_training(here, capsys, monkeypatch):
    (here / "own.py").write_text(OWN)
    (here / "rules.py").write_text("def far(obs, action, next_obs): return next_obs[0] > 1\n")
    shown_in("other.py:Other")
    monkeypatch.setattr(Run, "train", lambda *_: True)
    argv = ["train", "scopil-clone", "--env", "own.py:Own", "--demos", "shown.npz", "--steps", "4000"]
    assert main([*argv, "--rules", "rules.py", "--out", "run"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "was recorded in other.py:Other, not in own.py:Own; only the spaces were compared" in out
    assert "neither lengths nor flags are given: all rows are read as one episode" in out
    assert "the first 5,000 updates" in out
    assert "Next: scopil evaluate run, or scopil report run" in out
    shown_in("own.py:Own", lengths=np.array([4, 5]))
    assert main([*argv[:-1], "6000", "--out", "other"]) == 0
    out = capsys.readouterr().out
    assert "recorded in" not in out
    assert "train only the critics" not in out


def test_a_faulty_rule_is_refused_before_training(here, capsys):
    (here / "own.py").write_text(OWN)
    (here / "rules.py").write_text("def late(obs, action, next_obs): return next_obs[2] > 1\n")
    shown_in("own.py:Own")
    argv = ["bc", "--env", "own.py:Own", "--demos", "shown.npz", "--rules", "rules.py", "--out", "run"]
    assert "rule 'late' failed at step 0: IndexError" in refused(argv, capsys)
    (here / "keys.py").write_text("RULES = {'late': 'lat'}\n")
    argv[argv.index("rules.py")] = "keys.py"
    assert "rule 'late' counts info['lat'], which no step has" in refused(argv, capsys)
    assert not (here / "run" / "run.json").exists()
