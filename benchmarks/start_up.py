"""Time from the start of a process to its first result, and its peak memory: `python benchmarks/start_up.py`.

Every command runs in its own process on one core. "First time" has an empty compilation cache, "again" has the cache of
the first time. Processor time excludes other load; wall time needs a quiet machine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scopil.files import write_atomically

RESULTS = Path(__file__).parent / "results" / "start_up.json"
# `learn(257)` fills the replay with one batch and makes one gradient step. The replay holds 10⁶ steps.
FIRST_STEP = "import scopil; scopil.{cls}({env!r}, {demos}).learn(257)"
ENVS = {"compiled": "scopil/MarbleMaze-Simple-v0", "host": "CartPole-v1"}
COMMANDS: dict[str, tuple[list[str], float | None]] = {  # name → arguments of Python, target in seconds the second time
    "import scopil": (["-c", "import scopil"], 0.3),
    "scopil --help": (["-m", "scopil", "--help"], 0.2),
    **{
        f"first gradient step of SAC, {kind}": (["-c", FIRST_STEP.format(cls="SAC", env=env, demos=None)], 2.0)
        for kind, env in ENVS.items()
    },
    "first gradient step of SCOPIL, compiled": (
        ["-c", FIRST_STEP.format(cls="SCOPIL", env=ENVS["compiled"], demos='"marble-maze/simple-v1"')],
        2.0,
    ),
    "scopil train sac, 300 steps": (
        ["-m", "scopil", "train", "sac", "--steps", "300", "--verbosity", "quiet", "--out", "{out}"],
        None,
    ),
}


def measure(argv: list[str], home: Path) -> dict[str, float]:
    """Seconds, processor seconds and peak memory of one process."""
    argv = [word.replace("{out}", tempfile.mkdtemp(dir=home) + "/run") for word in argv]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_COMPILATION", "JAX_PERSISTENT"))}
    child = f"""
import os, resource, subprocess, sys, time
begun = time.perf_counter()
subprocess.run({[sys.executable, *argv]!r}, check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(time.perf_counter() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""  # a process of its own: the peak is over all children
    env = kept | {"XDG_CACHE_HOME": str(home), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", child], env=env, capture_output=True, text=True, check=True)
    wall, cpu, memory = map(float, done.stdout.split())
    return {"wall": wall, "cpu": cpu, "peak_rss_mib": memory}


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--rounds", type=int, default=3, help="the best of so many")
    cli.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core of all processes")
    cli.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    args = cli.parse_args()
    os.sched_setaffinity(0, {args.core})  # inherited
    table = Table("", "first time, s", "CPU s", "again, s", "CPU s", "wanted", "peak MiB")
    results: dict[str, Any] = {"load_at_start": os.getloadavg()[0], "date": time.strftime("%Y-%m-%d")}
    for name, (argv, wanted) in COMMANDS.items():
        first, again = [], []
        for _ in range(args.rounds):
            with tempfile.TemporaryDirectory() as home:
                first.append(measure(argv, Path(home)))
                again.append(measure(argv, Path(home)))
        best = {when: {k: min(row[k] for row in rows) for k in rows[0]} for when, rows in
                (("first", first), ("again", again))}  # fmt: skip
        figures = [f"{best[when][clock]:.2f}" for when in best for clock in ("wall", "cpu")]
        table.add_row(name, *figures, "" if wanted is None else f"≤ {wanted:g}", f"{best['first']['peak_rss_mib']:.0f}")
        results[name] = best
    Console().print(table)
    write_atomically(args.out, json.dumps(results, indent=1, ensure_ascii=False).encode() + b"\n")


if __name__ == "__main__":
    main()
