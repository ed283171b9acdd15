"""SCOPIL and SAC on the Simple setting: `python benchmarks/simple.py`. Stop it at any time; called again it continues.

Five seeds to 200 000 steps, of which three continue to 1 000 000: the way to a million passes 200 000 bit for bit, so
those three are read off on the way. Run folders go to runs/simple/, figures to benchmarks/results/simple.json.
"""

import json
from pathlib import Path

from scopil.eval.measures import average, mean_and_std
from scopil.eval.tables import print_measures
from scopil.files import write_atomically
from scopil.registry import find
from scopil.train.run import Run, RunSpec
from scopil_bench.results import Evaluator
from scopil_bench.runner import execute_with_progress, prepare
from scopil_bench.summaries import in_words

ENV, DEMOS = "scopil/MarbleMaze-Simple-v0", "marble-maze/simple-v1"
SHORT, LONG = 200_000, 1_000_000
FOLDER = Path("runs/simple")
RESULTS = Path(__file__).parent / "results" / "simple.json"


def runs(name: str) -> list[Run]:
    specs = {seed: LONG if seed < 3 else SHORT for seed in range(5)}
    return [
        prepare(FOLDER / f"{name}-{seed}", RunSpec(algorithm=find(name), env=ENV, demos=DEMOS, seed=seed, steps=steps))
        for seed, steps in specs.items()
    ]


def at(run: Run, step: int) -> dict[str, float]:
    """Greedy measures from the demonstrated starts, as logged on the way."""
    row = next(row for row in run.metrics.rows() if row["env_steps"] == step)
    return {k.removeprefix("eval/"): v for k, v in row.items() if k.startswith("eval/")}


def main() -> None:
    groups = {name: runs(name) for name in ("scopil", "sac")}
    short_first = sorted([r for group in groups.values() for r in group], key=lambda r: r.spec.steps)
    failed = execute_with_progress(short_first, workers=2)
    if failed:
        raise SystemExit("\n".join(f"{folder}: {line}" for folder, line in failed.items()))
    evaluator, results, table = Evaluator(), {}, {}
    for name, group in groups.items():
        short = {run.spec.seed: at(run, SHORT) for run in group}
        table[f"{name}, 200 000 steps, greedy, demonstrated starts ×{len(short)}"] = mean_and_std([*short.values()])
        played = {r.spec.seed: evaluator.evaluation(r)["measures"] for r in group if r.spec.steps == LONG}
        results[name] = {"at_200000_greedy_demonstrated": short, "at_1000000": {}}
        for key in next(iter(played.values())):
            each = {seed: average(measures[key]) for seed, measures in played.items()}
            results[name]["at_1000000"][key] = each
            table[f"{name}, 1 000 000 steps, {in_words(key)} ×{len(each)}"] = mean_and_std([*each.values()])
    write_atomically(RESULTS, json.dumps(results, indent=1).encode() + b"\n")
    print_measures(table)


if __name__ == "__main__":
    main()
