"""Searching settings: a planted optimum is found, a search goes on where it stopped, and starts are kept apart."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from scopil.cli import main
from scopil.envs.host import open_env
from scopil.errors import ConfigError
from scopil.evaluate.starts import unseen_starts
from scopil.experiments import tuning
from scopil.report.page import Fold, Grid
from scopil.studies import running
from scopil.studies.study_file import study_from

STUDY = study_from({"env": "CartPole-v1", "methods": ["sac"], "steps": 500}, name="mine")
SPACE = {"discount": [0.0, 1.0], "learning_rate": [1e-5, 1e-1, "log"], "hidden": {"choices": [[8], [16, 16]]}}


@pytest.fixture
def planted(monkeypatch):
    """In place of training: the best is at discount 0.7, learning rate 10⁻³ and two layers."""
    pytest.importorskip("optuna")
    judged = []

    def judge(study, search, out, trials, workers, console, engine):
        for trial in trials:
            if not trial.done:
                s = trial["settings"]
                judged.append(s)
                value = (
                    -abs(s["discount"] - 0.7) - abs(np.log10(s["learning_rate"]) + 3) - (len(s["hidden"]) < 2)
                )
                trial.update(value=value, measures={"reward": value})

    monkeypatch.setattr(tuning, "_train_and_judge", judge)
    return judged


def test_a_planted_optimum_is_found_and_reported(planted, tmp_path):
    search = tuning.search_from({"settings": SPACE, "trials": 60}, STUDY)
    best, *others = tuning.tune(STUDY, search, tmp_path, workers=2)
    assert len(others) == 59
    assert abs(best["settings"]["discount"] - 0.7) < 0.15
    assert abs(np.log10(best["settings"]["learning_rate"]) + 3) < 0.5
    assert best["settings"]["hidden"] == [16, 16]
    assert best["value"] > max(t["value"] for t in others[:1]) - 1e-12
    (fold,) = running._tuning(tmp_path)
    assert isinstance(fold, Fold)
    _, table = fold.blocks
    assert isinstance(table, Grid)
    assert fold.summary == "Settings that were searched"
    assert table.rows[0][:2] == ["1", f"{best['value']:.4g}"]


def test_a_search_goes_on_where_it_stopped(planted, tmp_path):
    few = tuning.search_from({"settings": SPACE, "trials": 3}, STUDY)
    first = tuning.tune(STUDY, few, tmp_path, workers=1)
    lines = tuning.read_trials(tmp_path)
    lines.append(
        tuning.Trial(settings={"discount": 0.5, "learning_rate": 1e-3, "hidden": [8]})
    )  # killed in it
    (tmp_path / "tuning" / "trials.jsonl").write_text("".join(json.dumps(t) + "\n" for t in lines))
    more = tuning.search_from({"settings": SPACE, "trials": 5}, STUDY)
    every = tuning.tune(STUDY, more, tmp_path, workers=1)
    assert len(every) == 5
    assert len(planted) == 5  # nothing was judged twice
    assert all(trial in every for trial in first)
    other = tuning.search_from({"settings": {"discount": [0.0, 1.0]}}, STUDY)
    with pytest.raises(
        ConfigError, match="holds a search over discount, learning_rate, hidden, not over discount"
    ):
        tuning.tune(STUDY, other, tmp_path)


def test_trials_are_judged_from_starts_that_no_report_uses():
    env = open_env("CartPole-v1")
    reported, judged = unseen_starts(env), unseen_starts(env, seed=tuning.TUNE_SEED)
    assert not set(reported.seeds.tolist()) & set(judged.seeds.tolist())  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({}, r"\[tune.settings\] is empty"),
        ({"settings": {"lr": [0, 1]}}, "lr: sac has no such setting; it has discount"),
        ({"settings": {"discount": [1, 0]}}, r"discount = \[1, 0\]; want \[low, high\]"),
        ({"settings": {"discount": [0.0, 1.0, "log"]}}, "with low above 0"),
        ({"settings": {"discount": "high"}}, r"want \[low, high\]"),
        ({"settings": SPACE, "method": "bc"}, "method = 'bc'; the study has sac"),
        ({"settings": SPACE, "trials": 0}, "trials = 0; want a whole number of at least 1"),
        ({"settings": SPACE, "objective": "reward"}, "want weights"),
        ({"settings": SPACE, "trails": 9}, "no entry trails"),
    ],
)
def test_a_search_that_cannot_be_made_is_refused(plan, message):
    with pytest.raises(ConfigError, match=message):
        tuning.search_from(plan, STUDY)


def test_optuna_is_an_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r'pip install "scopil\[tune\]"'):
        tuning.tune(STUDY, tuning.search_from({"settings": SPACE}, STUDY), tmp_path)


LATER = """
import gymnasium as gym, numpy as np

class Later(gym.Env):
    '''Action 0 pays 0.2 and ends; action 1 pays 1 after three more steps.'''
    observation_space = gym.spaces.Box(0.0, 4.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if self.clock == 0 and action == 0:
            return np.full(1, 4.0, np.float32), 0.2, True, False, {}
        self.clock += 1
        over = self.clock == 4
        return np.full(1, self.clock, np.float32), float(over), over, False, {}
"""


@pytest.mark.slow
def test_a_discount_that_looks_ahead_is_found_by_real_runs(tmp_path, monkeypatch, capsys):
    """Below 0.2^(1/3) = 0.58 the best policy takes the small reward at once."""
    monkeypatch.chdir(tmp_path)
    Path("later.py").write_text(LATER)
    Path("mine.toml").write_text(
        'env = "later.py:Later"\nmethods = ["sac"]\nsteps = 1500\nepisodes = 2\nseeds = 1\n'
        "[overrides]\nhidden = [8]\nlog_alpha_init = -4.0\nbatch_size = 32\n"
        "[tune]\ntrials = 8\n[tune.settings]\ndiscount = [0.0, 0.99]\n"
    )
    assert main(["tune", "mine.toml", "--workers", "1"]) == 0
    assert "[methods.sac]\ndiscount = 0." in capsys.readouterr().out
    trials = sorted(tuning.read_trials(Path("out/mine")), key=lambda t: -t["value"])
    assert trials[0]["settings"]["discount"] > 0.58
    assert trials[0]["value"] == 1.0
    assert trials[-1]["settings"]["discount"] < 0.58  # and a search that always ends at 1 would show nothing
    assert trials[-1]["value"] == pytest.approx(0.2)
