"""Train a list of runs in local processes or on a Ray cluster.

Training can be stopped at any time. The next call keeps finished runs and continues unfinished ones. A failed run does
not stop the others.
"""

import json
import signal
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rich.progress import BarColumn, Progress, TextColumn

from scopil.config import code_in
from scopil.data import storage
from scopil.errors import ConfigError, DatasetError, ScopilError
from scopil.files import is_locked
from scopil.registry import find
from scopil.terminal import Console
from scopil.train.code import FOLDER as CODE
from scopil.train.run import Run, RunSpec, last_output
from scopil_bench.local import Local

POLL = 0.3  # seconds


@runtime_checkable
class Job(Protocol):
    """One run in progress. `poll` returns the exit code, or None while the run is in progress."""

    def poll(self) -> int | None: ...
    def stop(self) -> None: ...
    def wait(self) -> None: ...


@runtime_checkable
class Engine(Protocol):
    """Starts runs."""

    def start(self, folder: Path, trust_env: bool) -> Job: ...


def prepare(folder: Path, spec: RunSpec) -> Run:
    """Open or create the run in `folder`. Raises `ConfigError` if its settings or demonstrations differ from `spec`."""
    if not (folder / "run.json").exists():
        Run.create(folder, spec).env().close()  # a created run keeps its demonstrations and its environment in memory
        return Run.open(folder, spec.algorithm, trust_env=True)
    found, wanted = Run.open(folder), Run(folder, spec)
    # The JSON round trip turns tuples into lists, as in run.json. The settings are compared one by one.
    notes = [json.loads(json.dumps(run.note())) for run in (found, wanted)]
    before, now = (note | note.pop("config") for note in notes)
    if odd := [f"{k} = {before.get(k)}, not {now.get(k)}" for k in before | now if before.get(k) != now.get(k)]:
        raise ConfigError(f"{folder} was created with {', '.join(odd[:3])}: name another folder, or remove this one.")
    features = code_in(spec.config)
    for role, name in (("env", spec.env), ("features", features)):
        if found.code is not None and found.code.files and not found.code.is_unchanged(role):
            changed = f"{name} has changed: it is not the code in {folder / CODE}, which the run was created with"
            raise ConfigError(f"{changed}. Restore it, or name another folder.")
    found.trust_if_named(spec.env, spec.rules, features)
    _refuse_changed_demos(found, wanted)
    wanted.env().close()
    return found


def _refuse_changed_demos(found: Run, wanted: Run) -> None:
    """Compare the run's copy of its demonstrations with their source: all runs of a plan need the same ones."""
    if (kept := found.demos()) is None or wanted.spec.demos is None:
        return
    try:
        now = storage.load_demos(wanted.spec.demos, wanted.env())
    except DatasetError:
        return  # the source is gone; the copy is used
    if now.digest != kept.digest:
        changed = f"{wanted.spec.demos} has changed: it is not {found.demos_file}, which the run learned from"
        raise ConfigError(f"{changed}. Restore it, or name another folder.")


def train_runs(
    out: str | Path,
    algorithms: Sequence[str],
    env: str,
    demos: str | None = None,
    *,
    steps: int,
    seeds: int = 1,
    workers: int = 2,
    **options: Any,
) -> list[Run]:
    """Train several algorithms, each run in its own process. Another call continues unfinished runs.

    Args:
        out: the runs go to `out/<algorithm>-<seed>`.
        algorithms: names, as on the command line.
        env: a Gymnasium id.
        demos: a shipped set, a file or `minari:ID`.
        steps: environment steps per run.
        seeds: runs per algorithm.
        workers: runs at a time, one core each.
        options: further fields of `RunSpec`, such as `checkpoint_every`.
    """
    runs = [
        prepare(
            Path(out) / f"{name}-{seed}",
            RunSpec(algorithm=find(name), env=env, demos=demos, seed=seed, steps=steps, **options),
        )
        for seed in range(seeds)
        for name in algorithms
    ]
    if failed := execute_with_progress(runs, workers):
        raise ScopilError("; ".join(f"{folder} failed: {line}" for folder, line in failed.items()))
    return runs


