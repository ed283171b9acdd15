"""The figures of the study "unseen", from the folder that `scopil study unseen` has filled:

.venv/bin/python benchmarks/unseen.py FOLDER

Every run of its results.json: violations per episode, the share of episodes with any that a policy can avoid, reward,
and how far the multipliers move in the last quarter of training. These are read from the run's folder; where it is
gone, what was read before stays.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from scopil.files import write_atomically
from scopil.train.run import Run
from scopil_bench import results
from scopil_bench.studies.base import run_folder
from scopil_bench.studies.unseen import STUDY
from scopil_bench.summaries import Result

RESULT = Path(__file__).parent / "results" / "unseen.json"
MULTIPLIERS = ("dual/lambda", "occupancy/mu")
LAST = "last quarter"


def last_quarter(run: Run) -> dict[str, list[float]]:
    """The least, mean and greatest value of each multiplier."""
    rows = list(run.metrics.rows())
    late = [row for row in rows if row["env_steps"] > 0.75 * run.spec.steps]
    values = {name: [row[name] for row in late if row.get(name) is not None] for name in MULTIPLIERS}
    return {name: [min(v), float(np.mean(v)), max(v)] for name, v in values.items() if v}


def figures(result: Result) -> dict[str, Any]:
    said = {
        evaluation: {
            "violations": means["violations"],
            "episodes with any": result.violating[evaluation] / result.episodes[evaluation],
            "reward": means["reward"],
        }
        for evaluation, means in result.means.items()
    }
    return {"steps": result.steps, **said, **result.extra}


def main(folder: Path) -> None:
    before = json.loads(RESULT.read_text())["runs"] if RESULT.exists() else {}
    runs: dict[str, Any] = {}
    found = results.load(folder).results
    for cell in (cell for cell in STUDY.cells() if cell in found):
        for result in found[cell]:
            name = f"{cell.method}-{result.seed}"
            there = run_folder(folder, cell, result.seed)
            kept = before.get(cell.setting, {}).get(name, {}).get(LAST, {})
            late = last_quarter(Run.open(there)) if there.exists() else kept
            runs.setdefault(cell.setting, {})[name] = figures(result) | {LAST: late}
    body = {"study": STUDY.name, "episodes": STUDY.episodes, "runs": runs}
    write_atomically(RESULT, json.dumps(body, indent=1).encode() + b"\n")
    print("\n".join([*table(runs), "", *settled(runs)]))


def settled(runs: dict[str, Any]) -> list[str]:
    """How far λ moves from its mean in the last quarter, at most, by method."""
    apart: dict[str, list[float]] = {}
    for rows in runs.values():
        for name, row in rows.items():
            if "dual/lambda" in row[LAST]:
                low, mean, high = row[LAST]["dual/lambda"]
                apart.setdefault(name.rpartition("-")[0], []).append(max(high - mean, mean - low) / mean)
    return [
        f"λ of {STUDY.title_of(method)}: over the last quarter within 20 % of its mean in "
        f"{sum(each <= 0.2 for each in found)} of {len(found)} runs; the farthest is {100 * max(found):.0f} % off"
        for method, found in apart.items()
    ]


def table(runs: dict[str, Any]) -> list[str]:
    """Means over seeds, as Markdown."""
    heads = ["greedy, unseen", "sampled, unseen", "greedy, demonstrated", "sampled, demonstrated"]
    keys = ["/".join(head.split(", ")) for head in heads]
    lines = [
        f"| violations per episode (episodes with any) | {' | '.join(heads)} | reward: greedy, sampled, unseen; "
        f"greedy, sampled, demonstrated |"
    ]
    lines += ["|---" * (len(heads) + 2) + "|"]
    for setting, rows in runs.items():
        lines += [f"| **{STUDY.tasks[setting].title}** |" + " |" * (len(heads) + 1)]
        for method in dict.fromkeys(name.rpartition("-")[0] for name in rows):
            mine = [row for name, row in rows.items() if name.rpartition("-")[0] == method]

            def mean(key: str, what: str, mine: list[Any] = mine) -> float:
                return float(np.mean([row[key][what] for row in mine]))

            cells = [f"{mean(k, 'violations'):.3g} ({mean(k, 'episodes with any'):.1%})" for k in keys]
            unseen, shown = (
                ", ".join(f"{mean(k, 'reward'):.2f}".replace("-", "−") for k in pair) for pair in (keys[:2], keys[2:])
            )
            rewards = f"{unseen}; {shown}"
            steps = f"{mine[0]['steps']:_}".replace("_", " ")
            title = f"{STUDY.title_of(method)}, {len(mine)} × {steps}"
            lines += [f"| {title} | {' | '.join(cells)} | {rewards} |"]
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    main(parser.parse_args().folder)
