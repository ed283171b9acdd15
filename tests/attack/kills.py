"""Processes killed at random moments while they write, and the files that remain.

A child writes one version of a file after the other and reports each finished one through a pipe, until it is killed.
Then every file must be complete and hold the last reported version, or the next one. The child is a fork of this
process, which has imported everything and started no thread, so a kill costs milliseconds.
"""

import itertools
import json
import os
import random
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hosts import Walk
from samples import small_set
from scopil.data import storage
from scopil.data.dataset import Demonstrations
from scopil.serialization import read_arrays, save_tree
from scopil.train.checkpoint import Checkpoints
from scopil.train.logging import JsonLines
from scopil_bench import results
from scopil_bench.cache import read_episodes, read_evaluation, write_evaluation
from scopil_bench.summaries import Cell, Result
from scopil_studio.recorder import Recorder

PATIENCE = 60.0  # seconds after which a child counts as hanging


@dataclass(frozen=True)
class Writer:
    """`begin` opens the files of an earlier process and returns a function that writes version n; `found` reads the
    newest version back, and raises if a file is incomplete."""

    begin: Callable[[], Callable[[int], object]]
    found: Callable[[], int]  # −1: no file yet


@dataclass
class Kills:
    """The result of a campaign; `done` counts versions written, or commands that ended and were compared."""

    done_name: str
    kills: int = 0
    amid: int = 0  # kills that left a temporary file: they hit a write
    done: int = 0
    faults: list[str] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        lost = {"lost or damaged": len(self.faults), "faults": self.faults}
        return {"kills": self.kills, "amid a write": self.amid, self.done_name: self.done} | lost


def campaign(writer: Writer, folder: Path, kills: int, seed: int = 0) -> Kills:
    rng, score, done, took = random.Random(seed), Kills("versions written"), -1, 0.01
    for _ in range(kills):
        reported, took = _one_child(writer, done + 1, rng.choice([0, 0, 1]), rng.random(), took)
        score.kills += 1
        half = list(folder.rglob("*.tmp"))
        score.amid += bool(half)
        for file in half:
            file.unlink()
        try:
            on_disk = writer.found()
        except Exception as error:
            score.faults.append(f"after version {reported}: {type(error).__name__}: {error}")
            break
        if not max(reported, done) <= on_disk <= max(reported, done) + 1:
            score.faults.append(f"version {on_disk} on disk; {reported} was reported")
        done = on_disk
    score.done = done + 1
    return score


