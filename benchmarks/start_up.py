"""Time from the start of a process to its first result, and its peak memory: `python benchmarks/start_up.py`.

Every command runs in its own process on one core. "First time" has an empty compilation cache, "again" has the cache of
the first time. Processor time excludes other load; wall time needs a quiet machine.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scopil.files import write_atomically
from scopil.xla_flags import XLA_FLAGS

RESULTS = Path(__file__).parent / "results" / "start_up.json"
# `learn(257)` fills the replay with one batch and makes one gradient step. The replay holds 10⁶ steps.
FIRST_STEP = "import scopil; scopil.{cls}({env!r}, {demos}).learn(257)"
ENVS = {"compiled": "scopil/MarbleMaze-Simple-v0", "host": "CartPole-v1"}
DEMOS = '"marble-maze/simple-v1"'
# Prints the processor seconds of 1 000 episodes after compilation.
UNSEEN = f"""
import time, scopil
agent = scopil.SCOPIL({ENVS["compiled"]!r}, {DEMOS})
agent.learn(5_000)
agent.evaluate(episodes=1_000, seed=1)
begun = time.process_time()
agent.evaluate(episodes=1_000, seed=2)
print(time.process_time() - begun)
"""
TRAIN = ["-m", "scopil", "train", "sac", "--steps", "300", "--verbosity", "quiet", "--out"]
Targets = tuple[float | None, float | None]  # seconds the first time and again
COMMANDS: dict[str, tuple[list[str], Targets]] = {  # name → arguments of Python, targets
    "import scopil": (["-c", "import scopil"], (0.3, 0.3)),
    "scopil --help": (["-m", "scopil", "--help"], (0.2, 0.2)),
    **{
        f"first gradient step of SAC, {kind}": (["-c", FIRST_STEP.format(cls="SAC", env=env, demos=None)], (4.0, 2.0))
        for kind, env in ENVS.items()
    },
    "first gradient step of SCOPIL, compiled": (
        ["-c", FIRST_STEP.format(cls="SCOPIL", env=ENVS["compiled"], demos=DEMOS)],
        (4.0, 2.0),
    ),
    "scopil train sac, 300 steps": ([*TRAIN, "{out}"], (None, None)),
    "scopil report of one run": (["-m", "scopil", "report", "{run}", "--out", "{out}"], (4.0, 4.0)),
}


def measure(argv: list[str], home: Path, run: Path | None = None) -> dict[str, float]:
    """Seconds, processor seconds and peak memory of one process, which gets a copy of `run`."""
    argv = [word.replace("{out}", tempfile.mkdtemp(dir=home) + "/run") for word in argv]
    if run is not None:
        copy = shutil.copytree(run, f"{tempfile.mkdtemp(dir=home)}/run")
        argv = [word.replace("{run}", copy) for word in argv]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_COMPILATION", "JAX_PERSISTENT"))}
    child = f"""
import os, resource, subprocess, sys, time
begun = time.perf_counter()
subprocess.run({[sys.executable, *argv]!r}, check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(time.perf_counter() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""  # a process of its own: the peak is over all children
    env = kept | {"XDG_CACHE_HOME": str(home), "OMP_NUM_THREADS": "1", "XLA_FLAGS": XLA_FLAGS}
    done = subprocess.run([sys.executable, "-c", child], env=env, capture_output=True, text=True, check=True)
    wall, cpu, memory = map(float, done.stdout.split())
    return {"wall": wall, "cpu": cpu, "peak_rss_mib": memory}


def _least(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: min(row[key] for row in rows) for key in rows[0]}


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--rounds", type=int, default=3, help="the best of so many")
    cli.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core of all processes")
    cli.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    args = cli.parse_args()
    os.sched_setaffinity(0, {args.core})  # inherited
    table = Table("", "first time, s", "CPU s", "wanted", "again, s", "CPU s", "wanted", "peak MiB, first", "again")
    results: dict[str, Any] = {"load_at_start": os.getloadavg()[0], "date": time.strftime("%Y-%m-%d")}
    with tempfile.TemporaryDirectory() as kept:
        run = Path(kept, "run")
        measure([*TRAIN, str(run)], Path(kept))
        for name, (argv, targets) in COMMANDS.items():
            first, again = [], []
            for _ in range(args.rounds):
                with tempfile.TemporaryDirectory() as home:
                    first.append(measure(argv, Path(home), run))
                    again.append(measure(argv, Path(home), run))
            best = {"first": _least(first), "again": _least(again)}
            cells = []
            for (_, row), wanted in zip(best.items(), targets):
                cells += [f"{row['wall']:.2f}", f"{row['cpu']:.2f}", "" if wanted is None else f"≤ {wanted:g}"]
            table.add_row(name, *cells, *(f"{row['peak_rss_mib']:.0f}" for row in best.values()))
            results[name] = best
    done = subprocess.run([sys.executable, "-c", UNSEEN], capture_output=True, text=True, check=True)
    results["1 000 unseen episodes"] = {"cpu": float(done.stdout)}
    table.add_row("1 000 unseen episodes, compiled before", "", "", "", "", f"{float(done.stdout):.2f}", "≤ 1")
    Console().print(table)
    write_atomically(args.out, json.dumps(results, indent=1, ensure_ascii=False).encode() + b"\n")


if __name__ == "__main__":
    main()
