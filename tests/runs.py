"""Run folders made without training: an untrained policy and metrics written by hand."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax

from scopil.algos import ALGORITHMS
from scopil.algos.base import discrete_spaces
from scopil.train.checkpoint import save_tree
from scopil.train.run import Run, RunSpec

ENV = "scopil/MarbleMaze-Simple-v0"


def untrained_run(
    folder: Path,
    algorithm: str = "sac",
    seed: int = 0,
    demos: str | None = None,
    rows: Iterable[Mapping[str, Any]] = (),
    env: str = ENV,
    steps: int = 1000,
    **config: Any,
) -> Run:
    spec = RunSpec(
        algorithm=algorithm, env=env, seed=seed, demos=demos, steps=steps, config={"hidden": [8], **config}
    )
    run = Run.create(folder, spec)
    spaces = discrete_spaces(run.env().observation_space, run.env().action_space)
    learner = ALGORITHMS[algorithm].init(jax.random.key(seed), spaces, spec.build_config())
    save_tree(run.policy_file, {"learner": learner}, run.note())
    for row in rows:
        run.metrics.append(dict(row))
    return run
