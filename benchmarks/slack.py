"""Effect of δ: SCOPIL-ρ on Simple with its own δ, from the data, and with fixed values.

taskset -c 0 .venv/bin/python benchmarks/slack.py [--slacks default 0.07 0.09 0.12] [--seeds 100 101 102]

Reward from demonstrated starts against violations from unseen ones. These are trials, with seeds from 100 and starts
that no other evaluation uses. A result is written after every run; results that exist are not computed again.
"""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"

import argparse
import json
from pathlib import Path

import numpy as np

import scopil
from scopil.files import write_atomically

RESULT = Path(__file__).parent / "results" / "slack.json"
ENV, DEMOS = "scopil/MarbleMaze-Simple-v0", "marble-maze/simple-v1"
EPISODES, STARTS = 1_000, 9_100  # number of unseen starts, and their seed
KINDS = [f"{mode}/{starts}" for starts in ("unseen", "demonstrated") for mode in ("greedy", "sampled")]


def main(slacks: list[str], seeds: list[int], steps: int) -> None:
    body = json.loads(RESULT.read_text()) if RESULT.exists() else {"steps": steps, "runs": {}}
    for seed in seeds:
        for slack in slacks:
            rows = body["runs"].setdefault(slack, {})
            if str(seed) not in rows:
                given = None if slack == "default" else float(slack)
                agent = scopil.SCOPILRho(ENV, DEMOS, seed=seed, slack=given)
                agent.learn(steps, progress_bar=True)
                rows[str(seed)] = {kind: evaluate(agent, *kind.split("/")) for kind in KINDS}
                write_atomically(RESULT, json.dumps(body, indent=1).encode() + b"\n")
                print(slack, seed, rows[str(seed)], flush=True)
    print("\n".join(table(body["runs"])))


def evaluate(agent: scopil.Agent, mode: str, starts: str) -> dict[str, float]:
    episodes = EPISODES if starts == "unseen" else None
    found = agent.evaluate(starts, episodes, deterministic=mode == "greedy", seed=STARTS)
    return {name: found[name] for name in ("violations", "reward")}


def table(runs: dict[str, dict[str, dict[str, dict[str, float]]]]) -> list[str]:
    """Violations per episode and reward, means over seeds."""
    lines = ["| δ | seeds |" + "".join(f" {kind} |" for kind in KINDS), "|---" * (2 + len(KINDS)) + "|"]
    for slack, rows in runs.items():
        cells = [
            ", ".join(f"{np.mean([r[kind][name] for r in rows.values()]):.4g}" for name in ("violations", "reward"))
            for kind in KINDS
        ]
        lines += [f"| {slack} | {len(rows)} | {' | '.join(cells)} |"]
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slacks", nargs="+", default=["default", "0.07", "0.09", "0.12"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102])
    parser.add_argument("--steps", type=int, default=300_000)
    main(**vars(parser.parse_args()))
