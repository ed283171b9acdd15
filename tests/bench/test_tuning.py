"""Tuning: a planted optimum is found, a search can be continued, and its starts are not those of reports."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from hosts import Walk
from scopil.cli import main
from scopil.envs.gym_env import open_env
from scopil.errors import ConfigError, DivergedError, ScopilError
from scopil.eval.starts import unseen_starts
from scopil.train.run import Run
from scopil.train.trainer import Trainer
from scopil_bench import tuning
from scopil_bench.report.page import Fold, Grid
from scopil_bench.studies import running
from scopil_bench.studies.study_file import study_from

STUDY = study_from({"env": "CartPole-v1", "methods": ["sac"], "steps": 500}, name="mine")
SPACE = {"discount": [0.0, 1.0], "learning_rate": [1e-5, 1e-1, "log"], "hidden": {"choices": [[8], [16, 16]]}}


@pytest.fixture
def planted(monkeypatch):
    """In place of training: the best is at discount 0.7, learning rate 10⁻³ and two layers."""
    pytest.importorskip("optuna")
    judged = []

    def judge(study, search, out, trials, *_):
        for trial in trials:
            if not trial.done:
                s = trial["settings"]
                judged.append(s)
                value = -abs(s["discount"] - 0.7) - abs(np.log10(s["learning_rate"]) + 3) - (len(s["hidden"]) < 2)
                trial.update(value=value, measures={"reward": value})

    monkeypatch.setattr(tuning, "_train_and_evaluate", judge)
    return judged


def test_a_planted_optimum_is_found_and_reported(planted, tmp_path):
    search = tuning.search_from({"settings": SPACE, "trials": 60}, STUDY)
    best, *others = tuning.tune(STUDY, search, tmp_path, workers=2)
    assert len(others) == 59
    assert abs(best["settings"]["discount"] - 0.7) < 0.15
    assert abs(np.log10(best["settings"]["learning_rate"]) + 3) < 0.5
    assert best["settings"]["hidden"] == [16, 16]
    assert best["value"] > max(t["value"] for t in others[:1]) - 1e-12
    assert reported(tmp_path)[0][:2] == ["1", f"{best['value']:.4g}"]


def reported(out: Path) -> Sequence[Sequence[Any]]:
    """The rows of trials on a report's page."""
    (fold,) = running._tuning(out)
    assert isinstance(fold, Fold)
    table = fold.blocks[1]
    assert isinstance(table, Grid)
    return table.rows


def test_a_search_can_be_continued(planted, tmp_path):
    few = tuning.search_from({"settings": SPACE, "trials": 3}, STUDY)
    first = tuning.tune(STUDY, few, tmp_path, workers=1)
    with (tmp_path / "tuning" / "trials.jsonl").open("a") as lines:  # killed in it
        print(json.dumps({"settings": {"discount": 0.5, "learning_rate": 1e-3, "hidden": [8]}}), file=lines)
    more = tuning.search_from({"settings": SPACE, "trials": 5}, STUDY)
    every = tuning.tune(STUDY, more, tmp_path, workers=1)
    assert len(every) == 5
    assert len(planted) == 5  # nothing was evaluated twice
    assert all(trial in every for trial in first)
    copied = cart_pole(methods=["sac"], overrides={"discount": 0.7})  # a found setting, in the study
    assert len(tuning.tune(copied, replace(more, trials=6), tmp_path)) == 6


def cart_pole(**changes):
    return study_from({"env": "CartPole-v1", "methods": ["sac", "ppo"], "steps": 500} | changes, name="mine")


