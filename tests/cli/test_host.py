"""From `scopil train` to the report, on an environment in plain Python."""

import json

import pytest

from hosts import LIMIT, registered
from runs import untrained_run
from scopil.cli import main
from scopil.data.dataset import Demonstrations
from scopil.train.run import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("host") / "run"
    with registered(max_episode_steps=LIMIT) as name:
        argv = ["train", "sac", "--env", name, "--out", str(folder), "--steps", "300", "--hidden", "8"]
        assert main([*argv, "--batch-size", "16", "--replay-size", "512", "--num-envs", "2"]) == 0
        yield Run.open(folder)


def test_a_run_is_evaluated_by_what_the_environment_reports(run, capsys):
    assert main(["evaluate", str(run.folder), "--episodes", "12"]) == 0
    assert "unseen starts (12 episodes)" in capsys.readouterr().out
    found = json.loads((run.folder / "evaluation-unseen-greedy-12-episodes.json").read_text())
    assert len(found["episodes"]) == 12
    assert {"reward", "steps", "violations", "frequency", "violations/left"} <= set(found["mean"])
    assert {"length", "reached"}.isdisjoint(found["mean"])


def test_given_starts_are_refused(run, capsys):
    assert main(["evaluate", str(run.folder), "--starts", "starts.npy"]) == 2
    assert "cannot start at states of a file" in capsys.readouterr().err


def test_a_report_with_custom_rules_includes_the_demonstrator(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "walking_rules.py").write_text(
        '''def early(obs, action, next_obs):
    """The clock shows 1 or 2."""
    return next_obs[1] <= 2

def elsewhere(obs, action, next_obs): return next_obs[0] > 1e9
'''
    )
    steps = [[0.0, 0], [1.0, 1], [2.0, 2], [3.0, 3]]
    Demonstrations.from_arrays([steps], [[1, 1, 1]], [[0.0, 1.0, 2.0]]).save("shown.npz")
    assert main(["demos", "check", "shown.npz", "--rules", "walking_rules.py"]) == 0
    assert "warn rules        violations per episode: early = 2, elsewhere = 0" in capsys.readouterr().out
    with registered(name="test/Judged-v0", max_episode_steps=LIMIT) as name:
        run = untrained_run(tmp_path / "run", "bc", demos="shown.npz", env=name, rules="walking_rules.py")
        assert main(["evaluate", "run", "--episodes", "2"]) == 0
        assert "Violations (early)" in capsys.readouterr().out
        assert main(["report", "run", "--out", "seen"]) == 0
    text = (tmp_path / "seen" / "report.md").read_text()
    assert "Violations (early)" in text
    assert "Violations (elsewhere)" in text
    row = next(line for line in text.splitlines() if line.startswith("| Demonstrator (1 episodes)"))
    assert "| 3.00 | 2.000 |" in row  # reward; early
    assert "- early: The clock shows 1 or 2" in text
    assert run.spec.rules == "walking_rules.py"


def test_a_report_has_curves_and_no_episodes(run, tmp_path):
    assert main(["report", str(run.folder), "--out", str(tmp_path)]) == 0
    assert "SAC, greedy, unseen starts" in (tmp_path / "report.md").read_text()
    page = (tmp_path / "report.html").read_text()
    assert 'class="curves"' in page
    assert "tray-0" not in page
