"""A run folder and everything in it.

run.json              algorithm, environment, demonstrations, rules, seed, budget, every config value
versions.json         of the packages that began it
demos.npz             the demonstrations, when there are any
metrics.jsonl         one line per chunk, the same whether or not the run was interrupted
timing.jsonl          wall-clock times, which differ
checkpoints/          the newest two training states, complete
policy.safetensors    the policy at the end, and the learner's state beside it
best.safetensors      the same, of the best evaluation during training
"""

import hashlib
import json
import os
import platform
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import version
from numbers import Integral
from pathlib import Path
from typing import Any

import jax
from jaxtyping import Array

from scopil.algos.base import Algorithm, head_for, refuse_stand_in, stand_in
from scopil.config import build, checked_seed
from scopil.data import storage
from scopil.data.dataset import Demonstrations
from scopil.envs.base import BatchEnv
from scopil.envs.gym_env import HostEnv, open_env
from scopil.envs.trust import id_in_file, rules_in_file, trust_option
from scopil.errors import CheckpointError, ConfigError, DivergedError, EnvError
from scopil.eval import starts as where
from scopil.eval.episodes import player
from scopil.eval.measures import average, measure_all, score
from scopil.eval.rules import Rules, load_rules, with_rules
from scopil.files import Locked, is_line, is_locked, lock, odd_entry, parse_json, write_atomically
from scopil.policy import Policy, read_policy
from scopil.registry import registered
from scopil.serialization import load_tree, read_note, save_tree
from scopil.train import trainer as training
from scopil.train.checkpoint import Checkpoints
from scopil.train.logging import JsonLines, tensorboard
from scopil.train.loop import make_loop
from scopil.train.trainer import Between, Trainer, TrainStatus

FORMAT = 2  # of run.json
PACKAGES = ("scopil", "jax", "jaxlib", "numpy", "equinox", "optax", "gymnasium", "safetensors")


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """What a run is. Two runs with equal specs end in equal parameters.

    `config` holds settings of the algorithm that differ from its defaults.
    """

    algorithm: Algorithm
    env: str
    demos: str | None = None
    rules: str | None = None  # to count violations by in evaluations; never given to the learner
    seed: int = 0
    steps: int = 0  # 0: the algorithm's budget
    eval_every: int = 10_000
    checkpoint_every: int = 50_000
    log_every: int | None = None  # between rows of metrics; None: 5 000, of a shorter run a tenth of it
    config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        object.__setattr__(self, "seed", checked_seed(self.seed))
        object.__setattr__(self, "steps", self.steps or self.algorithm.budget)
        if _whole(self.steps) and self.steps >= 2**31:
            raise ConfigError(
                f"steps = {self.steps}; want fewer than 2³¹: they are counted in 32 bits.", setting="steps"
            )
        for name in ("steps", "eval_every", "checkpoint_every"):
            value = getattr(self, name)
            if not _whole(value) or value < 1:
                wanted = "at least 1" if _whole(value) else "a whole number"
                raise ConfigError(f"{name} = {value}; want {wanted}.", setting=name)
        if self.log_every is not None and not (_whole(self.log_every) and 1 <= self.log_every <= training.CHUNK):
            raise ConfigError(
                f"log_every = {self.log_every}; want 1 to {training.CHUNK:,}: a row is the mean over the steps "
                f"since the row before.",
                setting="log_every",
            )

    def build_config(self, env: BatchEnv) -> Any:
        """The settings, with the defaults for the environment's kind of actions."""
        return build(self.algorithm.config, self.config, head_for(env.action_space).continuous)


class _Stopped(Exception):
    """An evaluation was asked to stop."""


