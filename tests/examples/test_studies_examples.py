"""Examples and benchmarks of studies, with few steps."""

import importlib
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from scopil.eval.measures import average, measure_all

ROOT = Path(__file__).parents[2]


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["first_run", "own_tray", "lunar_lander"])
def test_examples_import_public_names_only(name):
    text = (ROOT / "examples" / f"{name}.py").read_text()
    assert re.search(r"^import scopil(_bench)?$", text, re.MULTILINE)
    assert "from scopil" not in text
    assert "import scopil." not in text


@pytest.mark.slow
def test_a_careful_player_keeps_the_rules_that_were_drawn(tmp_path):
    rows = script("examples/own_tray.py").main(steps=300, episodes=2, out=tmp_path)
    assert list(rows) == ["demonstrations", "SCOPIL", "SAC"]
    assert rows["demonstrations"]["violations"] == 0
    assert (tmp_path / "episodes.png").stat().st_size > 10_000


STARTS = ("demonstrated", "unseen")


@pytest.mark.slow
def test_the_first_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    rows = script("examples/first_run.py").main(steps=500, out=tmp_path)
    assert max(len(line.rstrip()) for line in capsys.readouterr().out.splitlines() if "demonstrat" in line) <= 120
    played = [f"{title}, {starts} starts" for title in ("SCOPIL-ρ", "SCOPIL", "SAC", "BC") for starts in STARTS]
    assert list(rows) == ["demonstrations", *played]
    assert "Violations (circle)" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "episodes.png").exists()


def test_the_controller_lands_and_hardly_breaks_its_rules():
    pytest.importorskip("Box2D")
    from scopil_bench.studies.external import lunar_lander

    demos = lunar_lander.demonstrate(3)
    assert all(e.total_reward >= lunar_lander.LANDED for e in demos)
    found = average(measure_all(demos.episodes, rules=lunar_lander.rules))
    legs = [(e.observations[:-1, 6:8].max(axis=1) > 0) & (e.actions != 0) for e in demos]
    tilted = [np.abs(e.observations[1:, 4]) > lunar_lander.TILT for e in demos]
    assert found["violations/engine"] == np.mean([one.sum() for one in legs])
    assert found["violations/tilt"] == np.mean([one.sum() for one in tilted])
    assert found["violations"] == pytest.approx(found["violations/engine"] + found["violations/tilt"])


@pytest.mark.slow
def test_the_table_of_lunar_lander(tmp_path, capsys, monkeypatch):
    pytest.importorskip("Box2D")
    from dataclasses import replace
    from functools import partial

    from scopil_bench.studies.external import lunar_lander, study

    tasks = {"lunar-lander": replace(study.TASKS["lunar-lander"], demos=partial(lunar_lander.demonstrate, 3))}
    monkeypatch.setattr(study, "STUDY", replace(study.STUDY, tasks=tasks, episodes=2))
    example = script("examples/lunar_lander.py")
    for _ in range(2):  # the second time there is nothing left to train
        example.main(steps=600, seeds=1, out=tmp_path)
        assert "| Demonstrator, unseen starts |" in capsys.readouterr().out
    runs = json.loads((tmp_path / "results.json").read_text())["runs"]
    assert {run["method"] for run in runs} == set(study.METHODS)
    assert all("violations/tilt" in run["means"]["greedy/unseen"] for run in runs)


@pytest.fixture
def cheetah_data(tmp_path):
    """Two episodes of five steps; an action shows which observation it was chosen from."""
    observations = np.random.default_rng(0).normal(size=(2, 5, 18)).astype(np.float32)
    actions = np.zeros((2, 5, 6), np.float32)
    actions[:, 1:, 0] = np.tanh(observations[:, :-1, 0])  # what was seen after step k led to action k + 1
    file = tmp_path / "data.npz"
    np.savez(file, observations=observations, actions=actions)
    return file


def test_an_observation_is_paired_with_the_next_action(cheetah_data):
    from scopil_bench.studies.external.half_cheetah import demonstrations

    demos = demonstrations(cheetah_data)
    assert [len(e) for e in demos] == [3, 3]
    np.testing.assert_array_equal(demos.actions[:, 0], np.tanh(demos.observations[:, 0]))


@pytest.mark.slow
def test_the_table_of_half_cheetah(cheetah_data, tmp_path):
    pytest.importorskip("mujoco")
    benchmark = script("benchmarks/half_cheetah.py")
    results = tmp_path / "results.json"
    benchmark.main(data=cheetah_data, steps=400, seeds=1, workers=1, out=tmp_path / "out", results=results)
    methods = {run["method"] for run in json.loads(results.read_text())["runs"]}
    assert methods == {"scopil-rho", "scopil", "sac", "bc"}


@pytest.mark.slow
def test_the_table_of_lap_grid_world(tmp_path, capsys):
    """Real training in other processes, with the study's own environment and demonstrations."""
    results = tmp_path / "results.json"
    script("benchmarks/lap_grid.py").main(seeds=1, out=tmp_path / "out", results=results, steps=10_240)
    assert {run["method"] for run in json.loads(results.read_text())["runs"]} == {"icrl", "ppo"}
    tables = capsys.readouterr().out
    assert "| ICRL, greedy, 1 seed × " in tables
    assert "The learned cost of a step" in tables
