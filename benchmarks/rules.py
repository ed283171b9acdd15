"""Violations from unseen starts on the tasks of `scopil study rules` and on Marble Maze, at every 10 000 steps.

    python benchmarks/rules.py [--part 0/2] [--seeds 5] [--tasks zone simple-v1]
    python benchmarks/rules.py --table      the table of docs/results.md, from what is there

Appends to results/rules.jsonl; finished runs are skipped. Two processes may run at once, each with its own part. Seeds
0 to 4, the library's defaults, 1 000 unseen starts at the end (200 on the corridor), 200 at the evaluations before.
Violations while learning are counted outside of the learner, in environments that report a cost.
Demonstrators play from the same starts. Marble Maze tasks are named as their demonstrations.
"""

import argparse
import json
import math
import subprocess
import time
from pathlib import Path

import jax
import numpy as np

import scopil
from scopil.agent import Agent
from scopil.envs.naming import IDS
from scopil.registry import find
from scopil.train.trainer import TrainStatus
from scopil_bench.studies.rules import ENVS, corridor, demonstrations
from scopil_bench.studies.rules.base import demonstrator_from_unseen_starts
from scopil_bench.studies.rules.tasks import TASKS

METHODS = ("demonstrator", "bc", "scopil-rho", "gail-sac", "scopil", "sac")
SAID, REWARD_SEEKING = 2, 50_000  # seeds whose rules are judged; steps of the policy that seeks reward alone
OUT = Path(__file__).parents[1] / "results" / "rules.jsonl"
TRAYS = {f"{name}{players}-v1": tray for name, tray in IDS.items() for players in ("", "-simulated")}
STEPS = dict.fromkeys(TASKS, 100_000) | {"corridor": 60_000} | dict.fromkeys(TRAYS, 300_000)


def commit() -> str:
    return subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=OUT.parent, text=True).strip()


def measured(agent: Agent, task: str, episodes: int) -> dict[str, float]:
    rules = corridor.RULES if task == "corridor" else None
    found = {}
    for name, greedy in (("greedy", True), ("sampled", False)):
        m = agent.evaluate("unseen", episodes, deterministic=greedy, rules=rules)
        found |= {f"{name}/violations": m.get("violations", 0.0), f"{name}/reward": m["reward"]}
    return found


def run(task: str, method: str, seed: int) -> dict:
    begun, many = time.process_time(), 200 if task == "corridor" else 1_000
    env, demos = (TRAYS[task], f"marble-maze/{task}") if task in TRAYS else (ENVS[task], demonstrations(task))
    agent = Agent(find(method), env, demos, seed=seed)
    curve, last, done, seen = [], {}, 0, []

    def observe(status: TrainStatus) -> None:
        last.update(status.metrics)
        seen.append(status.metrics.get("episode/violations"))

    while done < STEPS[task]:
        if method == "bc":
            agent.learn(STEPS[task])
            done = STEPS[task]
        else:
            agent.learn(10_000, callback=observe)
            done += 10_000
        judged = done == STEPS[task] or (task == "corridor" and done == 20_000)
        row = {"steps": done} | measured(agent, task, many if judged else 200)
        row |= {name: float(last[name]) for name in last if name.startswith(("occupancy/", "dual/lambda"))}
        if seen and None not in seen:
            row["learning/violations"] = sum(seen)  # so far
        curve.append(row)
    found = {"task": task, "method": method, "seed": seed, "version": scopil.__version__, "commit": commit()}
    found["curve"] = curve
    if agent.algorithm.marginals is not None:
        found["constraints"] = [[m.name, round(m.multiplier, 2)] for m in agent.marginals()]
        found["rules"] = [rule.sentence for rule in agent.rules()]
        if seed < SAID and task != "corridor":
            found["beside SAC"] = said(agent)
    return found | {"seconds": round(time.process_time() - begun, 1)}


