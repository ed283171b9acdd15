"""A study of the number of demonstrations: each method learns from 5, 10, 20, … and is evaluated from unseen starts.

The study also gives a curve and a sentence. <out>/set.json names the demonstration set of a folder.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scopil.config import build
from scopil.data.dataset import Demonstrations
from scopil.errors import ConfigError, refused_as
from scopil.eval.pictures import new_figure, save_figure
from scopil.eval.rules import Rules
from scopil.files import parse_json, write_atomically
from scopil.registry import find
from scopil_bench.planning import is_study_folder
from scopil_bench.studies.base import Budget, Study, Task
from scopil_bench.summaries import Results, Table

METHODS = ("scopil-rho", "bc")
UNSEEN = "greedy/unseen"
SET = "set.json"


class Point(NamedTuple):
    """Results of a method for one number of demonstrations, as means over seeds."""

    demonstrations: int
    method: str
    reward: float
    violations: float | None  # per episode; None without rules
    violating: float | None  # share of episodes with an avoidable violation; None without rules


def sizes_for(total: int) -> list[int]:
    """The total, halved repeatedly while the result is at least five; in ascending order."""
    found = [total]
    while found[-1] // 2 >= 5:
        found.append(found[-1] // 2)
    return found[::-1]


def study(
    demos: Demonstrations,
    env: str,
    sizes: Sequence[int],
    steps: int,
    seeds: int,
    rules: Rules | None = None,
    episodes: int = 200,
) -> Study:
    """A study with one task per number of demonstrations. Smaller sets are subsets of larger sets."""
    for what, value in (("seeds", seeds), ("steps", steps)):
        if value < 1:
            raise ConfigError(f"{what} = {value}; want at least 1.", setting=what)
    learner = find(METHODS[0])
    assert learner.short_run is not None
    if said := learner.short_run(build(learner.config, {}), steps):
        raise ConfigError(f"steps = {steps:,}; {said}. Want more: this measures cloning alone.", setting="steps")
    if len(demos) < 2:
        raise ConfigError(f"{demos.name} has one demonstration; want at least 2.")
    if odd := [n for n in sizes if not 2 <= n <= len(demos)]:
        raise ConfigError(f"sizes: {odd[0]}; want 2 to {len(demos)}, the number in {demos.name}.", setting="sizes")
    order = np.random.default_rng(0).permutation(len(demos)).tolist()
    tasks = {
        str(n): Task(title=f"{n} demonstrations", env=env, demos=partial(_some, demos, tuple(order[:n])), rules=rules)
        for n in sorted(set(sizes))
    }
    budget = Budget(seeds=seeds, steps=steps, eval_every=steps, checkpoint_every=max(steps // 4, 1))
    return Study(
        name="enough",
        title=f"How many demonstrations are enough? {demos.name}",
        tasks=tasks,
        tables={n: Table(task.title, n, METHODS, METHODS) for n, task in tasks.items()},
        budgets={"full": budget},
        episodes=episodes,
        evaluations=(UNSEEN, "sampled/unseen"),
    )


def _some(demos: Demonstrations, rows: Sequence[int]) -> Demonstrations:
    return replace(demos, episodes=tuple(demos.episodes[i] for i in sorted(rows)))


def keep_set(demos: Demonstrations, out: Path) -> None:
    """Write the name of the set to the folder. Another set is refused: run names do not depend on the set, so
    the report would contain runs of the earlier set."""
    file, wanted = out / SET, {"set": demos.name, "digest": demos.digest}
    if not file.exists() and not is_study_folder(out):
        write_atomically(file, json.dumps(wanted, indent=1).encode() + b"\n")
        return
    said = "another study"
    if file.exists():
        with refused_as(ConfigError, file):
            found = parse_json(file.read_bytes())
            if found["digest"] == wanted["digest"]:
                return
            said = f"a study of {found['set']} ({found['digest'][:8]})"
    raise ConfigError(
        f"{out} holds {said}; want one of {wanted['set']} ({wanted['digest'][:8]}). Name another folder with --out."
    )


def curve(results: Results) -> list[Point]:
    points = []
    for cell, runs in results.items():
        means = [run.means[UNSEEN] for run in runs]
        counted = all("violations" in m for m in means)
        points.append(
            Point(
                int(cell.setting),
                cell.method,
                float(np.mean([m["reward"] for m in means])),
                float(np.mean([m["violations"] for m in means])) if counted else None,
                float(np.mean([run.violating[UNSEEN] / run.episodes[UNSEEN] for run in runs])) if counted else None,
            )
        )
    return sorted(points)


def sentence(points: Sequence[Point], method: str = METHODS[0]) -> str:
    """The result in words, with an extrapolation: a line fitted to the last three points on log-log axes."""
    mine = [p for p in points if p.method == method]
    last = mine[-1]
    if last.violating is None:
        before = f"{mine[-2].reward:.3g} with {mine[-2].demonstrations}, " if len(mine) > 1 else ""
        now = f"{last.reward:.3g} with {last.demonstrations}"
        return f"No rules are known here. Reward from unseen starts: {before}{now}."
    share = f"{last.violating:.1%} of the episodes from unseen starts"
    said = f"With {last.demonstrations} demonstrations {share} break a rule"
    if len(mine) < 2:
        return said + "."
    said += f" ({mine[-2].violating:.1%} with {mine[-2].demonstrations})"
    # Shares below 1e-3 are raised to 1e-3, because the logarithm of 0 is infinite.
    shares = [max(p.violating or 0.0, 1e-3) for p in mine[-3:]]
    slope, offset = np.polyfit(np.log([p.demonstrations for p in mine[-3:]]), np.log(shares), 1)
    if slope >= -0.1:
        return said + "; more demonstrations of the same kind would change little."
    guess = float(np.exp(slope * np.log(2 * last.demonstrations) + offset))
    return said + f"; {2 * last.demonstrations} would give about {guess:.1%} by extrapolation."


def draw(points: Sequence[Point], titles: dict[str, str], file: Path) -> None:
    """Plot the share of violating episodes (without rules: the reward) over the number of demonstrations."""
    figure = new_figure(figsize=(6, 3.6))
    axes = figure.subplots()
    counted = all(p.violating is not None for p in points)
    for method, title in titles.items():
        mine = [p for p in points if p.method == method]
        axes.plot(
            [p.demonstrations for p in mine],
            [100 * (p.violating or 0.0) if counted else p.reward for p in mine],
            marker="o",
            label=title,
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({p.demonstrations for p in points}))
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set_xlabel("demonstrations")
    axes.set_ylabel("episodes from unseen starts that break a rule, %" if counted else "reward from unseen starts")
    axes.set_ylim(bottom=0 if counted else None)
    axes.legend(frameon=False)
    save_figure(file, figure)
