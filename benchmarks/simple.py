"""SCOPIL and SAC on the Simple setting: `python benchmarks/simple.py`. Stop it at any time; called again it goes on.

Five seeds to 200 000 steps, of which three go on to 1 000 000: the way to a million passes 200 000 bit for bit, so
those three are read off on the way. Run folders go to runs/simple/, figures to benchmarks/results/simple.json.
"""

import json
from pathlib import Path

from rich.console import Console

from scopil.evaluate.metrics import mean_and_std
from scopil.experiments.execute import execute_with_progress, prepare
from scopil.files import write_atomically
from scopil.report.runs import play_all
from scopil.report.tables import print_measures
from scopil.train.run import Run, RunSpec

ENV, DEMOS = "scopil/MarbleMaze-Simple-v0", "marble-maze/simple-v1"
SHORT, LONG = 200_000, 1_000_000
FOLDER = Path("runs/simple")
RESULTS = Path(__file__).parent / "results" / "simple.json"


def runs(algorithm: str) -> list[Run]:
    specs = {seed: LONG if seed < 3 else SHORT for seed in range(5)}
    return [
        prepare(
            FOLDER / f"{algorithm}-{seed}",
            RunSpec(algorithm=algorithm, env=ENV, demos=DEMOS, seed=seed, steps=steps),
        )
        for seed, steps in specs.items()
    ]


def at(run: Run, step: int) -> dict[str, float]:
    """Greedy measures from the train starts, as logged on the way."""
    row = next(row for row in run.metrics.rows() if row["env_steps"] == step)
    return {k.removeprefix("eval/"): v for k, v in row.items() if k.startswith("eval/")}


def main() -> None:
    groups = {name: runs(name) for name in ("scopil", "sac")}
    short_first = sorted([r for group in groups.values() for r in group], key=lambda r: r.spec.steps)
    failed = execute_with_progress(short_first, workers=2)
    if failed:
        raise SystemExit("\n".join(f"{folder}: {words}" for folder, words in failed.items()))
    console, results = Console(), {}
    table = {}
    for name, group in groups.items():
        short = {run.spec.seed: at(run, SHORT) for run in group}
        table[f"{name}, 200 000 steps, greedy, train ×{len(short)}"] = mean_and_std(list(short.values()))
        results[name] = {"at_200000_greedy_train": short, "at_1000000": {}}
        played = list(play_all([run for run in group if run.spec.steps == LONG]))
        for policy, starts in played[0].games:
            each = {p.run.spec.seed: p.measures()[policy, starts] for p in played}
            results[name]["at_1000000"][f"{policy}_{starts}"] = each
            table[f"{name}, 1 000 000 steps, {policy}, {starts} ×{len(each)}"] = mean_and_std(
                list(each.values())
            )
    write_atomically(RESULTS, json.dumps(results, indent=1).encode() + b"\n")
    print_measures(console, table)


if __name__ == "__main__":
    main()
