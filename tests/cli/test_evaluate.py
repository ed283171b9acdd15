"""`scopil evaluate`: table and JSON agree with the played episodes."""

import json
from pathlib import Path

import numpy as np
import pytest

from runs import untrained_run
from samples import marble_episodes
from scopil.cli import main
from scopil.data import storage
from scopil.loading import load
from scopil.train.run import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("evaluated")
    storage.write(marble_episodes(steps=6, episodes=3), folder / "demos.npz")
    return untrained_run(folder / "run", "scopil", demos=str(folder / "demos.npz")).folder


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")


def by_hand(episode) -> dict[str, float]:
    """In plain NumPy from the raw episode, sharing nothing with `measures`."""
    circle, line = episode.info["cost_circle"] > 0, episode.info["cost_horizontal"] > 0
    moves = np.diff(episode.info["position"].astype(float), axis=0)
    n = len(episode.rewards)
    return {
        "reward": sum(float(r) for r in episode.rewards),
        "steps": n,
        "length": sum(float(np.hypot(*m)) for m in moves),
        "reached": float(episode.terminated),
        "violations/circle": circle.sum(),
        "violations/horizontal": line.sum(),
        "frequency/circle": circle.sum() / n,
        "frequency/horizontal": line.sum() / n,
        "violations": circle.sum() + line.sum(),
        "frequency": (circle.sum() + line.sum()) / n,
        "avoidable": circle[1:].sum() + line[1:].sum(),
    }


@pytest.mark.parametrize(
    ("argv", "deterministic", "starts", "episodes"),
    [
        ([], True, "unseen", 40),
        (["--starts", "demonstrated"], True, "demonstrated", 3),
        (
            ["--policy", "sampled", "--seed", "7", "--episodes", "5", "--starts", "demonstrated"],
            False,
            "demonstrated",
            5,
        ),
    ],
)
def test_measures_agree_with_the_played_episodes(argv, deterministic, starts, episodes, run, tmp_path, capsys):
    assert main(["evaluate", str(run), *argv, "--out", str(tmp_path / "e.json")]) == 0
    found = json.loads((tmp_path / "e.json").read_text())
    seed = 7 if "--seed" in argv else 0
    played = load(run).play(starts, episodes, deterministic=deterministic, seed=seed)
    assert len(found["episodes"]) == episodes
    for row, episode in zip(found["episodes"], played):
        assert row == pytest.approx(by_hand(episode), rel=1e-12)
    for name, mean in found["mean"].items():
        assert mean == pytest.approx(np.mean([row[name] for row in found["episodes"]]), rel=1e-12)
    policy = "greedy" if deterministic else "sampled"
    assert (found["policy"], found["starts"], found["seed"]) == (policy, starts, seed)
    header, values = capsys.readouterr().out.splitlines()[:2]
    assert header.split("  ")[-1].strip() == "Reached"
    assert "Violations per step (circle)" in header
    assert values.startswith(f"SCOPIL, {policy}, {starts} starts ({episodes} episodes) ")
    assert f"{found['mean']['reward']:.2f}±{found['margin']['reward']:.2f}" in values.split()
    assert values.split()[-6] == f"{found['mean']['violations']:.3f}±{found['margin']['violations']:.3f}"


def test_the_json_goes_beside_the_run_and_each_episode_is_printed(run, capsys):
    assert main(["evaluate", str(run), "--each", "--starts", "demonstrated"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("episode ")] == ["0", "1", "2"]
    assert (run / "evaluation-demonstrated-greedy.json").exists()
    assert "written: " in out


def test_violations_by_given_rules(run, tmp_path, monkeypatch):
    (tmp_path / "evaluated_rules.py").write_text("def low(obs, action, next_obs): return {'low': next_obs[1] < 0}\n")
    monkeypatch.chdir(tmp_path)
    argv = ["--rules", "evaluated_rules:low", "--starts", "demonstrated", "--out", "e.json"]
    assert main(["evaluate", str(run), *argv]) == 0
    found = json.loads((tmp_path / "e.json").read_text())
    played = load(run).play("demonstrated")
    assert [e["violations/low"] for e in found["episodes"]] == [(e.observations[1:, 1] < 0).sum() for e in played]
    assert "violations/circle" not in found["mean"]


def test_starts_from_a_file(run, tmp_path):
    starts = np.array([(-100.0, 50.0), (60.0, -120.0)], np.float32)
    np.save(tmp_path / "mine.npy", starts)
    policy = tmp_path / "saved"  # a saved agent will do
    policy.write_bytes(Run.open(run).policy_file.read_bytes())
    assert main(["evaluate", str(policy), "--starts", str(tmp_path / "mine.npy")]) == 0
    found = json.loads((tmp_path / "evaluation-mine-greedy.json").read_text())
    played = load(run).play(str(tmp_path / "mine.npy"))
    assert [row["steps"] for row in found["episodes"]] == [len(e) for e in played]


def test_evaluations_are_named_after_their_settings(run, tmp_path, monkeypatch):
    (tmp_path / "my_rules.py").write_text("def low(obs, action, next_obs): return next_obs[1] < 0\n")
    monkeypatch.chdir(tmp_path)
    for argv in (
        ["--episodes", "3"],
        ["--episodes", "3", "--seed", "2"],
        ["--episodes", "3", "--rules", "my_rules.py"],
    ):
        assert main(["evaluate", str(run), *argv]) == 0
    first, other = (f"evaluation-unseen-greedy-3-episodes{end}.json" for end in ("", "-seed-2"))
    assert json.loads((run / first).read_text())["episodes"] != json.loads((run / other).read_text())["episodes"]
    found = {file.name for file in run.glob("evaluation-*-3-episodes*.json")}
    assert found == {f"evaluation-unseen-greedy-3-episodes{end}.json" for end in ("", "-seed-2", "-my_rules")}


def test_a_greedy_policy_plays_no_start_twice(run, tmp_path, capsys):
    argv = ["--starts", "demonstrated", "--episodes", "7", "--out", str(tmp_path / "e.json")]
    assert main(["evaluate", str(run), *argv]) == 0
    assert "each of the 3 starts is played once" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "e.json").read_text())["episodes"]) == 3
    assert len(load(run).play("demonstrated", 7, deterministic=False)) == 7
