"""`scopil audit` on policies whose rules are known: broken rules that it finds, and false alarms.

    python benchmarks/audit.py [--steps 40000] [--splits 200] [--out results/audit.json]

Policies of SAC, BC and SCOPIL-ρ are trained on four small tasks. A rule is broken if at least 2 % of 200 episodes break
it. It is found if a finding involves a feature of the rule, contains at least a quarter of the violating steps, and
contains violating steps more often than lawful ones. False alarms: 80 episodes of the demonstrator are split in halves
at random, and one half is audited against the other. The policies are also audited against 200 demonstrations.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import scopil
from scopil.audit import EXCHANGES, LEVEL, Audit, Finding, audit
from scopil.data.dataset import Episode
from scopil.eval.measures import breaks_a_rule
from scopil.files import write_atomically
from scopil_bench.studies.rules import ENVS, demonstrations

RULES = {  # features of each rule
    "speed": {"obs[2]", "obs[3]", "|obs[2], obs[3]|"},
    "zone": {"obs[0]", "obs[2]"},
    "distance": {"obs[2]", "obs[3]", "|obs[2], obs[3]|"},
    "flag": {"obs[0]", "obs[1]", "obs[2]"},
}
METHODS = {"SAC": scopil.SAC, "BC": scopil.BC, "SCOPIL-ρ": scopil.SCOPILRho}
SEED, EPISODES, BROKEN, COVERED = 100, 200, 0.02, 0.25
DEMONSTRATIONS = (40, 200)


def finds(finding: Finding, task: str, broken: list[np.ndarray]) -> bool:
    novel, bad = np.concatenate(finding.novel), np.concatenate(broken)
    of_violating, of_lawful = novel[bad].mean() if bad.any() else 0.0, novel[~bad].mean()
    named = bool({axis.name for axis in finding.marginal.axes} & RULES[task])
    return named and bool(of_violating >= COVERED and of_violating > of_lawful)


def judged(found: Audit, task: str, episodes: list[Episode]) -> dict[str, Any]:
    broken = [breaks_a_rule(e)[1:] for e in episodes]
    everything = [f for first in found.findings for f in (first, *first.further)]
    return {
        "violating": float(np.mean([b.any() for b in broken])),
        "matched": found.matched,
        "bar": round(found.bar, 2),
        "findings": [
            {"name": f.name, "gap": round(f.gap, 4), "interval": [round(x, 4) for x in f.interval], "t": round(f.t, 1)}
            for f in found.findings
        ],
        "found": next((f.name for f in everything if finds(f, task, broken)), None),
    }


def false_alarms(task: str, splits: int) -> dict[str, Any]:
    whole, alarms = demonstrations(task, 80, SEED), 0
    for seed in range(splits):
        mine, theirs = whole.split(0.5, seed)
        alarms += bool(audit(mine.episodes, theirs, seed=seed).findings)
    return {"splits": splits, "alarms": alarms}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--tasks", nargs="+", default=list(RULES), choices=list(RULES))
    parser.add_argument("--out", type=Path, default=Path("results/audit.json"))
    args = parser.parse_args()
    found: dict[str, Any] = json.loads(args.out.read_text()) if args.out.exists() else {}
    for task in args.tasks:
        cell = found.setdefault(task, {"policies": {}})
        demos = {count: demonstrations(task, count) for count in DEMONSTRATIONS}
        for title, method in METHODS.items():
            if title not in cell["policies"]:
                agent = method(ENVS[task], None if title == "SAC" else demonstrations(task), seed=SEED)
                episodes = agent.learn(args.steps).play("unseen", EPISODES)
                cell["policies"][title] = {
                    f"{count} demonstrations": judged(audit(episodes, shown), task, episodes)
                    for count, shown in demos.items()
                }
                write_atomically(args.out, json.dumps(found, indent=1, ensure_ascii=False).encode() + b"\n")
        if "false alarms" not in cell:
            cell["false alarms"] = false_alarms(task, args.splits)
        write_atomically(args.out, json.dumps(found, indent=1, ensure_ascii=False).encode() + b"\n")
    summary(found)


def summary(found: dict[str, Any]) -> None:
    print(f"bar: {1 - LEVEL:.0%} of the largest t in {EXCHANGES} exchanges of episodes")
    for count in DEMONSTRATIONS:
        for least in (BROKEN, 0.1):
            rows = [row[f"{count} demonstrations"] for cell in found.values() for row in cell["policies"].values()]
            broken = [row for row in rows if row["violating"] >= least]
            hits = sum(row["found"] is not None for row in broken)
            print(f"{count} demonstrations, rules broken in ≥ {least:.0%} of episodes: {hits} of {len(broken)} found")
    for task, cell in found.items():
        print(f"{task}: {cell['false alarms']['alarms']} alarms in {cell['false alarms']['splits']} splits")


if __name__ == "__main__":
    main()
