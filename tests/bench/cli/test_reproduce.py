"""`scopil reproduce`: from untrained runs to the page, and (slow) with real runs that are killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import scopil
from scopil.cli import main
from scopil_bench import results
from scopil_bench.studies import running
from scopil_bench.studies.paper import expected

STABLE = ("results.json", "results.csv", "tables.md")  # equal bytes for equal runs


@pytest.fixture
def untrained(monkeypatch):
    """Every run is finished by its untrained policy, except those named in the returned set."""
    failing: set[str] = set()

    def execute(runs, workers, console, engine):
        failed = {}
        for run in runs:
            if run.folder.name in failing:
                failed[run.folder] = "error: out of luck"
            elif not run.finished:
                agent = scopil.SCOPIL(run.spec.env, run.demos(), seed=run.spec.seed, **run.spec.config)
                agent.save(run.policy_file)
                run.metrics.append({"env_steps": 0, "eval/reward": -1.0, "eval/steps": 3.0, "eval/avoidable": 1.0})
                run.timing.append({"env_steps": 0, "steps_per_second": 1.0, "seconds": 1.5})
        return failed

    monkeypatch.setattr(running, "execute_with_progress", execute)
    monkeypatch.setattr(results, "open_env", cache(results.open_env))  # calls here share compiled code
    return failing


def reproduce(out: Path, *options: str) -> int:
    return main(["reproduce", "--budget", "short", "--only", "multiple", "--out", str(out), *options])


def stable(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in STABLE]


@pytest.mark.slow
def test_from_runs_to_the_page(untrained, tmp_path, capsys, monkeypatch):
    untrained.add("scopil-1")
    assert reproduce(tmp_path / "a") == 1  # a run failed
    printed = " ".join(capsys.readouterr().out.split())
    assert "1 of 2 runs finished" in printed
    assert "failed: multiple/scopil-1: error: out of luck" in printed
    page = (tmp_path / "a" / "report.md").read_text()
    assert "multiple/scopil-1: failed (error: out of luck)" in page
    assert "| Demonstrator (40 episodes) |" in page
    assert json.loads((tmp_path / "a" / "timing.json").read_text()) == {
        "multiple/scopil-0": {"seconds": 1.5, "to_first_safe": None}
    }

    # Called again it continues, plays only what is new, and ends as a call without a failure does.
    untrained.clear()
    assert reproduce(tmp_path / "a") == 0
    assert reproduce(tmp_path / "b") == 0
    assert stable(tmp_path / "a") == stable(tmp_path / "b")
    page = (tmp_path / "b" / "report.html").read_bytes()
    for name in ("report.html", *STABLE):
        (tmp_path / "b" / name).unlink()
    assert main(["report", str(tmp_path / "b")]) == 0
    assert (tmp_path / "b" / "report.html").read_bytes()[:2000] == page[:2000]
    assert stable(tmp_path / "a") == stable(tmp_path / "b")

    assert {p.name for p in (tmp_path / "b").iterdir()} == {
        "runs", "study.json", "references.json", "timing.json", "report.html", "report.md", *STABLE
    }  # fmt: skip

    wanted: dict[str, Any] = {"setting": "multiple", "method": "scopil", "measure": "steps", "source": "test"}
    for high, code in ((200, 0), (1, 1)):
        ranges = [expected.Expectation(**wanted, high=high)]
        monkeypatch.setattr(expected, "load", lambda budget, file, ranges=ranges: (ranges, []))
        capsys.readouterr()
        assert reproduce(tmp_path / "a", "--check") == code
        assert ("outside its range: multiple, SCOPIL" in " ".join(capsys.readouterr().out.split())) == bool(code)
    assert reproduce(tmp_path / "a") == 0  # without --check


def test_another_budget_or_study_in_the_same_folder_is_refused(tmp_path, capsys):
    (tmp_path / "study.json").write_text('{"study": "paper", "budget": "short"}')
    assert main(["reproduce", "--only", "multiple", "--out", str(tmp_path)]) == 2
    assert "holds study paper" in capsys.readouterr().err
    assert main(["study", "unseen", "--out", str(tmp_path)]) == 2
    assert "not study unseen" in capsys.readouterr().err


def test_results_without_runs_are_not_replaced_by_an_empty_report(tmp_path, capsys):
    (tmp_path / "study.json").write_text('{"study": "paper", "budget": "short"}')
    (tmp_path / "results.json").write_text("{}")
    assert main(["report", str(tmp_path)]) == 2
    assert "has no run folders" in capsys.readouterr().err
    assert (tmp_path / "results.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--only", "simpel"], "simpel"),
        (["--seeds", "0"], "--seeds 0"),
        (["--workers", "-1"], "--workers"),
        (["--budget", "long"], "long"),
        (["--steps", "0"], "--steps 0"),
        (["--budget", "short", "--check"], "--check"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(options, message, tmp_path, capsys):
    assert main(["reproduce", "--out", str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_killed_five_times_the_tables_are_the_same(tmp_path):
    """The whole process group, workers included, at random moments of all methods' short runs."""
    rng = random.Random(0)

    def start(name: str) -> subprocess.Popen:
        argv = ["reproduce", "--budget", "short", "--seeds", "1", "--out", str(tmp_path / name)]
        return subprocess.Popen(
            [sys.executable, "-m", "scopil", *argv], stdout=subprocess.DEVNULL, start_new_session=True
        )

    def lines(name: str) -> int:
        return sum(len(f.read_bytes().splitlines()) for f in (tmp_path / name).glob("runs/*/*/metrics.jsonl"))

    assert start("calm").wait(3600) == 0
    for share in sorted(rng.uniform(0.02, 0.9) for _ in range(5)):
        child = start("killed")
        while child.poll() is None and lines("killed") < share * lines("calm"):
            time.sleep(0.05)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    assert start("killed").wait(3600) == 0
    assert stable(tmp_path / "calm") == stable(tmp_path / "killed")
