"""The study `field`, and the line that says what a study will take."""

import importlib
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Any

import pytest

from scopil.errors import ConfigError
from scopil.train.run import Run
from scopil_bench.runner import outlook
from scopil_bench.studies import field, find
from scopil_bench.studies.base import Task


def test_every_method_meets_every_task_with_its_defaults():
    study = find("field")
    assert len(study.cells()) == len(set(study.cells())) == len(field.OURS) * len(study.tasks) == 120
    assert not study.methods
    assert {study.spec("full", cell, 0, "demos.npz").steps for cell in study.cells() if cell.method == "icrl"} == {
        40 * 204_800
    }


def test_other_packages_add_tasks(monkeypatch):
    mine = Task(title="Mine", env="CartPole-v1")
    found: dict[str, Any] = {"mine": mine, "speed": mine}
    points = [EntryPoint(name, f"other:{name}", field.GROUP) for name in found]
    monkeypatch.setattr(EntryPoint, "load", lambda point: found[point.name])
    monkeypatch.setattr(field, "entry_points", lambda group: points if group == "scopil.tasks" else [])
    assert field.tasks() == field.ALL | {"mine": mine}  # a name of ours stays ours
    found["mine"] = "not a task"
    with pytest.raises(ConfigError, match="other:mine is a str; want a scopil_bench Task"):
        field.tasks()
    importlib.reload(field)


def begun(method: str, done: int, speed: float | None) -> Any:
    """A run of 72 000 steps after so many steps, at a speed in steps per second."""
    parts = {
        "__init__": lambda self: None,
        "timing": SimpleNamespace(last=lambda: {} if speed is None else {"steps_per_second": speed}),
        "spec": SimpleNamespace(steps=72_000, algorithm=SimpleNamespace(name=method)),
        "steps_done": done,
        "finished": done == 72_000,
    }
    made: Any = type("Begun", (Run,), parts)
    return made()


def test_the_outlook_is_at_the_speed_of_each_method():
    runs = [begun("bc", 72_000, 2_000.0), begun("bc", 0, None), begun("s-dgd", 36_000, 10.0)]
    assert outlook(runs[1:2], 1) == "1 run, 72,000 steps in all; 0 finished"
    assert outlook(runs[:1], 1) == "1 run, 72,000 steps in all; 1 finished"
    assert outlook(runs, 1) == "3 runs, 216,000 steps in all; 1 finished, 1 h 01 min left"
