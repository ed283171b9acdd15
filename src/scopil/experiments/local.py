"""A list of runs on local processes, one core each.

Every run is its own `scopil train --resume`, so stopping at any moment loses nothing: call again, finished runs are
kept, unfinished ones go on, and a failed one does not take the others with it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from scopil.train.run import Run, RunSpec

LOG = "log.txt"
POLL = 0.3  # seconds


def prepare(folder: Path, spec: RunSpec) -> Run:
    """The run in `folder`: found again, or begun."""
    return Run.open(folder) if (folder / "run.json").exists() else Run.create(folder, spec)


def execute(
    runs: Sequence[Run], workers: int = 2, observe: Callable[[], None] = lambda: None
) -> dict[Path, str]:
    """Train every unfinished run, at most `workers` at a time. Returns the last words of those that failed."""
    waiting = [run for run in runs if not run.finished]
    going: dict[Path, subprocess.Popen] = {}
    failed: dict[Path, str] = {}
    try:
        while waiting or going:
            while waiting and len(going) < workers:
                run = waiting.pop(0)
                going[run.folder] = _spawn(run.folder)
            time.sleep(POLL)
            for folder, process in list(going.items()):
                if process.poll() is not None:
                    del going[folder]
                    if process.returncode:
                        failed[folder] = _last_words(folder)
            observe()
    finally:
        for process in going.values():
            process.terminate()  # saves a checkpoint and stops
        for process in going.values():
            process.wait()
    return failed


def execute_with_progress(runs: Sequence[Run], workers: int = 2) -> dict[Path, str]:
    """`execute`, with a bar for every run."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps"),
        TimeRemainingColumn(),
    )
    tasks = {run.folder: bar.add_task(run.folder.name, total=run.spec.steps) for run in runs}

    def look() -> None:
        for run in runs:
            rows = run.metrics.rows()
            if rows:
                bar.update(tasks[run.folder], completed=min(rows[-1]["env_steps"], run.spec.steps))

    with bar:
        look()
        return execute(runs, workers, look)


def _spawn(folder: Path) -> subprocess.Popen:
    one_thread = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1"}
    with (folder / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "scopil", "train", "--resume", str(folder)],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=os.environ | one_thread,
        )


def _last_words(folder: Path) -> str:
    lines = (folder / LOG).read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
