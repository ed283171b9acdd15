"""Progress lines fit a narrow terminal and count the steps of this process only."""

import io

import pytest

from scopil.algos.sac import ALGORITHM as SAC
from scopil.algos.scopil import ALGORITHM as SCOPIL
from scopil.cli.waiting import counting
from scopil.terminal import Console
from scopil.train import progress
from scopil.train.progress import ProgressLines
from scopil.train.trainer import TrainStatus

NUMBERS = {
    "episode/return": -123.456,
    "episode/steps": 199.5,
    "dual/lambda": 12.3,
    "dual/constraint": -0.123,
    "alpha/value": 1e-3,
    "alpha/entropy": 0.876,
    "eval/violations": 0.025,
}


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def lines(bar: ProgressLines) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    console.print(bar._lines())
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_steps_speed_remaining_time_and_metrics(clock):
    bar = ProgressLines(SCOPIL, 1_000_000)
    assert "compiling" in lines(bar)[1]
    clock[0] = 30.0
    bar(TrainStatus(400_000, {}, None))  # resumed there: neither the steps before nor compiling count
    clock[0] = 40.0
    bar(TrainStatus(500_000, NUMBERS, None))
    first, second = lines(bar)
    assert "500,000/1,000,000" in first
    assert "10,000 steps/s" in first
    assert "0:00:50 left" in first
    assert second.split("  ") == [
        "return -123", "steps 200", "eval viol 0.025", "λ 12.3", "G -0.123", "α 0.001", "H 0.876",
    ]  # fmt: skip
    assert not any("…" in line for line in (first, second))


def test_what_happens_before_the_first_chunk_is_said_at_once(clock):
    console = Console(file=io.StringIO(), width=80)
    bar = ProgressLines(SCOPIL, 100, console)
    bar.doing("clone: learns the demonstrated actions")
    assert console.file.getvalue() == "SCOPIL  clone: learns the demonstrated actions …\n"  # type: ignore[attr-defined]
    assert lines(bar)[1] == "clone: learns the demonstrated actions …"
    bar(TrainStatus(10, NUMBERS, None))
    assert lines(bar)[1].startswith("return -123")


def test_episodes_are_counted_where_there_is_no_terminal(clock):
    console = Console(file=io.StringIO(), width=80)
    with counting("episodes played", 300, console) as advance:
        for ended in (1, 20, 30):
            clock[0] += 6.0
            advance(ended)
    assert console.file.getvalue() == "episodes played: 21 of 300\n"  # type: ignore[attr-defined]


def test_a_metric_without_a_new_value_keeps_its_last(clock):
    bar = ProgressLines(SAC, 100)
    bar(TrainStatus(10, {"episode/return": -5.0, "eval/violations": 1.0}, None))
    bar(TrainStatus(20, {"episode/return": float("nan")}, None))
    assert lines(bar)[1].split("  ") == ["return -5", "eval viol 1"]
