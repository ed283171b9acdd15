"""The study "external": lawful demonstrations, steps per task, and one cell from training to its report."""

import json
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from scopil.cli import main
from scopil.data.record import play_expert
from scopil.envs.gym_env import open_env
from scopil.eval.rules import Rules, load_rules, name_of_rules
from scopil.eval.starts import UNSEEN_SEED, unseen_starts
from scopil.train.run import Run
from scopil_bench import planning, results
from scopil_bench.studies.base import Budget
from scopil_bench.studies.external import half_cheetah
from scopil_bench.studies.external.study import (
    METHODS,
    STUDY,
    TASKS,
    around,
    beside_the_cliff,
    demonstrations,
    off_the_middle,
    pump,
    too_fast,
)
from scopil_bench.studies.running import run_study
from scopil_bench.summaries import Cell, Table


@pytest.mark.parametrize(
    ("name", "earned", "episodes"),
    [
        pytest.param("cartpole", 500, 10, marks=pytest.mark.slow),
        ("cliffwalking", -15, 10),
        pytest.param("acrobot", -80.275, 40, marks=pytest.mark.slow),
    ],
)
def test_the_experts_keep_their_rules(name, earned, episodes):
    shown = results.demonstrator_measures(STUDY, name)[f"Demonstrator ({episodes} episodes)"]
    assert (shown["reward"], shown["violations"]) == (earned, 0)


def test_the_demonstrator_is_judged_from_the_starts_of_the_policies():
    env = gym.make("Acrobot-v1")
    opened = open_env("Acrobot-v1")
    episodes = play_expert(opened, "Acrobot-v1", pump, unseen_starts(opened, 2))
    for episode, seed in zip(episodes, np.random.default_rng(UNSEEN_SEED).integers(2**31, size=2), strict=True):
        obs, _ = env.reset(seed=int(seed))
        for before, action in zip(episode.observations, episode.actions):
            assert np.array_equal(before, obs)
            assert action == pump(obs)
            obs, *_ = env.step(int(action))
        assert np.array_equal(episode.observations[-1], obs)
        assert episode.terminated


@pytest.mark.parametrize(
    ("rule", "obs"),
    [
        (off_the_middle, np.array([-0.5, 0, 0, 0])),
        (beside_the_cliff, np.array([2 * 12 + 1])),  # the cell above the cliff's first
        (too_fast, np.array([1, 0, 1, 0, 0, -12.6])),
    ],
)
def test_the_rules_can_be_broken(rule, obs):
    assert rule(obs, 0, obs) == 1


def test_demonstrations_are_the_same_every_time():
    env = TASKS["cliffwalking"].env
    first, again = (demonstrations(env, around, 2) for _ in range(2))
    assert first.digest == again.digest
    assert first.env_id == env


def test_every_task_has_its_steps_and_episodes():
    steps = {name: STUDY.spec("full", Cell(name, "scopil"), 0, None).steps for name in STUDY.tasks}
    small = dict.fromkeys(("cartpole", "cliffwalking", "acrobot"), 50_000)
    assert steps == small | {"half-cheetah": 100_000, "lunar-lander": 300_000, "highway": 10_000}
    episodes = {name: STUDY.episodes_of(name) for name in STUDY.tasks}
    assert episodes == dict.fromkeys(STUDY.tasks, 100) | {"half-cheetah": 20, "highway": 40}
    assert STUDY.budgets["full"].seeds == 5
    assert [cell.method for cell in STUDY.cells(["acrobot"])] == list(METHODS)


def test_a_budgets_steps_take_precedence():
    cell = Cell("lunar-lander", "bc")
    assert STUDY.spec("short", cell, 0, None).steps == STUDY.budgets["short"].steps
    ((_, spec),) = planning.plan(STUDY, Path("out"), "full", [cell], 1, steps=7)
    assert spec.steps == 7
    whole = replace(STUDY, budgets={"full": Budget(seeds=1, whole=("bc",))})
    assert whole.spec("full", cell, 0, None).steps == spec.algorithm.budget


def test_nothing_is_set_for_a_task():
    for budget in STUDY.budgets:
        assert all(not STUDY.spec(budget, cell, 0, None).config for cell in STUDY.cells())


def test_other_processes_find_the_rules_by_name():
    for task in STUDY.tasks.values():
        name = name_of_rules(task.rules)
        assert name is not None
        assert load_rules(name).by_name == Rules.of(task.rules).by_name


class _Here:
    """An engine that trains in this process."""

    def start(self, folder: Path, trust_env: bool) -> "_Here":
        Run.open(folder, trust_env=trust_env).train()
        return self

    def poll(self) -> int:
        return 0

    def stop(self) -> None: ...

    def wait(self) -> None: ...


def test_one_cell_from_training_to_the_report(tmp_path):
    tasks = {"cliffwalking": replace(STUDY.tasks["cliffwalking"], steps=100, episodes=3)}
    tables = {"cliffwalking": Table("CliffWalking", "cliffwalking", ("bc",), ("bc",))}
    budgets = {"full": Budget(seeds=1, eval_every=100, checkpoint_every=100)}
    small = replace(STUDY, tasks=tasks, tables=tables, budgets=budgets)
    run_study(small, tmp_path, engine=_Here())
    (run,) = json.loads((tmp_path / "results.json").read_text())["runs"]
    assert (run["method"], run["steps"]) == ("bc", 100)
    assert run["episodes"] == {"greedy/unseen": 1, "sampled/unseen": 3}  # all episodes begin in one state
    assert "violations/beside_the_cliff" in run["means"]["sampled/unseen"]
    assert "| Demonstrator (10 episodes) | -15.00 | 0.000 |" in (tmp_path / "tables.md").read_text()


def test_missing_data_is_one_line_with_a_way_out(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv(half_cheetah.DATA, raising=False)
    argv = ["study", "external", "--only", "half-cheetah", "--out", str(tmp_path / "out")]
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert half_cheetah.DATA in err
    assert err.count("\n") == 1
    monkeypatch.setenv(half_cheetah.DATA, str(tmp_path / "none.npz"))
    assert main(argv) == 2
    assert "none.npz" in capsys.readouterr().err


def test_the_cheetahs_demonstrator_is_counted_without_rewards(tmp_path, monkeypatch):
    pytest.importorskip("mujoco")
    observations = np.zeros((2, 5, 18), np.float32)
    observations[1, 2, 0] = -3.0  # at the wall
    np.savez(tmp_path / "data.npz", observations=observations, actions=np.zeros((2, 5, 6), np.float32))
    monkeypatch.setenv(half_cheetah.DATA, str(tmp_path / "data.npz"))
    found = results.demonstrator_measures(STUDY, "half-cheetah")["Demonstrator (2 episodes)"]
    assert found["violations"] == 0.5
    assert "reward" not in found
