"""A study of the number of demonstrations: each method learns from 5, 10, 20, … and is evaluated from unseen starts."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from scopil.config import build
from scopil.data.dataset import Demonstrations
from scopil.errors import ConfigError
from scopil.eval.rules import Rules
from scopil.registry import find
from scopil_bench.studies.base import Budget, Study, Task
from scopil_bench.summaries import Table

METHODS = ("scopil-rho", "bc")
EPISODES = 200


def sizes_for(total: int) -> list[int]:
    """The total, halved repeatedly while the result is at least five; in ascending order."""
    found = [total]
    while found[-1] // 2 >= 5:
        found.append(found[-1] // 2)
    return found[::-1]


def study(
    demos: Demonstrations, env: str, sizes: Sequence[int], steps: int, seeds: int, rules: Rules | None = None
) -> Study:
    """A study with one task per number of demonstrations. Smaller sets are subsets of larger sets. Its name contains
    the digest of `demos`, so that a folder does not mix runs of several sets."""
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
    return Study(
        name=f"enough-{demos.digest[:8]}",
        title=f"How many demonstrations are enough? {demos.name}",
        tasks=tasks,
        tables={n: Table(task.title, n, METHODS, METHODS) for n, task in tasks.items()},
        budgets={"full": Budget(seeds=seeds, steps=steps, eval_every=steps, checkpoint_every=max(steps // 4, 1))},
        episodes=EPISODES,
        evaluations=("greedy/unseen", "sampled/unseen"),
    )


def _some(demos: Demonstrations, rows: Sequence[int]) -> Demonstrations:
    return replace(demos, episodes=tuple(demos.episodes[i] for i in sorted(rows)))