@pytest.mark.parametrize(
    ("study", "plan", "message"),
    [
        (cart_pole(), {"method": "ppo"}, "tune.method"),
        (cart_pole(), {"objective": {"steps": -1}}, 'tune.objective = {"reward": 1.0}, not {"steps": -1.0}'),
        (cart_pole(), {"seeds": 2}, "tune.seeds"),
        (cart_pole(), {"settings": {"discount": [0.0, 0.1]}}, "tune.settings.discount"),
        (cart_pole(), {"settings": {"polyak": [0.1, 0.2]}}, "tune.settings.polyak"),
        (cart_pole(steps=600), {}, "settings.mine.steps"),
        (cart_pole(env="Acrobot-v1"), {}, "settings.mine.env"),
        (cart_pole(overrides={"hidden": [8]}), {}, "settings.mine.config"),
    ],
)
def test_trials_of_another_search_are_refused(study, plan, message, monkeypatch, tmp_path):
    pytest.importorskip("optuna")
    first = {"settings": {"discount": [0.0, 1.0]}, "trials": 1}
    monkeypatch.setattr(tuning, "_train_and_evaluate", lambda s, f, o, trials, *_: trials[0].update(value=1.0))
    tuning.tune(cart_pole(), tuning.search_from(first, cart_pole()), tmp_path)
    with pytest.raises(ConfigError, match=re.escape(message)):
        tuning.tune(study, tuning.search_from(first | plan, study), tmp_path)


def test_a_misspelt_objective_can_be_corrected(monkeypatch, tmp_path):
    """The first trials are trained before it is noticed, and kept."""
    pytest.importorskip("optuna")

    def judge(study, search, out, trials, *_):
        if "rewards" in search.objective:
            raise ConfigError("no such measure")
        trials[0].update(value=1.0)

    monkeypatch.setattr(tuning, "_train_and_evaluate", judge)
    plan = {"settings": SPACE, "trials": 1}
    with pytest.raises(ConfigError):
        tuning.tune(STUDY, tuning.search_from(plan | {"objective": {"rewards": 1}}, STUDY), tmp_path)
    (first,) = tuning.read_trials(tmp_path)
    (trial,) = tuning.tune(STUDY, tuning.search_from(plan, STUDY), tmp_path)
    assert trial == first | {"value": 1.0}


class Counted(Walk):
    """Counts the environments that were made and those that are open."""

    open = total = 0

    def __init__(self):
        super().__init__()
        Counted.open += 1
        Counted.total += 1

    def close(self):
        Counted.open -= 1


@pytest.fixture
def untrained(monkeypatch):
    """Runs are created, but neither trained nor evaluated. Returns log lines of runs that fail, by trial, and a list of
    the trained trials."""
    pytest.importorskip("optuna")
    lines: dict[str, str] = {}
    trained: list[str] = []

    def train(runs, *_):
        trained.extend(run.folder.parent.name for run in runs)
        return {run.folder: lines[n] for run in runs if (n := run.folder.parent.name) in lines}

    monkeypatch.setattr(tuning, "execute_with_progress", train)
    monkeypatch.setattr(Run, "policy", lambda run: (None, 0))
    monkeypatch.setattr(tuning, "play", lambda env, policy, first, key, mode: env.reset_batch(key, 1))
    monkeypatch.setattr(tuning, "measure_all", lambda *_: [{"reward": 1.0}])
    monkeypatch.setitem(gym.registry, "Counted-v0", EnvSpec("Counted-v0", lambda **_: Counted()))
    return lines, trained


COUNTED = study_from({"env": "Counted-v0", "methods": ["sac"], "steps": 500}, name="mine")
FEW = {"settings": {"learning_rate": [1e-5, 1e-1, "log"]}, "trials": 4}


def diverged() -> str:
    """The last line of the log of a run that diverged, as the command line writes it."""
    state: Any = SimpleNamespace(env=None, replay=None, env_steps=40, learner={"weight": np.zeros(1)})
    with pytest.raises(DivergedError) as raised:
        Trainer._refuse_nonsense(None, state, {"env/reward": np.nan})  # pyright: ignore[reportArgumentType]
    return f"error: {raised.value} The newest checkpoint is kept."


def test_a_trial_that_diverges_has_failed_and_the_others_go_on(untrained, tmp_path):
    Counted.open = Counted.total = 0
    lines, trained = untrained
    lines["0001"] = diverged()
    search = tuning.search_from(FEW, COUNTED)
    *fine, last = tuning.tune(COUNTED, search, tmp_path)
    assert [trial.done for trial in fine] == [True] * 3
    assert last == tuning.read_trials(tmp_path)[1]
    assert (last.done, last["failed"]) == (False, diverged())
    tuning.tune(COUNTED, replace(search, trials=5), tmp_path)
    assert sorted(trained) == ["0000", "0001", "0002", "0003", "0004"]
    assert len(reported(tmp_path)) == 4
    assert Counted.total > Counted.open == 0


