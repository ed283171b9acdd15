"""Processor time per step of SCOPIL-ρ and of SCOPIL on Marble Maze, in alternating rounds.

taskset -c 0 .venv/bin/python benchmarks/step_cost.py [--rounds 8] [--steps 10000]
"""

import os

from scopil.xla_flags import XLA_FLAGS

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {XLA_FLAGS}"

import argparse
import json
import time
from pathlib import Path

import numpy as np

import scopil
from scopil.files import write_atomically

RESULT = Path(__file__).parent / "results" / "step_cost.json"
ENV, DEMOS = "scopil/MarbleMaze-Simple-v0", "marble-maze/simple-v1"


def main(rounds: int, steps: int) -> None:
    agents = {"SCOPIL": scopil.SCOPIL(ENV, DEMOS, seed=0), "SCOPIL-ρ": scopil.SCOPILRho(ENV, DEMOS, seed=0)}
    for agent in agents.values():
        agent.learn(steps)  # compilation, and the steps in which only the critics learn
    spent: dict[str, list[float]] = {name: [] for name in agents}
    for _ in range(rounds):
        for name, agent in agents.items():
            begin = time.process_time()
            agent.learn(steps)
            spent[name].append((time.process_time() - begin) / steps * 1e6)
    body = {name: {"best": min(times), "median": float(np.median(times))} for name, times in spent.items()}
    for name, row in body.items():
        ratio = {key: row[key] / body["SCOPIL"][key] for key in row}
        print(f"{name}: best {row['best']:.0f} µs, median {row['median']:.0f} µs per step; ", end="")
        print(f"{ratio['best']:.2f} and {ratio['median']:.2f} times SCOPIL's")
    write_atomically(RESULT, json.dumps({"rounds": rounds, "steps": steps, **body}, indent=1).encode() + b"\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10_000)
    args = parser.parse_args()
    main(args.rounds, args.steps)
