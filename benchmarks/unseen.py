"""The figures of the study "unseen", from the folders that `scopil study unseen` has filled:

.venv/bin/python benchmarks/unseen.py FOLDER [FOLDER …]

Every finished run of every folder: violations per episode, the share of episodes with any that a policy can avoid,
reward, and how far the multipliers move in the last quarter of training. An evaluation that is kept beside its run is
not played again.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from scopil.evaluate.summaries import Result
from scopil.experiments import planning
from scopil.experiments.results import Evaluator
from scopil.files import write_atomically
from scopil.studies.marble_maze.unseen import STUDY
from scopil.train.run import Run

RESULT = Path(__file__).parent / "results" / "unseen.json"
MULTIPLIERS = ("dual/lambda", "occupancy/mu")


def last_quarter(run: Run) -> dict[str, list[float]]:
    """The least, mean and greatest value of each multiplier."""
    rows = list(run.metrics.rows())
    late = [row for row in rows if row["env_steps"] > 0.75 * run.spec.steps]
    values = {name: [row[name] for row in late if row.get(name) is not None] for name in MULTIPLIERS}
    return {name: [min(v), float(np.mean(v)), max(v)] for name, v in values.items() if v}


def figures(result: Result, run: Run) -> dict[str, Any]:
    said = {
        evaluation: {
            "violations": means["violations"],
            "episodes with any": result.violating[evaluation] / result.episodes[evaluation],
            "reward": means["reward"],
        }
        for evaluation, means in result.means.items()
    }
    return {"steps": result.steps, **said, **result.extra, "last quarter": last_quarter(run)}


def main(folders: list[Path]) -> None:
    body: dict[str, Any] = {"study": STUDY.name, "episodes": STUDY.episodes, "runs": {}}
    evaluator = Evaluator(STUDY)
    for folder in folders:
        found = [(cell, run) for cell, runs in planning.found(STUDY, folder).items() for run in runs]
        for cell, run in track([pair for pair in found if pair[1].finished], str(folder)):
            rows = body["runs"].setdefault(cell.setting, {})
            rows[f"{cell.method}-{run.spec.seed}"] = figures(evaluator.result(cell, run), run)
            write_atomically(RESULT, json.dumps(body, indent=1).encode() + b"\n")
    evaluator.close()
    print("\n".join(table(body["runs"])))


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
        lines += [f"| **{STUDY.settings[setting].title}** |" + " |" * (len(heads) + 1)]
        for method in dict.fromkeys(name.rpartition("-")[0] for name in rows):
            mine = [row for name, row in rows.items() if name.rpartition("-")[0] == method]

            def mean(key: str, what: str, mine: list[Any] = mine) -> float:
                return float(np.mean([row[key][what] for row in mine]))

            cells = [f"{mean(k, 'violations'):.3g} ({mean(k, 'episodes with any'):.1%})" for k in keys]
            unseen, shown = (
                ", ".join(f"{mean(k, 'reward'):.2f}".replace("-", "−") for k in pair)
                for pair in (keys[:2], keys[2:])
            )
            rewards = f"{unseen}; {shown}"
            title = f"{STUDY.title_of(method)}, {len(mine)} × {mine[0]['steps']:,}"
            lines += [f"| {title} | {' | '.join(cells)} | {rewards} |"]
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    main(parser.parse_args().folders)
