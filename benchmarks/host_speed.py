"""Training speed of SAC on a Python environment, compared with Stable-Baselines3 (PyTorch) and SBX (JAX).

One environment step and one update, one core, one thread, in turns. `python benchmarks/host_speed.py`, after `python
benchmarks/host_speed.py --setup` once. Ratios are of processor time, so that other load affects all equally.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from speed import Contender, race, setup

from scopil.files import write_atomically

RESULTS = Path(__file__).parent / "results" / "host_speed.json"
VENVS = {".venv-sb3": ["torch==2.13.0", "stable-baselines3"], ".venv-sbx": ["torch==2.13.0", "sbx-rl"]}
ENV = "Pendulum-v1"
SIZES = {"64 64": (8.0, 2.0), "256 256": (2.0, 1.2)}  # the defaults of scopil and of the others; target ratios


def contenders(hidden: str) -> list[Contender]:
    args = (ENV, *hidden.split())
    return [
        Contender(f"scopil SAC, {hidden}", "host_ours.py", 1000, None, args),
        Contender(f"Stable-Baselines3 SAC, {hidden}", "host_sb3.py", 200, ".venv-sb3", args),
        Contender(f"SBX SAC, {hidden}", "host_sbx.py", 200, ".venv-sbx", args),
    ]


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--setup", action="store_true", help="make the peers' venvs and stop")
    cli.add_argument("--rounds", type=int, default=8, help="turns of every contender")
    cli.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core all share")
    args = cli.parse_args()
    say = Console()
    if args.setup:
        return setup(VENVS)
    table = Table(ENV, "best µs a step", "best CPU µs", "steps / s", "CPU ratio", "wanted")
    results: dict[str, Any] = {"rounds": args.rounds, "load_at_start": os.getloadavg()[0]}
    for hidden, wanted in SIZES.items():
        found = race(contenders(hidden), args.rounds, args.core, say)
        ours = next(iter(found.values()))
        targets = {"Stable-Baselines3": wanted[0], "SBX": wanted[1]}
        for name, row in found.items():
            ratio = row["best_cpu_us"] / ours["best_cpu_us"]
            target = targets.get(name.split()[0])
            wish = "" if target is None else f"≥ {target:g} ×"
            rate = f"{1e6 / row['best_cpu_us']:.0f}"
            table.add_row(name, f"{row['best_us']:.0f}", f"{row['best_cpu_us']:.0f}", rate, f"{ratio:.2f} ×", wish)
            facts = {fact: row[fact] for fact in row if fact in ("jax", "stable_baselines3", "torch", "sbx")}
            results[name] = facts | {"cpu_ratio": round(ratio, 2)}
    say.print(table)
    write_atomically(RESULTS, json.dumps(results, indent=1, ensure_ascii=False).encode() + b"\n")


if __name__ == "__main__":
    main()