def execute(
    runs: Sequence[Run],
    workers: int = 2,
    observe: Callable[[Collection[Path], dict[Path, str]], None] = lambda going, failed: None,
    engine: Engine | None = None,
) -> dict[Path, str]:
    """Train every unfinished run, at most `workers` at a time. Returns the last log line of each failed run, by folder.

    If another process trains a run (a worker may outlive a killed parent), this function waits for that process.
    """
    if workers < 1:
        raise ConfigError(f"workers = {workers}; want at least 1.", setting="workers")
    engine = engine or Local()
    waiting, by_folder = [run for run in runs if not run.finished], {run.folder: run for run in runs}
    going: dict[Path, Job] = {}
    failed: dict[Path, str] = {}
    observe(going, failed)
    try:
        while waiting or going:
            waiting = [run for run in waiting if not run.finished]
            # The lock must be tested before `finished`: a run is marked finished before its lock is released.
            free = (run for run in list(waiting) if not is_locked(run.folder / ".lock") and not run.finished)
            while len(going) < workers and (run := next(free, None)):
                waiting.remove(run)
                going[run.folder] = engine.start(run.folder, run.trust_env)
            time.sleep(POLL)
            for folder, job in list(going.items()):
                if (code := job.poll()) is not None:
                    del going[folder]
                    if code and (is_locked(folder / ".lock") or by_folder[folder].finished):
                        waiting.append(by_folder[folder])  # another process took the run first: wait for it
                    elif code:
                        failed[folder] = _failure(code, folder)
            observe(going, failed)
    finally:
        for job in going.values():
            job.stop()
        for job in going.values():
            job.wait()
    return failed


def _failure(code: int, folder: Path) -> str:
    if code > 0:
        return last_output(folder)
    guess = " (out of memory?)" if -code == signal.SIGKILL else ""
    return f"killed by signal {-code}{guess} after: {last_output(folder)}"


def execute_with_progress(
    runs: Sequence[Run], workers: int = 2, console: Console | None = None, engine: Engine | None = None
) -> dict[Path, str]:
    """`execute` with a progress bar for the total and for each current run, and a line for each run that ends."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps {task.fields[left]}"),
        console=console,
    )
    tasks = {run.folder: bar.add_task(name(run), total=run.spec.steps, visible=False, left="") for run in runs}
    everything = bar.add_task("all runs", total=sum(run.spec.steps for run in runs), left="")
    reported = {run.folder for run in runs if run.finished}

    def show(going: Collection[Path], failed: dict[Path, str]) -> None:
        done = {run.folder: run.steps_done for run in runs}
        left = remaining_seconds(runs, workers)
        for run in runs:
            bar.update(tasks[run.folder], completed=done[run.folder], visible=run.folder in going)
            if run.folder not in reported and (run.finished or run.folder in failed):
                reported.add(run.folder)
                end = f"failed: {failed[run.folder]}" if run.folder in failed else "finished"
                words = f"{name(run)} {end} ({len(reported)} of {len(runs)}{_words(left)})"
                bar.console.print(words, highlight=False)
        bar.update(everything, completed=sum(done.values()), left=_words(left))

    with bar:
        return execute(runs, workers, show, engine)


def name(run: Run) -> str:
    """Task, method and seed, for example `simple/scopil-3`."""
    return "/".join(run.folder.parts[-2:])


def remaining_seconds(runs: Sequence[Run], workers: int) -> float | None:
    """Remaining steps divided by the last speed of each algorithm; the average speed if an algorithm has none yet."""
    rates: dict[str, list[float]] = {}
    for run in runs:
        if rate := run.timing.last().get("steps_per_second"):
            rates.setdefault(run.spec.algorithm.name, []).append(rate)
    if not rates:
        return None
    mean = {algorithm: sum(seen) / len(seen) for algorithm, seen in rates.items()}
    typical = sum(mean.values()) / len(mean)
    left = [(r.spec.steps - r.steps_done) / mean.get(r.spec.algorithm.name, typical) for r in runs]
    return max(sum(left) / workers, *left, 0.0)


def outlook(runs: Sequence[Run], workers: int) -> str:
    """One line: the size of a study, and the time that is left at the speed so far."""
    count, finished = len(runs), sum(run.finished for run in runs)
    steps = sum(run.spec.steps for run in runs)
    said = f"{count} run{'s' * (count != 1)}, {steps:,} steps in all; {finished} finished"
    return said + (_words(remaining_seconds(runs, workers)) if finished < count else "")


def _words(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes = round(seconds / 60)
    return f", {minutes // 60} h {minutes % 60:02d} min left" if minutes >= 60 else f", {minutes} min left"
