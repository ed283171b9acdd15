"""Is SCOPIL worse than cloning? CartPole, CliffWalking and Acrobot of the study "external".

taskset -c 0 .venv/bin/python benchmarks/never_worse.py [--seeds 0 1 2 3 4] [--only cartpole …]

No learner is given the rules. A result is written after every run; results that exist are not computed again.
"""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import scopil
from scopil.envs.gym_env import open_env
from scopil.eval.measures import measure_all
from scopil.files import write_atomically
from scopil_bench.studies.external.study import STUDY

RESULT = Path(__file__).parent / "results" / "never_worse.json"
STEPS = (10_000, 20_000, 50_000)
METHODS = {
    "BC": scopil.BC,
    "SCOPIL-ρ": scopil.SCOPILRho,
    "SCOPIL from a clone": scopil.SCOPILClone,
    "SCOPIL": scopil.SCOPIL,
}
EPISODES = 100
TASKS = {name: STUDY.tasks[name] for name in ("acrobot", "cartpole", "cliffwalking")}


def scores(episodes: Any, rule: Any, env: Any) -> dict[str, float]:
    broken = [measure["violations"] for measure in measure_all(episodes, env, rule)]
    return {
        "return": float(np.mean([e.rewards.sum() for e in episodes])),
        "violations": float(np.mean(broken)),
        "episodes with any": float(np.mean([b > 0 for b in broken])),
    }


def main(tasks: list[str], seeds: list[int], result: Path) -> None:
    body = json.loads(result.read_text()) if result.exists() else {}
    for name in tasks:
        task = TASKS[name]
        env = open_env(task.env)
        assert callable(task.demos)
        demos = task.demos()
        rows = body.setdefault(name, {})
        rows["demonstrator"] = scores(demos, task.rules, env)
        print(name, "demonstrator", rows["demonstrator"], flush=True)
        for title, method in METHODS.items():
            for seed in seeds:
                key = f"{title}, seed {seed}"
                if key in rows:
                    continue
                agent = method(env, demos, seed=seed)
                at = {}
                for steps in STEPS:
                    agent.learn(steps - agent.num_timesteps)
                    at[str(steps)] = {
                        mode: scores(agent.play("unseen", EPISODES, deterministic=mode == "greedy"), task.rules, env)
                        for mode in ("greedy", "sampled")
                    }
                rows[key] = at
                write_atomically(result, json.dumps(body, indent=1).encode() + b"\n")
                print(name, key, {s: a["greedy"] for s, a in at.items()}, flush=True)
    print("\n".join(table(body)))


def table(body: dict[str, Any], mode: str = "greedy") -> list[str]:
    """Return and violations per episode, means over seeds, by number of steps."""
    lines = ["| | seeds |" + "".join(f" {steps:,} |" for steps in STEPS), "|---" * (2 + len(STEPS)) + "|"]
    for name, rows in body.items():
        shown = rows["demonstrator"]
        lines += [f"| **{name}**, demonstrator {shown['return']:.4g}, {shown['violations']:.3g} |" + " |" * 4]
        for title in METHODS:
            mine = [at for key, at in rows.items() if key.startswith(f"{title}, seed")]
            if mine:
                cells = [
                    ", ".join(
                        f"{np.mean([at[str(n)][mode][what] for at in mine]):.4g}" for what in ("return", "violations")
                    )
                    for n in STEPS
                ]
                lines += [f"| {title} | {len(mine)} | {' | '.join(cells)} |"]
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--only", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--result", type=Path, default=RESULT)
    args = parser.parse_args()
    main(args.only, args.seeds, args.result)
