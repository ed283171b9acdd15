"""The example with highway-env: what the driver sees, what he does, and that its commands name what is there."""

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from scopil.algos import find
from scopil.cli import main
from scopil.user_code import load_module

FOLDER = Path(__file__).parents[2] / "examples" / "highway"
LEFT, STAY, RIGHT, FASTER, SLOWER = range(5)


@pytest.fixture
def here(monkeypatch):
    monkeypatch.chdir(FOLDER)
    before = set(sys.modules)
    yield FOLDER
    for name in set(sys.modules) - before:
        if name in ("road", "driver", "rules"):
            del sys.modules[name]


def seen(ahead, speed=25.0, lane=1.0, behind=(100.0, 100.0, 100.0)):
    parts = {"lane": [lane], "speed": [speed, 0], "ahead": ahead, "closing": [0] * 3, "behind": behind}
    return {name: np.array(part, np.float32) for name, part in (parts | {"gaining": [0] * 3}).items()}


@pytest.mark.parametrize(
    ("obs", "action"),
    [
        (seen((100, 100, 100)), STAY),
        (seen((100, 100, 100), speed=20), FASTER),
        (seen((100, 40, 100)), RIGHT),
        (seen((100, 40, 30)), LEFT),
        (seen((100, 40, 100), behind=(100, 100, 5)), LEFT),
        (seen((30, 40, 30)), SLOWER),
        (seen((100, 40, 100), lane=1.4), SLOWER),  # not while changing lanes
        (seen((0, 40, 30), speed=20, lane=0), STAY),  # 20 m/s is as slow as the car goes
    ],
)
def test_the_driver_is_cautious(here, obs, action):
    assert load_module("driver.py", "driver.py").act(obs) == action


def test_the_rule_is_a_second_and_a_half(here):
    headway = load_module("rules.py", "rules.py").headway
    assert headway(None, 0, seen((100, 37, 100)))
    assert not headway(None, 0, seen((30, 38, 30)))


def test_the_study_names_what_is_there(here):
    study = tomllib.loads((here / "study.toml").read_text())
    assert (here / study["rules"]).exists()
    assert (here / study["env"].partition(":")[0]).exists()
    assert all(find(method["algorithm"]) for method in study["methods"].values())


def test_lanes_are_seen_as_the_road_has_them(here, tmp_path, capsys):
    """By the simulator's own search for neighbours, which shares nothing with ours."""
    pytest.importorskip("highway_env")
    env = load_module("road.py", "road.py").Highway()
    env.reset(seed=5)
    compared = 0
    for action in (RIGHT, STAY, LEFT, STAY, SLOWER, STAY):
        obs = env.step(action)[0]
        assert env.observation_space.contains(obs)
        car, road = env.unwrapped.vehicle, env.unwrapped.road
        front, _ = road.neighbour_vehicles(car, car.lane_index)
        if front is not None and front.position[0] - car.position[0] < 100:
            assert obs["ahead"][1] == pytest.approx(front.position[0] - car.position[0], abs=1e-3)
            assert obs["closing"][1] == pytest.approx(car.velocity[0] - front.velocity[0], abs=1e-3)
            compared += 1
    assert compared > 2
    record = [
        "demos",
        "record",
        "--env",
        "road.py:Highway",
        "--policy",
        "driver.py:act",
        "--rules",
        "rules.py",
    ]
    assert main([*record, "--episodes", "1", "--out", str(tmp_path / "one.npz")]) == 0
    assert "violations per episode: collision 0, headway 0" in capsys.readouterr().out
