"""Memory, descriptors, threads and temporary files of one process that goes on for long.

    python benchmarks/leaks.py            100 agents, 1 000 evaluations, 2 000 stretches of training
    python benchmarks/leaks.py 0.1        a tenth of it

Each kind of work is warmed up first: programs are compiled once and kept. Then usage is noted ten times on the way. The
result goes to results/leaks.json; `grows` is the slope of memory over the second half, in megabytes per hundred rounds.
"""

import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.progress import track

import scopil
from scopil.train.sinks import JsonLines

ENV = "scopil/MarbleMaze-Simple-v0"
OUT = Path(__file__).parent / "results" / "leaks.json"
NOTES = 10


def usage() -> dict[str, float]:
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "megabytes": round(int(status["VmRSS"].split()[0]) / 1024, 1),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
        "temporary_files": len(os.listdir(tempfile.gettempdir())),
    }


def watched(what: str, rounds: int, work: Callable[[], object], warm_up: int = 3) -> dict:
    for _ in range(warm_up):
        work()
    notes = [usage()]
    for i in track(range(rounds), what):
        work()
        if (i + 1) % max(rounds // NOTES, 1) == 0:
            notes.append(usage())
    late = [note["megabytes"] for note in notes[len(notes) // 2 :]]
    slope = np.polyfit(np.arange(len(late)), late, 1)[0] if len(late) > 1 else 0.0
    return {"rounds": rounds, "grows": round(float(slope) * NOTES / rounds * 100, 2), "notes": notes}


def main(part: float) -> None:
    def count(whole: int) -> int:
        return max(int(whole * part), NOTES)

    agent = scopil.SAC(ENV, hidden=(8,), batch_size=32, replay_size=1000)
    with tempfile.TemporaryDirectory() as place:
        lines = JsonLines(Path(place) / "metrics.jsonl")

        def make_and_drop() -> None:
            made = scopil.SAC(ENV, hidden=(8,), batch_size=32, replay_size=1000)
            made.predict(np.zeros(8, np.float32))
            made.save(Path(place) / "agent.safetensors")
            scopil.load(Path(place) / "agent.safetensors")

        def stretch() -> None:
            agent.learn(64)
            lines.append({"env_steps": agent.num_timesteps})

        found = {
            "stretches of training": watched("stretches", count(2_000), stretch),
            "evaluations": watched("evaluations", count(1_000), lambda: agent.evaluate(episodes=2)),
            "agents made, saved, loaded and dropped": watched("agents", count(100), make_and_drop),
        }
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    for name, row in found.items():
        first, last = row["notes"][0], row["notes"][-1]
        print(f"{name}: {row['rounds']} rounds, {first} → {last}, {row['grows']:+.2f} MB per 100 rounds")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