def said(agent: Agent) -> dict:
    """The rules with the evidence of a policy that seeks reward alone. `overlap` is the intersection over union of its
    steps that break a found rule and those that break a true one."""
    played = agent.reward_seeking(REWARD_SEEKING)
    found = agent.rules(played)
    true = np.concatenate([e.info["cost"][1:] > 0 for e in played])
    broken = np.zeros_like(true)
    for rule in found:
        scope: dict = {"math": math, "np": np}
        exec(rule.code("rule"), scope)  # our own code
        steps = [
            scope["rule"](o, a, n) for e in played for o, a, n in zip(e.observations, e.actions, e.observations[1:])
        ]
        broken |= np.array(steps, bool)
    return {
        "rules": [rule.sentence for rule in found],
        "violating": float(true.mean()),
        "overlap": float((true & broken).sum() / max((true | broken).sum(), 1)),
        "recall": float((true & broken).sum() / max(true.sum(), 1)),
    }


def demonstrator(task: str) -> dict:
    episodes = demonstrator_from_unseen_starts(TASKS[task], 1_000)
    violations = [float((e.info["cost"] > 0).sum()) for e in episodes]
    rewards = [float(np.sum(e.rewards)) for e in episodes]
    row = {"steps": 0, "greedy/violations": float(np.mean(violations)), "greedy/reward": float(np.mean(rewards))}
    return {"task": task, "method": "demonstrator", "seed": 0, "version": scopil.__version__, "curve": [row]}


def table(rows: list[dict]) -> str:
    """One line per task and method: mean over seeds at the end, with the smallest and the largest."""

    def cell(values: list[float]) -> str:
        if not values:
            return "–"
        few = f" ({min(values):.3g} to {max(values):.3g})" if len(values) > 1 else ""
        return f"{np.mean(values):.3g}{few}"

    names = ["greedy/violations", "sampled/violations", "greedy/reward", "learning/violations"]
    head = ["task", "method", "seeds", "steps", "greedy", "sampled", "reward", "while learning", "above BC"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    ends = {(r["task"], r["method"], r["seed"]): r["curve"][-1] for r in rows}
    for task in STEPS:
        for method in METHODS:
            mine = sorted((r for r in rows if (r["task"], r["method"]) == (task, method)), key=lambda r: r["seed"])
            if not mine:
                continue
            cells = [cell([r["curve"][-1][n] for r in mine if n in r["curve"][-1]]) for n in names]
            compared = [
                row["greedy/violations"] > ends[task, "bc", r["seed"]]["greedy/violations"]
                for r in mine
                for row in r["curve"]
                if method not in ("bc", "demonstrator") and (task, "bc", r["seed"]) in ends
            ]
            above = f"{sum(compared)} of {len(compared)}" if compared else ""
            steps = mine[0]["curve"][-1]["steps"]
            lines.append("| " + " | ".join([task, method, str(len(mine)), f"{steps:,}", *cells, above]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=["scopil-rho", "bc"])
    parser.add_argument("--tasks", nargs="+", default=[*STEPS], choices=[*STEPS])
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if args.table:
        print(table([json.loads(line) for line in OUT.read_text().splitlines()]))
        return
    mine, parts = (int(x) for x in args.part.split("/"))
    plan = [(t, m, s) for s in range(args.seeds) for m in args.methods for t in args.tasks]
    for i, (task, method, seed) in enumerate(plan):
        lines = OUT.read_text().splitlines() if OUT.exists() else []
        have = {(r["task"], r["method"], r["seed"]) for r in map(json.loads, lines)}
        if i % parts != mine or (task, method, seed) in have:
            continue
        if method == "demonstrator":
            found = [demonstrator(task)] if task in TASKS and seed == 0 else []
        else:
            found = [run(task, method, seed)]
        with OUT.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in found)
        jax.clear_caches()  # programs of finished runs
        for row in found:
            print(task, method, seed, {k: round(v, 3) for k, v in row["curve"][-1].items()}, flush=True)


if __name__ == "__main__":
    main()
