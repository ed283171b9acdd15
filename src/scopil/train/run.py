"""A run folder and everything in it.

run.json          algorithm, environment, demonstrations, seed, budget, every config value
versions.json     of the packages that made it
metrics.jsonl     one line a stretch, the same whoever interrupted the run
timing.jsonl      wall-clock, which is not the same
checkpoints/      the newest two training states, complete
policy.ckpt       the learner at the end
"""

import fcntl
import json
import platform
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from scopil.algos import ALGORITHMS
from scopil.demos.dataset import Demonstrations
from scopil.demos.store import load_demos
from scopil.envs.functional import CompiledEnv, compile_env
from scopil.errors import CheckpointError, ConfigError
from scopil.evaluate import protocol
from scopil.evaluate.metrics import average, measure
from scopil.files import write_atomically
from scopil.train.checkpoint import Checkpoints, save_tree
from scopil.train.loops import make_loop
from scopil.train.sinks import JsonLines, tensorboard
from scopil.train.trainer import Report, Trainer

PACKAGES = ("scopil", "jax", "jaxlib", "numpy", "equinox", "optax", "gymnasium", "safetensors")


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """What a run is. Two runs with equal specs end in equal parameters."""

    algorithm: str
    env: str
    demos: str | None = None
    seed: int = 0
    steps: int = 1_000_000
    eval_every: int = 10_000
    checkpoint_every: int = 50_000
    config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        if self.algorithm not in ALGORITHMS:
            raise ConfigError(f"no algorithm {self.algorithm!r}; there are {', '.join(ALGORITHMS)}.")
        for name in ("steps", "eval_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}; want at least 1.")

    def build_config(self) -> Any:
        cls = ALGORITHMS[self.algorithm].config
        known = {f.name for f in fields(cls)}
        if unknown := set(self.config) - known:
            raise ConfigError(
                f"{self.algorithm} has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(known))}."
            )
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in self.config.items()}
        return cls(**values)


class Run:
    """One folder. `create` begins it, `open` finds it again, `train` goes on from wherever it stands."""

    def __init__(self, folder: Path, spec: RunSpec):
        self.folder, self.spec = folder, spec
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.metrics = JsonLines(folder / "metrics.jsonl")
        self.timing = JsonLines(folder / "timing.jsonl")

    @classmethod
    def create(cls, folder: Path, spec: RunSpec) -> "Run":
        if (folder / "run.json").exists():
            raise ConfigError(
                f"{folder} already holds a run: continue it with --resume {folder}, or name another folder."
            )
        whole = asdict(spec) | {"config": asdict(spec.build_config())}
        write_atomically(folder / "run.json", json.dumps(whole, indent=2).encode() + b"\n")
        versions = {name: version(name) for name in PACKAGES}
        versions |= {"python": platform.python_version(), "machine": platform.machine()}
        write_atomically(folder / "versions.json", json.dumps(versions, indent=2).encode() + b"\n")
        return cls(folder, spec)

    @classmethod
    def open(cls, folder: Path) -> "Run":
        try:
            return cls(folder, RunSpec(**json.loads((folder / "run.json").read_text())))
        except OSError as error:
            raise CheckpointError(
                f"{folder} is not a run folder: no readable run.json ({error.strerror})."
            ) from error
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"{folder}/run.json is damaged: {error}.") from error

    @property
    def finished(self) -> bool:
        return self.policy_file.exists()

    @property
    def policy_file(self) -> Path:
        return self.folder / "policy.ckpt"

    def newest_policy(self) -> Path:
        """The file to play from: the final policy, or the newest checkpoint while the run is young."""
        if self.finished:
            return self.policy_file
        if not self.checkpoints.files():
            raise CheckpointError(f"{self.folder} has no policy and no checkpoint yet; train it first.")
        return self.checkpoints.files()[-1]

    def env(self) -> CompiledEnv:
        return compile_env(self.spec.env)

    def demos(self) -> Demonstrations | None:
        return None if self.spec.demos is None else load_demos(self.spec.demos)

    def trainer(self) -> Trainer:
        loop = make_loop(ALGORITHMS[self.spec.algorithm], self.env(), self.demos())
        return Trainer(loop, self.spec.build_config(), self.spec.seed)

    def train(self, observe: Callable[[Report], bool | None] = lambda report: None) -> bool:
        """Train to the end of the budget, or until `observe` returns True; a checkpoint is saved either way.
        Returns whether the budget is spent."""
        with self._locked():
            trainer = self.trainer()
            found = self.checkpoints.load_newest(trainer.shape())
            if found is not None:
                trainer.state = found[0]
            self.metrics.keep(lambda row: row["env_steps"] <= trainer.env_steps)
            evaluate = self._evaluator(trainer.loop.env)
            begun, at = time.monotonic(), trainer.env_steps

            with tensorboard(self.folder, trainer.env_steps) as board:

                def due(every: int, step: int) -> bool:
                    """The first stretch to end at or after a multiple of `every`, and the last one."""
                    return step % every < trainer.stretch or step >= self.spec.steps

                def hear(report: Report) -> bool | None:
                    row = {"env_steps": report.env_steps} | report.metrics
                    if due(self.spec.eval_every, report.env_steps):
                        row |= evaluate(report)
                    self.metrics.append(row)
                    board(report.env_steps, row)
                    rate = (report.env_steps - at) / (time.monotonic() - begun)
                    self.timing.append({"env_steps": report.env_steps, "steps_per_second": rate})
                    stop = observe(report._replace(metrics=row))
                    if stop or due(self.spec.checkpoint_every, report.env_steps):
                        self.checkpoints.save(
                            report.env_steps, report.state, self.note() | {"env_steps": report.env_steps}
                        )
                    return stop

                trainer.advance(self.spec.steps, hear)
            done = trainer.env_steps >= self.spec.steps
            if done:
                save_tree(self.policy_file, {"learner": trainer.state.learner}, self.note())
        return done

    def note(self) -> dict[str, Any]:
        """What a policy file says of itself."""
        return asdict(self.spec) | {"config": asdict(self.spec.build_config())}

    def _evaluator(self, env: CompiledEnv) -> Callable[[Report], dict[str, float]]:
        """Greedy games from the demonstrated starts. They are logged, never fed back."""
        demos = self.demos() or protocol.demos_for(self.spec.env)
        first = (
            protocol.fresh_starts(env)
            if demos is None or demos.starts is None
            else protocol.train_starts(env, demos)
        )
        play = protocol.player(env, ALGORITHMS[self.spec.algorithm], "greedy")

        def evaluate(report: Report) -> dict[str, float]:
            key = jax.random.fold_in(jax.random.key(self.spec.seed), report.env_steps)
            games = play(report.state.learner, first, key)
            return {f"eval/{k}": v for k, v in average([measure(g) for g in games]).items()}

        return evaluate

    @contextmanager
    def _locked(self):
        """One process a folder; the lock dies with the process, however it dies."""
        with (self.folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ConfigError(f"{self.folder} is being trained by another process.") from error
            yield
