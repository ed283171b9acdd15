"""Time from the start of a process to the first evaluation with at most 0.025 avoidable violations per episode (greedy,
demonstrated starts): SCOPIL on Simple, on one core of an otherwise idle machine.

.venv/bin/python benchmarks/first_safe.py [--seeds 10]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from scopil.files import write_atomically
from scopil.train.run import Run
from scopil_bench.results import first_safe
from scopil_bench.summaries import SAFE

RESULT = Path(__file__).parent / "results" / "first_safe.json"
ENV, DEMOS = "scopil/MarbleMaze-Simple-v0", "marble-maze/simple-v1"
STEPS = 300_000  # at most


def main(seeds: int) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # the processes below inherit it
    rows = []
    for seed in range(seeds):
        with TemporaryDirectory() as folder:
            steps, seconds = measure(seed, Path(folder) / "run")
        rows.append({"seed": seed, "steps": steps, "seconds": seconds})
        print(f"seed {seed}: {steps:,} steps, {seconds:.1f} s", flush=True)
    found = {what: statistics.median(row[what] for row in rows) for what in ("steps", "seconds")}
    print(f"median of {seeds} seeds: {found['steps']:,.0f} steps, {found['seconds']:.1f} s")
    body = {"avoidable at most": SAFE, "median": found, "seeds": rows}
    write_atomically(RESULT, json.dumps(body, indent=1).encode() + b"\n")


def measure(seed: int, folder: Path) -> tuple[int, float]:
    argv = ["scopil", "--env", ENV, "--demos", DEMOS, "--seed", str(seed), "--steps", str(STEPS)]
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "scopil", "train", *argv, "--out", str(folder)],
        env={**os.environ, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            while process.poll() is None:
                time.sleep(0.1)
                rows = Run.open(folder).metrics.rows() if (folder / "run.json").exists() else ()
                if (steps := first_safe(rows)) is not None:
                    return steps, time.monotonic() - began
        finally:
            process.kill()
    raise RuntimeError(f"seed {seed}: not below {SAFE} within {STEPS:,} steps (exit {process.returncode})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    main(**vars(parser.parse_args()))