def _one_child(writer: Writer, first: int, whole: int, part: float, took: float) -> tuple[int, float]:
    """A process killed after `whole` versions and a `part` of the time of the next one. Returns the last version it
    reported (first − 1: none) and the seconds per version."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write = writer.begin()
            os.write(theirs, (first - 1).to_bytes(8, "little", signed=True))
            for version in itertools.count(first):
                write(version)
                os.write(theirs, version.to_bytes(8, "little", signed=True))
        finally:
            os._exit(1)  # never returns into the caller's code
    os.close(theirs)
    reported, begun = first - 1, 0.0
    for number in range(whole + 1):
        assert select.select([ours], [], [], PATIENCE)[0], "the child hangs"
        reported = int.from_bytes(os.read(ours, 8), "little", signed=True)
        begun = time.monotonic() if number == 0 else begun
    took = (time.monotonic() - begun) / whole if whole else took
    time.sleep(part * took)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child ended before it was killed"
    while data := os.read(ours, 8):
        reported = int.from_bytes(data, "little", signed=True)
    os.close(ours)
    return reported, took


def checkpoints(folder: Path) -> Writer:
    kept = Checkpoints(folder)

    def write(version: int) -> None:
        kept.save(version, {"a": np.full(20_000, version), "b": np.float32(version)}, {"env_steps": version})

    def found() -> int:
        numbers = []
        for file in kept.files():  # the older one too
            arrays, note = read_arrays(file)
            assert np.all(arrays["['a']"] == note["env_steps"])
            numbers.append(note["env_steps"])
        return max(numbers, default=-1)

    return Writer(lambda: write, found)


def metrics(folder: Path) -> Writer:
    lines = JsonLines(folder / "metrics.jsonl")

    def begin() -> Callable[[int], object]:
        folder.mkdir(exist_ok=True)
        lines.keep(lambda row: True)  # as in a resumed run
        return lambda version: lines.append({"env_steps": version, "x": version / 3})

    def found() -> int:
        rows = lines.rows()
        assert rows == [{"env_steps": n, "x": n / 3} for n in range(len(rows))]
        return len(rows) - 1

    return Writer(begin, found)


def policies(folder: Path) -> Writer:
    file = folder / "policy.safetensors"

    def found() -> int:
        if not file.exists():
            return -1
        arrays, note = read_arrays(file)
        assert np.all(arrays["['a']"] == note["n"])
        return note["n"]

    return Writer(lambda: lambda n: save_tree(file, {"a": np.full(50_000, n)}, {"n": n}), found)


def evaluations(folder: Path) -> Writer:
    folder.mkdir()
    episodes = {"greedy/unseen": list(small_set((300, 200)))}

    def write(version: int) -> None:
        found = {"env_steps": version, "measures": {"greedy/unseen": [{"reward": 1.0}]}, "extra": {}}
        write_evaluation(folder, {"policy": str(version)}, found, episodes)

    def found() -> int:
        read_episodes(folder)
        kept = read_evaluation(folder)
        assert kept is not None or not (folder / "evaluation.json").exists()
        return -1 if kept is None else kept["env_steps"]

    return Writer(lambda: write, found)


def studies(folder: Path) -> Writer:
    """results.json and results.csv."""

    def write(version: int) -> None:
        key = "greedy/unseen"
        run = Result(
            cell=Cell("simple", "sac"), seed=0, steps=version, first_safe=None, extra={},
            means={key: {"reward": 1.0}}, episodes={key: 3}, violating={key: 0},
        )  # fmt: skip
        results.save(folder, "paper", "paper", [run] * 20, {})

    def found() -> int:
        if not (folder / "results.json").exists():
            return -1
        loaded = json.loads((folder / "results.json").read_bytes())["runs"]
        text = (folder / "results.csv").read_text() if (folder / "results.csv").exists() else ""
        assert not text or text.count("\n") == 21
        return loaded[0]["steps"]

    return Writer(lambda: write, found)


class Drawn(Walk):
    """Ends after two steps and has frames."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    render_mode = "rgb_array"

    def step(self, action):
        obs, reward, *_, info = super().step(action)
        return obs, reward, self.clock >= 2, False, info

    def render(self) -> Any:
        return np.zeros((1, 1, 3), np.uint8)


def recordings(folder: Path) -> Writer:
    """`scopil play`: a kept episode is in the file before the next one begins."""
    file = folder / "recorded.npz"

    def begin() -> Callable[[int], object]:
        recorder = Recorder(Drawn(), file)

        def write(version: int) -> None:
            recorder.step(1)
            recorder.step(0)
            recorder.keep()

        return write

    return Writer(begin, lambda: len(storage.read(file)) - 1 if file.exists() else -1)


def demonstrations(folder: Path) -> Writer:
    file = folder / "demos.npz"
    made = small_set((50, 60))

    def write(version: int) -> None:
        storage.write(Demonstrations(**{**vars(made), "about": {"version": version}}), file)

    return Writer(lambda: write, lambda: storage.read(file).about["version"] if file.exists() else -1)


WRITERS: dict[str, Callable[[Path], Writer]] = {
    "checkpoints": checkpoints,
    "metrics": metrics,
    "policies": policies,
    "evaluations": evaluations,
    "results of studies": studies,
    "recordings": recordings,
    "demonstrations": demonstrations,
}


if __name__ == "__main__":  # kills of every kind of writer
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        scores = {
            name: campaign(make(folder), folder, int(sys.argv[1]))
            for name, make in WRITERS.items()
            for folder in [Path(place, name.replace(" ", "-"))]
        }
    print(json.dumps({name: score.row() for name, score in scores.items()}))
