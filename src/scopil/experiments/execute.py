"""A list of runs on an engine: local processes, or a Ray cluster.

Stopping at any moment loses nothing: call again, finished runs are kept, unfinished ones go on, and a failed one does
not take the others with it.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from scopil.errors import ConfigError
from scopil.experiments.local import Local, last_words
from scopil.train.run import Run, RunSpec

POLL = 0.3  # seconds
LAST_LINE = 4_096  # bytes that hold it


@runtime_checkable
class Job(Protocol):
    """One run under way."""

    def poll(self) -> int | None: ...
    def stop(self) -> None: ...
    def wait(self) -> None: ...


@runtime_checkable
class Engine(Protocol):
    """Where runs are trained."""

    def start(self, folder: Path) -> Job: ...


def prepare(folder: Path, spec: RunSpec) -> Run:
    """The run in `folder`: found again, or begun."""
    if not (folder / "run.json").exists():
        return Run.create(folder, spec)
    found, wanted = Run.open(folder), Run(folder, spec)
    before, now = _flat(found.note()), _flat(wanted.note())
    if odd := [
        f"{k} = {before.get(k)}, not {now.get(k)}" for k in before | now if before.get(k) != now.get(k)
    ]:
        raise ConfigError(
            f"{folder} was begun with {', '.join(odd[:3])}: name another folder, or remove this one."
        )
    return found


def _flat(note: dict[str, Any]) -> dict[str, Any]:
    note = json.loads(json.dumps(note))  # tuples become the lists that files hold
    return note | note.pop("config")


def execute(
    runs: Sequence[Run],
    workers: int = 2,
    observe: Callable[[Collection[Path], dict[Path, str]], None] = lambda going, failed: None,
    engine: Engine | None = None,
) -> dict[Path, str]:
    """Train every unfinished run, at most `workers` at a time. Returns the last words of those that failed.

    A run that another process is training (a worker outlives a killed parent) is left to it, and waited for.
    """
    engine = engine or Local()
    waiting = [run for run in runs if not run.finished]
    going: dict[Path, Job] = {}
    failed: dict[Path, str] = {}
    try:
        while waiting or going:
            waiting = [run for run in waiting if not run.finished]
            # Busy first: a run finishes before its lock is let go.
            free = (run for run in list(waiting) if not _busy(run) and not run.finished)
            while len(going) < workers and (run := next(free, None)):
                waiting.remove(run)
                going[run.folder] = engine.start(run.folder)
            time.sleep(POLL)
            for folder, job in list(going.items()):
                if (code := job.poll()) is not None:
                    del going[folder]
                    if code:
                        failed[folder] = last_words(folder)
            observe(going, failed)
    finally:
        for job in going.values():
            job.stop()
        for job in going.values():
            job.wait()
    return failed


def execute_with_progress(
    runs: Sequence[Run], workers: int = 2, console: Console | None = None, engine: Engine | None = None
) -> dict[Path, str]:
    """`execute`, with a bar for everything together and one for each run under way, and a line for each that ends."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps {task.fields[left]}"),
        console=console,
    )
    tasks = {
        run.folder: bar.add_task(name(run), total=run.spec.steps, visible=False, left="") for run in runs
    }
    everything = bar.add_task("all runs", total=sum(run.spec.steps for run in runs), left="")
    told = {run.folder for run in runs if run.finished}

    def look(going: Collection[Path], failed: dict[Path, str]) -> None:
        done = {run.folder: steps_done(run) for run in runs}
        left = remaining_seconds(runs, workers)
        for run in runs:
            bar.update(tasks[run.folder], completed=done[run.folder], visible=run.folder in going)
            if run.folder not in told and (run.finished or run.folder in failed):
                told.add(run.folder)
                end = f"failed: {failed[run.folder]}" if run.folder in failed else "finished"
                words = f"{name(run)} {end} ({len(told)} of {len(runs)}{_words(left)})"
                bar.console.print(words, markup=False, highlight=False)
        bar.update(everything, completed=sum(done.values()), left=_words(left))

    with bar:
        look((), {})
        return execute(runs, workers, look, engine)


def name(run: Run) -> str:
    """Setting and method: `simple/scopil-3`."""
    return "/".join(run.folder.parts[-2:])


def steps_done(run: Run) -> int:
    last = _last_timing(run)
    return run.spec.steps if run.finished else min(int(last.get("env_steps", 0)), run.spec.steps)


def remaining_seconds(runs: Sequence[Run], workers: int) -> float | None:
    """What is left over what each algorithm was last seen to do; one not seen yet is taken for the average."""
    rates: dict[str, list[float]] = {}
    for run in runs:
        if rate := _last_timing(run).get("steps_per_second"):
            rates.setdefault(run.spec.algorithm, []).append(rate)
    if not rates:
        return None
    mean = {algorithm: sum(seen) / len(seen) for algorithm, seen in rates.items()}
    typical = sum(mean.values()) / len(mean)
    left = [(r.spec.steps - steps_done(r)) / mean.get(r.spec.algorithm, typical) for r in runs]
    return max(sum(left) / workers, *left, 0.0)


def _last_timing(run: Run) -> dict[str, Any]:
    """The last whole line, without reading the rest: this is asked three times a second of every run."""
    try:
        with run.timing.path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_LINE))
            lines = file.read().splitlines(keepends=True)
    except FileNotFoundError:
        return {}
    whole = [line for line in lines if line.endswith(b"\n")]
    return json.loads(whole[-1]) if whole else {}


def _words(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes = round(seconds / 60)
    return f", {minutes // 60} h {minutes % 60:02d} min left" if minutes >= 60 else f", {minutes} min left"


def _busy(run: Run) -> bool:
    """Whether a process is training the run now."""
    lock = run.folder / ".lock"
    if not lock.exists():
        return False
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
