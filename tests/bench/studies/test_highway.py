"""highway-env in the external study: observations, the driver's actions and its rule."""

import numpy as np
import pytest

from scopil.data.record import record
from scopil.eval.measures import average, measure_all
from scopil.eval.rules import load_rules, with_rules
from scopil_bench.studies.external import highway
from scopil_bench.studies.external.highway import FASTER, LEFT, RIGHT, SLOWER, STAY, drive, headway
from scopil_bench.studies.external.study import STUDY


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
def test_the_driver_is_cautious(obs, action):
    assert drive(obs) == action


def test_the_rule_is_a_second_and_a_half():
    assert headway(None, 0, seen((100, 37, 100)))
    assert not headway(None, 0, seen((30, 38, 30)))


def test_lanes_are_seen_as_the_road_has_them():
    """Compared with the simulator's own search for neighbours."""
    pytest.importorskip("highway_env")
    env = highway.Highway()
    env.reset(seed=5)
    compared = 0
    for action in (RIGHT, STAY, LEFT, STAY, SLOWER, STAY):
        obs = env.step(action)[0]
        assert env.observation_space.contains(obs)
        road = env.unwrapped.road  # pyright: ignore[reportAttributeAccessIssue]
        car = env.unwrapped.vehicle  # pyright: ignore[reportAttributeAccessIssue]
        front, _ = road.neighbour_vehicles(car, car.lane_index)
        if front is not None and front.position[0] - car.position[0] < 100:
            assert obs["ahead"][1] == pytest.approx(front.position[0] - car.position[0], abs=1e-3)
            assert obs["closing"][1] == pytest.approx(car.velocity[0] - front.velocity[0], abs=1e-3)
            compared += 1
    assert compared > 2


def test_the_study_counts_both_rules():
    pytest.importorskip("highway_env")
    shown = record(highway.ENV, drive, 1)
    rules = load_rules(STUDY.tasks["highway"].rules)
    found = average(measure_all(with_rules(shown.episodes, rules, shown)))
    assert (found["violations/collision"], found["violations/headway"]) == (0, 0)
