"""Run folders made without training: an untrained policy and metrics written by hand."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax

from scopil.algos.base import Algorithm, spaces_of
from scopil.registry import find
from scopil.train.run import Run, RunSpec, save_learner

ENV = "scopil/MarbleMaze-Simple-v0"


def untrained_run(
    folder: Path,
    algorithm: str | Algorithm = "sac",
    seed: int = 0,
    demos: str | None = None,
    rules: str | None = None,
    rows: Iterable[Mapping[str, Any]] = (),
    env: str = ENV,
    steps: int = 1000,
    **config: Any,
) -> Run:
    known = find(algorithm) if isinstance(algorithm, str) else algorithm
    settings = {"hidden": [8], **config}
    spec = RunSpec(algorithm=known, env=env, seed=seed, demos=demos, rules=rules, steps=steps, config=settings)
    run = Run.create(folder, spec)
    spaces = spaces_of(run.env().observation_space, run.env().action_space, run.env().spaces)
    learner = known.init(jax.random.key(seed), spaces, run.config)
    save_learner(run.policy_file, known, learner, run.note() | {"env_steps": 0})
    for row in rows:
        run.metrics.append(dict(row))
    return run
