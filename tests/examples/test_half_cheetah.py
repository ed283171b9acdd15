"""The half-cheetah benchmark pairs what its data file means, and runs."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "half_cheetah.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("half_cheetah", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def data(tmp_path):
    """Two games of five steps; an action tells which observation it was chosen from."""
    observations = np.random.default_rng(0).normal(size=(2, 5, 18)).astype(np.float32)
    actions = np.zeros((2, 5, 6), np.float32)
    actions[:, 1:, 0] = np.tanh(observations[:, :-1, 0])  # what was seen after step k led to action k + 1
    file = tmp_path / "data.npz"
    np.savez(file, observations=observations, actions=actions)
    return file


def test_an_observation_is_paired_with_the_next_action(script, data):
    demos = script.demonstrations(data)
    assert [len(e) for e in demos] == [3, 3]
    np.testing.assert_array_equal(demos.actions[:, 0], np.tanh(demos.observations[:, 0]))


@pytest.mark.slow
def test_the_table(script, data, tmp_path, monkeypatch):
    pytest.importorskip("mujoco")
    monkeypatch.setattr(script, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(script, "GAMES", 1)
    script.main(data=data, steps=400, seeds=1, workers=1, out=tmp_path / "out")
    found = json.loads((tmp_path / "results.json").read_text())["results"]
    assert set(found) == {"scopil", "sac"}