class Run:
    """One folder. `create` begins it, `open` finds it again, `train` goes on from wherever it stands."""

    def __init__(self, folder: Path, spec: RunSpec, settings: dict[str, Any] | None = None, trust_env: bool = True):
        self.folder, self.spec, self._settings = folder, spec, settings
        self.trust_env = trust_env  # false: the spec is a file's, which may not name code
        self._saved_at: int | None = None  # step of the newest checkpoint of this sitting
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.metrics = JsonLines(folder / "metrics.jsonl")
        self.timing = JsonLines(folder / "timing.jsonl")

    @classmethod
    def create(cls, folder: str | Path, spec: RunSpec) -> "Run":
        folder = Path(folder)
        run = cls(folder, spec)
        # One that failed before its first row is not in the way.
        if (folder / "run.json").exists() and run.begun:
            raise ConfigError(
                f"{folder} already holds a run: continue it (Run.open, or scopil resume), or name another folder."
            )
        demos = None if spec.demos is None else storage.load_demos(spec.demos, run.env())
        _try_rules(run.rules(), demos, run.env())
        run._trainer(demos)  # refuses what cannot be trained before anything is written
        run.demos_file.unlink(missing_ok=True)
        if demos is not None:
            storage.write(demos, run.demos_file)
        write_atomically(folder / "versions.json", json.dumps(_versions(), indent=2).encode() + b"\n")
        write_atomically(folder / "run.json", json.dumps(run.note(), indent=2).encode() + b"\n")
        return run

    @classmethod
    def open(cls, folder: str | Path, algorithm: Algorithm | None = None, *, trust_env: bool = False) -> "Run":
        """`algorithm` is needed to go on with a run of an algorithm that is not registered, and `trust_env` to import
        the module that the environment's id names (`module:Id-v0`)."""
        folder = Path(folder)
        _refuse_odd_entries(folder)
        try:
            note = parse_json((folder / "run.json").read_bytes())
            if note.pop("format", None) != FORMAT:
                raise CheckpointError(
                    f"{folder} was made by another version of scopil; run folders from before 0.2 cannot be read: "
                    f"train again."
                )
            for key in ("algorithm", "title", "env", "demos", "rules"):  # they are printed
                if note.get(key) is not None and not is_line(note[key]):
                    raise CheckpointError(f"{folder}/run.json is damaged: {key} is not a line of text.")
            name, title = note.pop("algorithm"), note.pop("title")
            if algorithm is not None and algorithm.name != name:
                raise CheckpointError(f"{folder} is a run of {name}, not of {algorithm.name}.")
            algorithm = algorithm or registered().get(name) or stand_in(name, title)
            if not isinstance(note["config"], dict):
                raise ValueError("config is not a dict")
            return cls(folder, RunSpec(algorithm=algorithm, **note), note["config"], trust_env)
        except OSError as error:
            inside = sorted(file.parent.name for file in folder.glob("*/run.json"))
            way_out = f" It holds run folders, name some: {folder / inside[0]}." if inside else ""
            if (folder / "study.json").exists():
                way_out = " It holds a study: scopil study NAME continues it, scopil report shows it."
            raise CheckpointError(
                f"{folder} is not a run folder: no readable run.json ({error.strerror}).{way_out}"
            ) from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{folder}/run.json is damaged: {error}.") from error

    @property
    def finished(self) -> bool:
        return self.policy_file.exists()

    @property
    def begun(self) -> bool:
        """Whether there is anything to lose: a row, a checkpoint, a policy, or a process that is training it."""
        found = self.finished or self.checkpoints.files() or self.metrics.rows()
        return bool(found) or is_locked(self.folder / ".lock")

    @property
    def policy_file(self) -> Path:
        return self.folder / "policy.safetensors"

    @property
    def best_file(self) -> Path:
        return self.folder / "best.safetensors"

    @property
    def demos_file(self) -> Path:
        return self.folder / "demos.npz"

    def newest_policy(self) -> Path:
        """The file to play from: the final policy, or the newest whole checkpoint while the run is young."""
        newest = self.policy_file if self.finished else self.checkpoints.newest()
        if newest is None:
            raise CheckpointError(f"{self.folder} has no policy and no checkpoint yet; train it first.")
        return newest

    def policy(self) -> tuple[Policy, int]:
        """The newest policy, and the environment steps it was trained for. Of a finished run only the policy file is
        read; of one under way, the newest checkpoint."""
        file = self.newest_policy()
        if self.finished:
            policy, note = read_policy(file)
        else:
            policy, note = self.spec.algorithm.policy(self.learner()), read_note(file)
        if type(note.get("env_steps")) is not int:
            raise CheckpointError(f"{file} is damaged: it does not say its env_steps.")
        return policy, note["env_steps"]

    def learner(self) -> Any:
        """The newest state of the algorithm."""
        refuse_stand_in(self.spec.algorithm)
        like = self._trainer(self.demos()).shape().learner
        return load_tree(self.newest_policy(), like, within="learner")[0]

    def learned_cost(self) -> Callable[[Array, Array], Array] | None:
        """(observations, actions) → cost, where the algorithm learns one."""
        cost = self.spec.algorithm.learned_cost
        return None if cost is None else partial(cost, self.learner())

    def env(self) -> BatchEnv:
        return self._env

    @cached_property
    def _env(self) -> BatchEnv:
        return open_env(id_in_file(self.spec.env, self.folder, self.trust_env))

    def rules(self) -> Rules | None:
        """The rules that its evaluations count by; None: what the environment reports."""
        return self._rules

    @cached_property
    def _rules(self) -> Rules | None:
        name = self.spec.rules
        return None if name is None else load_rules(rules_in_file(name, self.folder, self.trust_env))

    def demos(self) -> Demonstrations | None:
        """The run's own copy: whatever becomes of the original, the run goes on with what it began with."""
        return None if self.spec.demos is None else storage.read(self.demos_file)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Every setting of the algorithm, those at their defaults too. A run that was opened keeps those it began
        with."""
        if self._settings is not None:
            return self._settings
        return json.loads(json.dumps(asdict(self.spec.build_config(self.env()))))  # as a file holds them

    @property
    def digest(self) -> str:
        """Of all that decides how it ends, but for its demonstrations, whose place may change."""
        note = self.note()
        kept = {key: note[key] for key in ("algorithm", "env", "rules", "seed", "steps", "config")}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()

    def _trainer(self, demos: Demonstrations | None) -> Trainer:
        loop = make_loop(self.spec.algorithm, self.env(), demos)
        return Trainer(loop, self.spec.build_config(self.env()), self.spec.seed)

    def extended(self, steps: int) -> "Run":
        """The same run with a larger budget: training goes on from its last checkpoint."""
        if steps < self.spec.steps:
            raise ConfigError(
                f"steps = {steps:,}; {self.folder} has {self.spec.steps:,} already: want more.", setting="steps"
            )
        longer = Run(self.folder, replace(self.spec, steps=steps), self._settings, self.trust_env)
        if steps > self.spec.steps:
            with self._locked():
                # In this order: without its policy a run is unfinished, and a kill in between ends it as before.
                self.policy_file.unlink(missing_ok=True)
                write_atomically(self.folder / "run.json", json.dumps(longer.note(), indent=2).encode() + b"\n")
        return longer

    def train(
        self, observe: Callable[[TrainStatus], bool | None] = lambda status: None, between: Between = lambda steps: None
    ) -> bool:
        """Train to the end of the budget, or until `observe` or `between` returns True; a checkpoint is saved either
        way. Returns whether the budget is spent. `between` is that of `Trainer.advance`."""
        refuse_stand_in(self.spec.algorithm)
        if self.finished:
            return True
        with self._locked():
            for leftover in (*self.folder.glob(".*.tmp"), *self.checkpoints.folder.glob(".*.tmp")):
                leftover.unlink()  # of a write that was killed
            self._saved_at = None
            trainer = self._trainer(self.demos())
            state = self.checkpoints.load_newest(trainer.shape())
            if state is not None:
                trainer.state = state
                self._warn_of_other_versions()
                self._warn_of_new_episodes(state)
            for lines in (self.metrics, self.timing):
                lines.keep(lambda row: row["env_steps"] <= trainer.env_steps)
            try:
                with tensorboard(self.folder, trainer.env_steps) as board:
                    listener = self._listener(trainer, board, observe, between)
                    trainer.advance(self.spec.steps, listener, every=self._every(), between=between)
                self._save_checkpoint(trainer.env_steps, trainer.state)
            except (DivergedError, EnvError) as error:
                raise type(error)(f"{error} {self._what_is_left()}") from error
            finally:
                self.env().close()
            done = trainer.env_steps >= self.spec.steps
            if done:
                save_learner(self.policy_file, self.spec.algorithm, trainer.state.learner, self.note(trainer))
        return done

    def _listener(
        self,
        trainer: Trainer,
        board: Callable[[int, dict[str, Any]], None],
        observe: Callable[[TrainStatus], bool | None],
        between: Between,
    ) -> Callable[[TrainStatus], bool | None]:
        """Evaluates, logs and saves as the chunks go by. Lines are written before the checkpoint after them."""
        evaluate = self._evaluator(trainer.loop.env, between)
        begun, at = time.monotonic(), trainer.env_steps
        kept = self.timing.rows()
        before = kept[-1].get("seconds", 0.0) if kept else 0.0  # spent by earlier sittings
        last, best = at, self._best_score()

        def due(every: int, step: int) -> bool:
            """The first chunk to end at or after a multiple of `every`, and the last one."""
            return step // every > last // every or step >= self.spec.steps

        def observe_all(status: TrainStatus) -> bool | None:
            nonlocal last, best
            step = status.env_steps
            row = {"env_steps": step} | status.metrics
            if due(self.spec.eval_every, step):
                found = evaluate(status)
                row |= found
                if found and (best is None or _score(found) > best):
                    best = _score(found)
                    note = self.note(trainer) | {"best": found}
                    save_learner(self.best_file, self.spec.algorithm, status.state.learner, note)
            self.metrics.append(row)
            board(step, row)
            seconds = time.monotonic() - begun
            rate = (step - at) / max(seconds, 1e-6)  # a coarse clock may stand still
            self.timing.append({"env_steps": step, "steps_per_second": rate, "seconds": before + seconds})
            stop = observe(status._replace(metrics=row))
            if stop or due(self.spec.checkpoint_every, step):
                self._save_checkpoint(step, status.state)
            last = step
            return stop

        return observe_all

    def _every(self) -> list[int]:
        """Where chunks have to end, beside their usual length."""
        short = self.spec.steps <= training.CHUNK
        log_every = self.spec.log_every or (max(1, self.spec.steps // 10) if short else training.CHUNK)
        wanted = log_every, self.spec.eval_every, self.spec.checkpoint_every
        return [every for every in wanted if every % training.CHUNK]

    def _save_checkpoint(self, step: int, state: Any) -> None:
        if step != self._saved_at:
            self.checkpoints.save(step, state, self.note() | {"env_steps": step})
            self._saved_at = step

    def _best_score(self) -> tuple[float, float] | None:
        """Of the best policy that is kept; None where there is none."""
        try:
            return _score(read_note(self.best_file)["best"])
        except (CheckpointError, OSError, KeyError):
            return None

    def note(self, trainer: Trainer | None = None) -> dict[str, Any]:
        """What run.json, and every policy file, says of the run."""
        spec = {
            f: getattr(self.spec, f)
            for f in ("env", "demos", "rules", "seed", "steps", "eval_every", "checkpoint_every")
        }
        note = {"format": FORMAT, "algorithm": self.spec.algorithm.name, "title": self.spec.algorithm.title, **spec}
        if self.spec.log_every is not None:
            note["log_every"] = self.spec.log_every
        note["config"] = self.settings
        return note if trainer is None else note | {"env_steps": trainer.env_steps}

    def _evaluator(self, env: BatchEnv, between: Between) -> Callable[[TrainStatus], dict[str, float]]:
        """Greedy episodes, from the demonstrated starts if there are any. They are logged, never fed back. Nothing
        where `between` asks to stop on the way: on a slow environment they take minutes."""
        first = where.watched_starts(env, self.demos() or where.demos_for(self.spec.env))
        play, policy, rules = player(env, "greedy"), self.spec.algorithm.policy, self.rules()

        def evaluate(status: TrainStatus) -> dict[str, float]:
            def advance(ended: int) -> None:
                if isinstance(env, HostEnv) and between(status.env_steps):
                    raise _Stopped

            key = jax.random.fold_in(jax.random.key(self.spec.seed), status.env_steps)
            try:
                episodes = play(policy(status.state.learner), first, key, advance)
            except _Stopped:
                return {}
            return {f"eval/{k}": v for k, v in average(measure_all(episodes, env, rules)).items()}

        return evaluate

    def _what_is_left(self) -> str:
        newest = self.checkpoints.newest()
        if newest is None:
            return f"{self.folder} has no checkpoint yet."
        return f"The checkpoint of step {int(newest.stem):,} is good: {self.command('resume')}."

    def command(self, verb: str) -> str:
        """What to type for this folder."""
        return f"scopil {verb} {self.folder}{trust_option(self.spec.env, self.spec.rules)}"

    def _warn_of_new_episodes(self, state: Any) -> None:
        if state.env is not None and self.env().stale(state.env):
            warnings.warn(
                f"a checkpoint cannot hold what is inside {self.spec.env}: its episodes begin anew here, and the run "
                f"will not end exactly as an undisturbed one. Everything else goes on.",
                stacklevel=3,
            )

    def _warn_of_other_versions(self) -> None:
        try:
            begun = parse_json((self.folder / "versions.json").read_bytes())
        except (OSError, ValueError):
            return
        if not isinstance(begun, dict):
            return
        now = _versions()
        if odd := [f"{name} {begun.get(name)}, now {now[name]}" for name in now if begun.get(name) != now[name]]:
            warnings.warn(
                f"{self.folder} was begun with {'; '.join(odd)}: it may not end exactly as an undisturbed run.",
                stacklevel=3,
            )

    @contextmanager
    def _locked(self):
        """One process per folder; the lock is released with the process, however it ends."""
        _refuse_odd_entries(self.folder)
        try:
            held = lock(self.folder / ".lock", wait=0.3)  # who looks whether it is held, holds it for a moment
        except Locked as error:
            raise ConfigError(f"{self.folder} is being trained by another process.") from error
        with held:
            yield


def _refuse_odd_entries(folder: Path) -> None:
    if odd := odd_entry(folder):
        raise CheckpointError(f"{odd}; want plain files in a run folder. Remove it, or put a copy in its place.")


def _try_rules(rules: Rules | None, demos: Demonstrations | None, env: BatchEnv) -> None:
    """On a demonstrated step: a rule that fails would be found at the first evaluation, hours later."""
    if rules is None or demos is None:
        return
    e = demos.episodes[0]
    step = replace(e, observations=e.observations[:2], actions=e.actions[:1], rewards=None, info={})
    functions = rules.known_to([step])
    if functions is not None:
        with_rules([step], functions, env)


def _score(evaluation: dict[str, float]) -> tuple[float, float]:
    """Of an evaluation as it is logged."""
    return score({name.removeprefix("eval/"): value for name, value in evaluation.items()})


def _whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def save_learner(path: Path, algorithm: Algorithm, learner: Any, note: dict[str, Any]) -> None:
    """A policy file: the policy, which is read by itself, and the whole learner, to go on from."""
    policy = algorithm.policy(learner)
    save_tree(path, {"policy": policy, "learner": learner}, note | {"form": policy.form()})


def _versions() -> dict[str, str]:
    """What the last digit of a number depends on."""
    versions = {name: version(name) for name in PACKAGES}
    versions |= {"python": platform.python_version(), "machine": platform.machine()}
    return versions | {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
