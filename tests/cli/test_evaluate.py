"""`scopil evaluate`: the table and the JSON say what the games say."""

import json
from pathlib import Path

import numpy as np
import pytest

from runs import untrained_run
from samples import marble_games
from scopil.agents import load
from scopil.cli import main
from scopil.demos import store


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("evaluated")
    store.write(marble_games(steps=6, games=3), folder / "demos.npz")
    return untrained_run(folder / "run", "scopil", demos=str(folder / "demos.npz")).folder


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def by_hand(game) -> dict[str, float]:
    """In plain NumPy from the raw game, sharing nothing with `metrics`."""
    circle, line = game.info["cost_circle"] > 0, game.info["cost_horizontal"] > 0
    moves = np.diff(game.info["position"].astype(float), axis=0)
    n = len(game.rewards)
    return {
        "reward": sum(float(r) for r in game.rewards),
        "steps": n,
        "length": sum(float(np.hypot(*m)) for m in moves),
        "reached": float(game.terminated),
        "violations/circle": circle.sum(),
        "violations/horizontal": line.sum(),
        "frequency/circle": circle.sum() / n,
        "frequency/horizontal": line.sum() / n,
        "violations": circle.sum() + line.sum(),
        "frequency": (circle.sum() + line.sum()) / n,
        "avoidable": circle[1:].sum() + line[1:].sum(),
    }


@pytest.mark.parametrize(
    ("argv", "deterministic", "starts", "games"),
    [
        ([], True, "train", 3),
        (["--policy", "sampled", "--seed", "7", "--games", "5"], False, "train", 5),
        (["--starts", "test", "--games", "4"], True, "test", 4),
    ],
)
def test_the_json_is_what_the_games_say(argv, deterministic, starts, games, run, tmp_path, capsys):
    assert main(["evaluate", str(run), *argv, "--out", str(tmp_path / "e.json")]) == 0
    found = json.loads((tmp_path / "e.json").read_text())
    seed = 7 if "--seed" in argv else 0
    played = load(run).play(starts, games, deterministic=deterministic, seed=seed)
    assert len(found["games"]) == games
    for row, game in zip(found["games"], played):
        assert row == pytest.approx(by_hand(game), rel=1e-12)
    for name, mean in found["mean"].items():
        assert mean == pytest.approx(np.mean([row[name] for row in found["games"]]), rel=1e-12)
    policy = "greedy" if deterministic else "sampled"
    assert (found["policy"], found["starts"], found["seed"]) == (policy, starts, seed)
    out = capsys.readouterr().out
    header, values = out.splitlines()[:2]
    assert " ".join(header.split()) == "Rwd H F(H) C F(C) H+C F(H+C) Avoidable Length Steps Reached"
    assert values.startswith(f"SCOPIL, {policy}, {starts} starts ({games} games) ")
    assert values.split()[-11] == f"{found['mean']['reward']:.2f}"
    assert values.split()[-6] == f"{found['mean']['violations']:.3f}"


def test_the_json_goes_beside_the_run_and_each_game_is_printed(run, capsys):
    assert main(["evaluate", str(run), "--each"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("game ")] == ["0", "1", "2"]
    assert (run / "evaluation-train-greedy.json").exists()
    assert "written: " in out


def test_starts_from_a_file(run, tmp_path):
    starts = np.array([(-100.0, 50.0), (60.0, -120.0)], np.float32)
    np.save(tmp_path / "mine.npy", starts)
    policy = tmp_path / "policy.ckpt"  # a saved policy will do
    policy.write_bytes((run / "policy.ckpt").read_bytes())
    assert main(["evaluate", str(policy), "--starts", str(tmp_path / "mine.npy")]) == 0
    found = json.loads((tmp_path / "evaluation-mine-greedy.json").read_text())
    assert [g["steps"] for g in found["games"]] == [
        g.steps for g in load(run).play(str(tmp_path / "mine.npy"))
    ]


def test_a_narrow_terminal_gets_a_tall_table(run, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["evaluate", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["Rwd", "H", "F(H)", "C"]
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--games", "0"], "0 games; want at least 1"),
        (["--starts", "nowhere.npy"], "cannot read starts from nowhere.npy"),
        (["--starts", "trian"], "no demonstrations 'trian'"),
    ],
)
def test_bad_input_is_one_line(argv, message, run, capsys):
    assert main(["evaluate", str(run), *argv]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_no_run(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path), "--policy", "best"]) == 2
    assert "best" in capsys.readouterr().err
