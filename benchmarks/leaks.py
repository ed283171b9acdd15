"""Memory, descriptors, threads and temporary files of a long process.

    python benchmarks/leaks.py            the chunks of one day, 1 000 evaluations, 100 agents: about half an hour
    python benchmarks/leaks.py 0.1        a tenth of it

A chunk of 5 000 steps takes 1.3 seconds, so that a day has 67 000. Here a chunk has one step, with everything that a
run does around it: rows, TensorBoard, checkpoints, evaluations. After a warm-up, usage is measured ten times. Results
are written to results/leaks.json; `grows` is the slope of memory over the second half, in megabytes per hundred rounds.
"""

import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.progress import Progress, track

import scopil
from scopil.algos.sac import ALGORITHM as SAC
from scopil.train.run import Run, RunSpec
from scopil.train.trainer import TrainStatus

ENV = "scopil/MarbleMaze-Simple-v0"
OUT = Path(__file__).parent / "results" / "leaks.json"
NOTES = 10
DAY = 67_000  # chunks
TINY = {"hidden": (8,), "batch_size": 32, "replay_size": 1000}


def usage() -> dict[str, float]:
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "megabytes": round(int(status["VmRSS"].split()[0]) / 1024, 1),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
        "temporary_files": len(os.listdir(tempfile.gettempdir())),
    }


def summary(rounds: int, notes: list[dict[str, float]]) -> dict:
    late = [note["megabytes"] for note in notes[len(notes) // 2 :]]
    slope = np.polyfit(np.arange(len(late)), late, 1)[0] if len(late) > 1 else 0.0
    return {"rounds": rounds, "grows": round(float(slope) * NOTES / rounds * 100, 3), "notes": notes}


def watched(what: str, rounds: int, work: Callable[[], object], warm_up: int = 10) -> dict:
    for _ in range(warm_up):
        work()
    notes = [usage()]
    for i in track(range(rounds), what):
        work()
        if (i + 1) % (rounds // NOTES) == 0:
            notes.append(usage())
    return summary(rounds, notes)


def stretches(folder: Path, rounds: int, warm_up: int = 500) -> dict:
    """One run whose chunks have one step each."""
    steps, notes = warm_up + rounds, []
    often = max(rounds // 20, 1)
    spec = RunSpec(
        algorithm=SAC, env=ENV, steps=steps, log_every=1, eval_every=often, checkpoint_every=often, config=TINY
    )
    with Progress() as bar:
        task = bar.add_task("stretches", total=steps)

        def observe(status: TrainStatus) -> None:
            bar.update(task, completed=status.env_steps)
            since = status.env_steps - warm_up
            if since >= 0 and since % (rounds // NOTES) == 0:
                notes.append(usage())

        assert Run.create(folder, spec).train(observe)
    return summary(rounds, notes)


def main(part: float) -> None:
    def count(whole: int) -> int:
        return max(int(whole * part), NOTES)

    with tempfile.TemporaryDirectory() as place:
        agent = scopil.SAC(ENV, **TINY)

        def make_and_drop() -> None:
            made = scopil.SAC(ENV, **TINY)
            made.predict(np.zeros(8, np.float32))
            made.save(Path(place) / "agent.safetensors")
            scopil.load(Path(place) / "agent.safetensors")

        work: dict[str, Callable[[], dict]] = {
            "agents made, saved, loaded and dropped": lambda: watched("agents", count(100), make_and_drop),
            "evaluations": lambda: watched("evaluations", count(1_000), lambda: agent.evaluate(episodes=2)),
            "stretches of training": lambda: stretches(Path(place) / "run", count(DAY)),
        }
        found = {}
        for name, measured in work.items():
            found[name] = row = measured()
            OUT.write_text(json.dumps(found, indent=1) + "\n")
            first, last = row["notes"][0], row["notes"][-1]
            print(f"{name}: {row['rounds']} rounds, {first} → {last}, {row['grows']:+.3f} MB per 100 rounds")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
