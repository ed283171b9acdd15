"""The executor with real child processes that do not train."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from samples import marble_episodes
from scopil.data import storage
from scopil.errors import ConfigError
from scopil.files import lock
from scopil.registry import find
from scopil.terminal import Console
from scopil.train.run import Run, RunSpec, last_output
from scopil_bench import local, runner

ENV = "scopil/MarbleMaze-Simple-v0"
FINISH = "import pathlib, sys; pathlib.Path(sys.argv[1], 'policy.safetensors').write_bytes(b'')"
FAIL = "import sys; print('error: out of luck'); sys.exit(2)"


@pytest.fixture
def runs(tmp_path) -> list[Run]:
    storage.write(marble_episodes(steps=3, episodes=2), tmp_path / "demos.npz")
    return [runner.prepare(tmp_path / "simple" / f"scopil-{i}", spec(tmp_path, seed=i)) for i in range(4)]


def spec(folder: Path, **changes) -> RunSpec:
    fields: dict[str, Any] = {"algorithm": find("scopil"), "env": ENV, "demos": str(folder / "demos.npz")}
    return RunSpec(**(fields | {"steps": 1000, "config": {"hidden": [8]}} | changes))


@pytest.fixture
def pretend(monkeypatch) -> dict[str, str]:
    """The scripts of children, by folder name; the others finish."""
    scripts: dict[str, str] = {}
    real = subprocess.Popen

    def spawn(command: list[str], **options) -> subprocess.Popen:
        folder = Path(command[-1])
        return real([sys.executable, "-S", "-c", scripts.get(folder.name, FINISH), str(folder)], **options)

    monkeypatch.setattr(local.subprocess, "Popen", spawn)
    monkeypatch.setattr(runner, "POLL", 0.01)
    return scripts


def test_a_failed_run_does_not_stop_the_others_and_finished_ones_are_kept(runs, pretend):
    pretend["scopil-1"] = FAIL
    runs[0].policy_file.write_bytes(b"mine")
    most = 0

    def observe(going, failed):
        nonlocal most
        most = max(most, len(going))

    assert runner.execute(runs, 2, observe) == {runs[1].folder: "error: out of luck"}
    assert [run.finished for run in runs] == [True, False, True, True]
    assert most <= 2
    del pretend["scopil-1"]
    assert runner.execute(runs, 2) == {}
    assert runs[1].finished
    assert runs[0].policy_file.read_bytes() == b"mine"
    assert not (runs[0].folder / local.LOG).exists()


def test_a_killed_run_names_the_signal(runs, pretend):
    pretend["scopil-0"] = "import os; print('half of it', flush=True); os.kill(os.getpid(), 9)"
    assert runner.execute(runs[:1]) == {runs[0].folder: "killed by signal 9 (out of memory?) after: half of it"}


@pytest.mark.parametrize("call", [runner.execute, runner.execute_with_progress])
def test_no_workers_are_refused(call, runs):
    runs[0].timing.append({"env_steps": 400, "steps_per_second": 10.0})
    with pytest.raises(ConfigError, match="workers"):
        call(runs, 0)


def test_a_run_that_another_process_trains_is_waited_for(runs, pretend):
    """As after only the parent of a worker was killed."""
    run = runs[0]
    held = lock(run.folder / ".lock")
    done = threading.Thread(target=runner.execute, args=(runs[:2],))
    done.start()
    while not runs[1].finished:
        assert done.is_alive()
    assert not run.finished
    assert not (run.folder / local.LOG).exists()
    run.policy_file.write_bytes(b"theirs")
    held.close()
    done.join(20)
    assert not done.is_alive()
    assert run.policy_file.read_bytes() == b"theirs"


LOSE = """
import pathlib, sys
folder = pathlib.Path(sys.argv[1])
(folder / "lost").touch()
while not (folder / "taken").exists(): pass
print("error: is being trained by another process.")
sys.exit(2)
"""


def test_a_run_that_another_study_took_first_is_waited_for(runs, pretend):
    run = runs[0]
    pretend["scopil-0"] = LOSE
    failed: list[dict[Path, str]] = []
    study = threading.Thread(target=lambda: failed.append(runner.execute(runs[:1])))
    study.start()
    while not (run.folder / "lost").exists():
        assert study.is_alive()
    with lock(run.folder / ".lock"):
        (run.folder / "taken").touch()
        while "trained by another" not in last_output(run.folder):
            assert study.is_alive()
        study.join(0.1)
        assert study.is_alive()
        run.policy_file.write_bytes(b"theirs")
    study.join(20)
    assert failed == [{}]


SLOW_TO_STOP = """
import pathlib, signal, sys, time
def stop(*_):
    time.sleep(0.5)
    pathlib.Path(sys.argv[1], "saved").touch()
    sys.exit(130)
signal.signal(signal.SIGTERM, stop)
pathlib.Path(sys.argv[1], "up").touch()
time.sleep(60)
"""


def test_stopping_waits_until_the_children_have_saved(runs, pretend):
    pretend["scopil-0"] = pretend["scopil-1"] = SLOW_TO_STOP

    def observe(going, failed):
        if all((run.folder / "up").exists() for run in runs[:2]):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.execute(runs[:2], 2, observe)
    assert all((run.folder / "saved").exists() for run in runs[:2])


def test_progress_reports_every_end(runs, pretend, capsys):
    pretend["scopil-3"] = FAIL
    runner.execute_with_progress(runs, 2, Console(width=100))
    printed = capsys.readouterr().out
    assert "simple/scopil-0 finished (" in printed
    assert "simple/scopil-3 failed: error: out of luck (" in printed
    assert " 3,000/4,000 steps" in printed


def test_another_spec_in_the_same_folder_is_refused(runs, tmp_path):
    folder = runs[0].folder
    assert runner.prepare(folder, spec(tmp_path, seed=0)).note() == runs[0].note()
    with pytest.raises(ConfigError, match="steps = 1000, not 2000"):
        runner.prepare(folder, spec(tmp_path, steps=2000))
    with pytest.raises(ConfigError, match=r"hidden = \[8\], not \[9\]"):
        runner.prepare(folder, spec(tmp_path, config={"hidden": (9,)}))


def test_time_left_follows_the_speeds_so_far(runs):
    assert runner.remaining_seconds(runs, 2) is None
    line = {"env_steps": 400, "steps_per_second": 10.0}
    runs[0].timing.path.write_text(json.dumps(line) + "\n" + '{"env_steps": 500, "ste')  # half a line
    runs[1].policy_file.write_bytes(b"")
    assert [run.steps_done for run in runs] == [400, 1000, 0, 0]
    # 600 + 1000 + 1000 steps at 10 a second by two workers; but no run takes less than its own time.
    assert runner.remaining_seconds(runs, 2) == pytest.approx(130.0)
    assert runner.remaining_seconds(runs, 20) == pytest.approx(100.0)
