"""Training speed on a Python environment: SAC compared with Stable-Baselines3 (PyTorch), SBX (JAX) and SAC in the way
of CleanRL (PyTorch); SCOPIL and SCOPIL-ρ compared with our SAC.

One environment step and one update, one core, one thread, in turns. `python benchmarks/host_speed.py`, after `python
benchmarks/host_speed.py --setup` once. Ratios are of processor time, so that other load affects all equally. The step
of the slow environment waits 5 ms, which takes no processor time: its ratios are of wall time and need a quiet machine.
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
VENVS = {
    ".venv-torch": ["torch==2.13.0", "gymnasium", "numpy"],
    ".venv-sb3": ["torch==2.13.0", "stable-baselines3"],
    ".venv-sbx": ["torch==2.13.0", "sbx-rl"],
}
PENDULUM, SLOW = "Pendulum-v1", "slow_env:SlowPendulum-v0"
# The default sizes of scopil and of the others; target ratios by the first word of a contender's name.
WANTED = {
    (PENDULUM, "64 64"): {"Stable-Baselines3": 8.0, "SBX": 2.0},
    (PENDULUM, "256 256"): {"Stable-Baselines3": 2.0, "SBX": 1.2},
    (SLOW, "64 64"): {},
}


def contenders(env: str, hidden: str) -> list[Contender]:
    args, part = (env, *hidden.split()), 10 if env == SLOW else 1  # a round on the slow environment has fewer steps
    ours = [
        Contender(f"scopil SAC, {hidden}", "host_ours.py", 1000 // part, None, args),
        Contender(f"scopil SCOPIL, {hidden}", "host_ours.py", 500 // part, None, (*args, "--algorithm", "scopil")),
        Contender(
            f"scopil SCOPIL-ρ, {hidden}", "host_ours.py", 500 // part, None, (*args, "--algorithm", "scopil-rho")
        ),
    ]
    if env == SLOW:
        ours.insert(1, Contender(f"scopil SAC, overlap, {hidden}", "host_ours.py", 100, None, (*args, "--overlap")))
    return [
        *ours,
        Contender(f"Stable-Baselines3 SAC, {hidden}", "host_sb3.py", 200 // part, ".venv-sb3", args),
        Contender(f"SBX SAC, {hidden}", "host_sbx.py", 200 // part, ".venv-sbx", args),
        Contender(f"CleanRL's way, SAC, {hidden}", "host_cleanrl.py", 200 // part, ".venv-torch", args),
    ]


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--setup", action="store_true", help="make the peers' venvs and stop")
    cli.add_argument("--rounds", type=int, default=8, help="turns of every contender")
    cli.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core all share")
    cli.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    args = cli.parse_args()
    say = Console()
    if args.setup:
        return setup(VENVS)
    table = Table("", "best µs a step", "best CPU µs", "steps / s", "ratio", "wanted", "peak MiB, replay 10⁶")
    results: dict[str, Any] = {"rounds": args.rounds, "load_at_start": os.getloadavg()[0]}
    for (env, hidden), wanted in WANTED.items():
        found = race(contenders(env, hidden), args.rounds, args.core, say)
        table.add_section()
        table.add_row(f"[bold]{env}")
        clock = "best_us" if env == SLOW else "best_cpu_us"
        ours = next(iter(found.values()))
        for name, row in found.items():
            ratio, target = row[clock] / ours[clock], wanted.get(name.split()[0])
            figures = (f"{row['best_us']:.0f}", f"{row['best_cpu_us']:.0f}", f"{1e6 / row[clock]:.0f}")
            wish, memory = "" if target is None else f"≥ {target:g} ×", round(row["peak_rss_mib"])
            table.add_row(name, *figures, f"{ratio:.2f} ×", wish, str(memory))
            facts = {fact: row[fact] for fact in row if fact in ("jax", "stable_baselines3", "torch", "sbx")}
            facts |= {clock.removeprefix("best_").replace("us", "ratio"): round(ratio, 2), "peak_rss_mib": memory}
            results[f"{env}: {name}"] = facts
    say.print(table)
    write_atomically(args.out, json.dumps(results, indent=1, ensure_ascii=False).encode() + b"\n")


if __name__ == "__main__":
    main()
