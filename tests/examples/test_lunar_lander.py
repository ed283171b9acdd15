"""The LunarLander example runs, resumes, and compares like with like."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("Box2D")
EXAMPLE = Path(__file__).parents[2] / "examples" / "lunar_lander.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("lunar_lander", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.DEMONSTRATIONS, module.GAMES = 3, 2
    return module


def test_the_controller_lands_and_hardly_breaks_its_rules(example):
    demos = example.demonstrate()
    assert all(e.total_reward >= example.LANDED for e in demos)
    found = example.shown(demos)
    legs = [(e.observations[:-1, 6:8].max(axis=1) > 0) & (e.actions != 0) for e in demos]
    tilted = [np.abs(e.observations[1:, 4]) > example.TILT for e in demos]
    assert found["violations/engine"] == np.mean([one.sum() for one in legs])
    assert found["violations/tilt"] == np.mean([one.sum() for one in tilted])
    assert found["violations"] == pytest.approx(found["violations/engine"] + found["violations/tilt"])


@pytest.mark.slow
def test_the_table(example, tmp_path, capsys):
    results = tmp_path / "results.json"
    for _ in range(2):  # the second time there is nothing left to train
        found = example.main(steps=600, seeds=1, out=tmp_path / "out", results=results)
        assert set(found["runs"]) == {"scopil", "sac"}
    assert "controller" in capsys.readouterr().out
    assert json.loads(results.read_text())["runs"]["sac"][0]["steps"] > 0