@pytest.mark.parametrize(("values", "ties"), [((1.0, 1.0, 0.5, 1.0), 2), ((1.0, 0.5), 0)])
def test_the_command_says_when_trials_tie(values, ties, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    plan = 'env = "CartPole-v1"\nmethods = ["sac"]\n[tune.settings]\ndiscount = [0.0, 1.0]\n'
    Path("mine.toml").write_text(plan)
    made = [tuning.Trial(settings={"discount": 0.1 * i}, value=v) for i, v in enumerate(sorted(values, reverse=True))]
    monkeypatch.setattr("scopil_bench.cli.tune.search_settings", lambda *_, **__: made)
    assert main(["tune", "mine.toml"]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if " other trial" in line]
    assert [int(line.split()[0]) for line in said] == [ties] * bool(ties)


def test_the_command_prints_how_many_diverged(untrained, monkeypatch, tmp_path, capsys):
    untrained[0]["0001"] = diverged()
    monkeypatch.chdir(tmp_path)
    plan = 'env = "Counted-v0"\nmethods = ["sac"]\nsteps = 500\n[tune]\ntrials = 2\n[tune.settings]\n'
    Path("mine.toml").write_text(plan + "discount = [0.0, 1.0]\n")
    assert main(["tune", "mine.toml"]) == 0
    printed = capsys.readouterr().out
    assert "trial 1: diverged" in printed
    assert "of which 1 diverged" in printed
    untrained[0]["0000"] = diverged()
    assert main(["tune", "mine.toml", "--out", "other"]) == 2
    assert "all 2 trials" in capsys.readouterr().err


def test_a_run_that_fails_otherwise_ends_the_search_and_is_trained_again(untrained, tmp_path):
    lines, trained = untrained
    lines |= {"0000": diverged(), "0001": "error: no space left"}
    with pytest.raises(ScopilError, match="no space left"):
        tuning.tune(COUNTED, tuning.search_from(FEW, COUNTED), tmp_path)
    lines.clear()
    tuning.tune(COUNTED, tuning.search_from(FEW, COUNTED), tmp_path)
    assert sorted(trained) == ["0000", "0001", "0001", "0002", "0003"]


def test_trials_are_evaluated_from_starts_that_no_report_uses():
    env = open_env("CartPole-v1")
    ours, theirs = ({*unseen_starts(env, seed=seed).seeds.tolist()} for seed in (tuning.TUNE_SEED, 0))  # type: ignore[union-attr]
    assert not ours & theirs


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({}, "settings"),
        ({"settings": {"lr": [0, 1]}}, "lr"),
        ({"settings": {"discount": [1, 0]}}, r"discount = \[1, 0\]"),
        ({"settings": {"discount": [0.0, 1.0, "log"]}}, "low above 0"),
        ({"settings": {"discount": "high"}}, "discount"),
        ({"settings": {"batch_size": [16.5, 64]}}, "whole"),
        ({"settings": SPACE, "method": "bc"}, "method = 'bc'"),
        ({"settings": SPACE, "trials": 0}, "trials = 0"),
        ({"settings": SPACE, "objective": "reward"}, "weights"),
        ({"settings": SPACE, "trails": 9}, "trails"),
    ],
)
def test_a_search_that_cannot_be_made_is_refused(plan, message):
    with pytest.raises(ConfigError, match=message):
        tuning.search_from(plan, STUDY)


def test_a_range_has_the_type_of_its_setting():
    found = tuning.search_from({"settings": {"discount": [0, 1], "batch_size": [16.0, 64, "log"]}}, STUDY)
    (low, high), (least, most, how) = found.settings["discount"], found.settings["batch_size"]
    assert [type(n) for n in (low, high, least, most)] == [float, float, int, int]
    assert (low, high, least, most, how) == (0, 1, 16, 64, "log")


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
    assert trials[-1]["settings"]["discount"] < 0.58  # the search space has worse values too
    assert trials[-1]["value"] == pytest.approx(0.2)
