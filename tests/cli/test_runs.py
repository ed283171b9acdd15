"""`scopil runs`: every run with its state and figures."""

from pathlib import Path

import pytest

from runs import untrained_run
from scopil.cli import main
from scopil.files import lock


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")


def cells(out: str) -> dict[str, str]:
    return {line.split()[0]: " ".join(line.split()[1:]) for line in out.splitlines()[1:]}


def test_runs_are_listed_with_state_and_figures(tmp_path, capsys):
    rows = [{"env_steps": 500, "eval/reward": -3.0, "eval/violations": 2.0}, {"env_steps": 1000, "critic/q": 1.0}]
    untrained_run(tmp_path / "a", rows=rows)
    env = "CartPole-v1"
    for name in ("sub/new", "sub/stopped", "sub/failed", "sub/going"):
        untrained_run(tmp_path / name, seed=3, env=env, rows=rows if "stopped" in name else ()).policy_file.unlink()
    (tmp_path / "sub/failed/log.txt").write_text("SAC 100 steps\nerror: out of luck\n")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/run.json").write_text("{")
    with lock(tmp_path / "sub/going/.lock"):
        assert main(["runs", str(tmp_path)]) == 0
    found = cells(capsys.readouterr().out)
    assert found["a"] == "sac scopil/MarbleMaze-Simple-v0 0 1,000 of 1,000 finished -3.00 2.00"
    assert found["sub/new"] == "sac CartPole-v1 3 0 of 1,000 not started"
    assert found["sub/stopped"] == "sac CartPole-v1 3 0 of 1,000 stopped -3.00 2.00"
    assert found["sub/failed"] == "sac CartPole-v1 3 0 of 1,000 failed: out of luck"
    assert found["sub/going"] == "sac CartPole-v1 3 0 of 1,000 training"
    assert "run.json is damaged" in found["odd"]


def test_no_runs_is_one_line(tmp_path, capsys):
    assert main(["runs", str(tmp_path)]) == 2
    assert "no runs in" in capsys.readouterr().err
    assert main(["runs", str(tmp_path / "none")]) == 2
    assert "is not a folder" in capsys.readouterr().err
    assert not list(Path(tmp_path).iterdir())


def test_a_narrow_terminal_shows_whole_names_on_several_lines(tmp_path, capsys, monkeypatch):
    for name in ("a" * 60 + "-sac-0", "a" * 60 + "-sac-1"):
        untrained_run(tmp_path / "study" / name)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["runs", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    names = "".join(line.split()[0] for line in lines if line[:1].strip())
    assert names.count("-sac-0") == names.count("-sac-1") == 1
    assert sum("1,000 of 1,000" in line for line in lines) == 2
    monkeypatch.delenv("COLUMNS")
    assert main(["runs", str(tmp_path)]) == 0
    assert f"study/{'a' * 60}-sac-0 " in capsys.readouterr().out  # a pipe has any width
