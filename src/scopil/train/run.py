"""A run folder: one training run on disk.

run.json              algorithm, environment, demonstrations, rules, seed, budget, every setting
versions.json         versions of the packages at the start
demos.npz             a copy of the demonstrations, if there are any
code/                 copies of the user's files that define the environment, rules and own features, if there are any
metrics.jsonl         one row per chunk of training; an interrupted and resumed run writes the same rows
timing.jsonl          wall-clock times
checkpoints/          the two newest complete training states
policy.safetensors    the final policy and the final state of the learner
best.safetensors      the policy and the state of the learner at the best evaluation during training
log.txt               output of the process, if a study or the studio started it
"""

import json
import os
import platform
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import version
from numbers import Integral
from pathlib import Path
from shutil import rmtree
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from scopil.algos.base import Algorithm, head_for, refuse_stand_in, spaces_of, stand_in
from scopil.config import OWN_FEATURES, build, checked_seed, code_in, with_code
from scopil.data import storage
from scopil.data.dataset import Demonstrations
from scopil.envs.base import BatchEnv
from scopil.envs.gym_env import open_env
from scopil.errors import CheckpointError, ConfigError, DivergedError, EnvError
from scopil.eval import starts as where
from scopil.eval.episodes import play
from scopil.eval.measures import Measures, average, measure_all, score
from scopil.eval.rules import Rules, check_keys, judge_of, load_rules, with_rules
from scopil.files import Locked, is_line, is_locked, lock, odd_entry, parse_json, write_atomically
from scopil.policy import Policy, policy_from
from scopil.registry import registered
from scopil.serialization import as_tree, branch, read_arrays, read_note, save_tree
from scopil.train import trainer as training
from scopil.train.checkpoint import Checkpoints
from scopil.train.code import FOLDER as CODE
from scopil.train.code import Code
from scopil.train.demo_data import fitting
from scopil.train.logging import JsonLines, tensorboard
from scopil.train.loop import Loop, make_loop
from scopil.train.trainer import Between, Trainer, TrainStatus, Unobserved
from scopil.user_code import load_object

FORMAT = 3  # of run.json
LOG = "log.txt"
# Logged by algorithms that learn novelty: of the policy, of its clone, of held-out demonstrations.
NOVELTY = ("occupancy/cost", "occupancy/clone_cost", "occupancy/demo_cost")
BUDGET = -(2**31)  # in place of a number of steps: the algorithm's budget
PACKAGES = ("scopil", "jax", "jaxlib", "numpy", "equinox", "optax", "gymnasium", "safetensors")


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """The definition of a run. Two runs with equal specs end with equal parameters."""

    algorithm: Algorithm
    env: str
    demos: str | None = None
    rules: str | None = None  # the rules by which evaluations count violations; never given to the learner
    seed: int = 0
    steps: int = BUDGET  # environment steps; 0: the policy before the first step
    eval_every: int = 10_000  # steps between evaluations
    checkpoint_every: int = 50_000  # steps between checkpoints
    log_every: int | None = None  # steps between rows of metrics; None: 5 000, or a tenth of a shorter run
    config: dict[str, Any] = field(default_factory=dict)  # settings that differ from the algorithm's defaults

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", checked_seed(self.seed))
        object.__setattr__(self, "steps", self.algorithm.budget if self.steps == BUDGET else self.steps)
        for name in ("steps", "eval_every", "checkpoint_every"):
            value, least = getattr(self, name), 0 if name == "steps" and self.algorithm.prepare is not None else 1
            if not _whole(value) or value < least:
                wanted = f"at least {least}" if _whole(value) else "a whole number"
                raise ConfigError(f"{name} = {value}; want {wanted}.", setting=name)
        if self.steps >= 2**31:
            raise ConfigError(f"steps = {self.steps}; want fewer than 2³¹: the counter has 32 bits.", setting="steps")
        if self.log_every is not None and not (_whole(self.log_every) and 1 <= self.log_every <= training.CHUNK):
            wanted = f"1 to {training.CHUNK:,}: a row is the mean of the steps since the previous row"
            raise ConfigError(f"log_every = {self.log_every}; want {wanted}.", setting="log_every")

    def build_config(self, env: BatchEnv) -> Any:
        """The config: the given settings, and the defaults for the environment's kind of actions for all others."""
        return build(self.algorithm.config, self.config, head_for(env.action_space).continuous)


class Run:
    """A run folder. `create` makes one, `open` opens an existing one, `train` continues from the newest checkpoint."""

    def __init__(
        self,
        folder: Path,
        spec: RunSpec,
        settings: dict[str, Any] | None = None,
        trust_env: bool = True,
        code: Code | None = None,
    ):
        self.folder, self.spec, self._settings = folder, spec, settings
        self.last_measures: list[Measures] = []  # of every episode of the newest evaluation that this process made
        self.trust_env = trust_env  # whether code in the folder may run that this user's key did not sign
        self.code = code  # None: a run that was not created yet; the caller names its environment and rules
        self._saved_at: int | None = None  # step of the newest checkpoint that this process wrote
        self._demos: Demonstrations | None = None  # set by `create` and `train`
        self.policy_file, self.best_file = folder / "policy.safetensors", folder / "best.safetensors"
        self.demos_file = folder / "demos.npz"
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.metrics = JsonLines(folder / "metrics.jsonl")
        self.timing = JsonLines(folder / "timing.jsonl")

    @classmethod
    def create(cls, folder: str | Path, spec: RunSpec) -> "Run":
        """A new run folder. Raises, before anything is written, if the spec cannot be trained."""
        folder = Path(folder)
        run = cls(folder, spec)
        # A run that failed before its first row of metrics may be replaced.
        if (folder / "run.json").exists() and run.begun:
            raise ConfigError(
                f"{folder} already holds a run: continue it (Run.open, or scopil resume), or name another folder."
            )
        run._demos = None if spec.demos is None else storage.load_demos(spec.demos, run.env())
        if run._demos is not None:
            fitting(run._demos, run.env())
        if (rules := run.rules()) is not None:
            _try_rules(rules, run._demos, run.env())
            run._rules = replace(rules, checked=True)
        run._trainer()
        run.demos_file.unlink(missing_ok=True)
        if run._demos is not None:
            storage.write(run._demos, run.demos_file)
        write_atomically(folder / "versions.json", json.dumps(_versions(), indent=2).encode() + b"\n")
        rmtree(folder / CODE, ignore_errors=True)
        run.code = Code.copy(folder, spec.env, spec.rules, code_in(run.settings))
        run._write_note()
        return run

    def _write_note(self) -> None:
        note = self.note() | ({} if self.code is None else self.code.note())
        write_atomically(self.folder / "run.json", json.dumps(note, indent=2).encode() + b"\n")

    @classmethod
    def open(cls, folder: str | Path, algorithm: Algorithm | None = None, *, trust_env: bool = False) -> "Run":
        """An existing run folder.

        Args:
            folder: the run folder.
            algorithm: needed to continue a run of an algorithm that is not registered.
            trust_env: whether to run the code that the folder names as environment and rules, if another user made the
                run or if the code was changed.
        """
        folder = Path(folder)
        _refuse_odd_entries(folder)
        try:
            note = parse_json((folder / "run.json").read_bytes())
            if (found := note.pop("format", None)) != FORMAT:
                raise CheckpointError(
                    f"{folder} has format {str(found)[:20]}, this version of scopil reads {FORMAT}: run folders of "
                    f"other versions cannot be read; train again."
                )
            for key in ("algorithm", "title", "env", "demos", "rules"):  # commands and reports print these
                if note.get(key) is not None and not is_line(note[key]):
                    raise CheckpointError(f"{folder}/run.json is damaged: {key} is not a line of text.")
            name, title = note.pop("algorithm"), note.pop("title")
            if algorithm is not None and algorithm.name != name:
                raise CheckpointError(f"{folder} is a run of {name}, not of {algorithm.name}.")
            algorithm = algorithm or registered().get(name) or stand_in(name, title)
            if not isinstance(note["config"], dict):
                raise ValueError("config is not a dict")
            code = Code.read(folder, note)
            return cls(folder, RunSpec(algorithm=algorithm, **note), note["config"], trust_env, code)
        except OSError as error:
            inside = sorted(file.parent.name for file in folder.glob("*/run.json"))
            advice = f" It contains run folders, for example {folder / inside[0]}." if inside else ""
            if (folder / "study.json").exists():
                advice = " It holds a study: scopil study NAME continues it, scopil report shows it."
            raise CheckpointError(
                f"{folder} is not a run folder: no readable run.json ({error.strerror}).{advice}"
            ) from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{folder}/run.json is damaged: {error}.") from error

    @property
    def finished(self) -> bool:
        return self.policy_file.exists()

    @property
    def begun(self) -> bool:
        """Whether the run has a row of metrics of training, a checkpoint, a policy, or a process that trains it."""
        found = self.finished or self.checkpoints.files() or any(row["env_steps"] for row in self.metrics.rows())
        return bool(found) or self.training

    @property
    def training(self) -> bool:
        """Whether a process is training the run."""
        return is_locked(self.folder / ".lock")

    @property
    def steps_done(self) -> int:
        """Environment steps according to the newest row of timing.jsonl or the newest checkpoint."""
        if self.finished:
            return self.spec.steps
        saved = [int(file.stem) for file in self.checkpoints.files()[-1:] if file.stem.isdecimal()]
        return min(max(int(self.timing.last().get("env_steps", 0)), *saved, 0), self.spec.steps)

    def newest_policy(self) -> Path:
        """The file of the final policy; before the end of training, the newest complete checkpoint."""
        return self.policy_file if self.finished else self._newest_checkpoint()[0]

    def newest_arrays(self) -> tuple[Path, dict[str, np.ndarray], dict[str, Any]]:
        """The file of `newest_policy`, its arrays by name, and its note."""
        return (self.policy_file, *read_arrays(self.policy_file)) if self.finished else self._newest_checkpoint()

    def _newest_checkpoint(self) -> tuple[Path, dict[str, np.ndarray], dict[str, Any]]:
        if (found := self.checkpoints.read_newest()) is None:
            raise CheckpointError(f"{self.folder} has no policy and no checkpoint yet; train it first.")
        return found

    def policy(self) -> tuple[Policy, int]:
        """The newest policy, and the environment steps it was trained for."""
        file, arrays, note = self.newest_arrays()
        if self.finished:
            policy = policy_from(arrays, note, file)
        else:
            policy = self.spec.algorithm.policy(self._learner(file, arrays))
        if type(note.get("env_steps")) is not int:
            raise CheckpointError(f"{file} is damaged: env_steps is missing from its note.")
        return policy, note["env_steps"]

    def learner(self) -> Any:
        """The newest state of the algorithm."""
        file, arrays, _ = self.newest_arrays()
        return self._learner(file, arrays)

    def _learner(self, file: Path, arrays: dict[str, np.ndarray]) -> Any:
        refuse_stand_in(self.spec.algorithm)
        env = self.env()
        spaces, cfg = spaces_of(env.observation_space, env.action_space, env.spaces), self.config
        like = jax.eval_shape(lambda: self.spec.algorithm.init(jax.random.key(0), spaces, cfg))
        return as_tree(branch(arrays, "learner"), like, file)

    def learned_cost(self) -> Callable[[Array, Array], Array] | None:
        """(observations, actions) → cost, if the algorithm learns one."""
        cost = self.spec.algorithm.learned_cost
        return None if cost is None else partial(cost, self.learner())

    def env(self) -> BatchEnv:
        return self._env

    @cached_property
    def _env(self) -> BatchEnv:
        return open_env(self.env_name())

    def env_name(self) -> str:
        """The name that opens the run's environment in this process. Raises EnvError if its code may not run."""
        return self.spec.env if self.code is None else self.code.env_name(self.trust_env)

    def trust_if_named(self, env: str, rules: str | None, features: str | None) -> None:
        """Trust the run if its code equals the code that the caller names."""
        self.trust_env = self.trust_env or (self.code is not None and self.code.is_copy_of(env, rules, features))

    @cached_property
    def config(self) -> Any:
        """The config, with the function of own features. Raises ConfigError if its code may not run."""
        return replace(self.spec, config=with_code(self.spec.config, self.load_features)).build_config(self.env())

    def load_features(self, name: str) -> Any:
        """The function of own features that the run names."""
        here = name if self.code is None else self.code.features_name(self.trust_env)
        if here is None or (self.code is not None and name != self.code.features):
            raise ConfigError(f"features = {name}; want those that {self.folder}/run.json names.")
        return load_object(here, OWN_FEATURES)

    def rules(self) -> Rules | None:
        """The rules by which evaluations count violations; None: by the costs that the environment reports."""
        return self._rules

    @cached_property
    def _rules(self) -> Rules | None:
        name = self.spec.rules if self.code is None else self.code.rules_name(self.trust_env)
        checked = self.code is not None  # by `create`
        return None if name is None else replace(load_rules(name), source=self.spec.rules, checked=checked)

    def demos(self) -> Demonstrations | None:
        """The run's copy of the demonstrations. If this process neither created nor trained the run, the file is
        read at each call and not cached, because reports open hundreds of runs."""
        if self._demos is not None or self.spec.demos is None:
            return self._demos
        return storage.read(self.demos_file)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Every setting of the algorithm, defaults included. An opened run has the settings of its run.json."""
        if self._settings is not None:
            return self._settings
        return json.loads(json.dumps(asdict(self.spec.build_config(self.env()))))  # as in run.json

    @cached_property
    def _loop(self) -> Loop:
        env, rules = self.env(), self.rules()
        made = make_loop(self.spec.algorithm, env, self._demos)
        if rules is None or "true_cost" in self.spec.algorithm.wants:
            return made
        return replace(made, counts=env.count_by(judge_of(rules, env)))

    def overshoot(self) -> str | None:
        """A remark if the run takes many more steps than its budget."""
        return self._loop.overshoot(self.config, self.spec.steps)

    def _trainer(self) -> Trainer:
        return Trainer(self._loop, self.config, self.spec.seed)

    def extended(self, steps: int, demos: str | None = None) -> "Run":
        """The same run with another budget; training continues from its newest checkpoint, with other demonstrations if
        `demos` names them."""
        if demos is not None and self.spec.demos is None:
            raise ConfigError(f"demos = {demos}; {self.folder} was trained without demonstrations.", setting="demos")
        least = self.steps_done + (demos is not None)
        if steps < least:
            found = f"{self.folder} has {self.steps_done:,} already"
            raise ConfigError(f"steps = {steps:,}; {found}; want at least {least:,}.", setting="steps")
        spec = replace(self.spec, steps=steps, demos=demos or self.spec.demos)
        longer = Run(self.folder, spec, self._settings, self.trust_env, self.code)
        if demos is not None:
            longer._demos = storage.load_demos(demos, longer.env())
            longer._trainer()  # raises if they cannot be learned from
        if spec != self.spec:
            with self._locked():
                # In this order: a process killed in between leaves an unfinished run with the old budget.
                self.policy_file.unlink(missing_ok=True)
                if longer._demos is not None:
                    storage.write(longer._demos, self.demos_file)
                longer._write_note()
        return longer

    def train(
        self,
        observe: Callable[[TrainStatus], bool | None] = lambda status: None,
        between: Between = lambda steps: None,
        doing: Callable[[str], None] = lambda what: None,
    ) -> bool:
        """Train to the end of the budget, or until `observe` or `between` (as in `Trainer.advance`) returns True, and
        save a checkpoint. `doing` is told what happens before the first chunk. Returns whether the budget is used up
        and the last evaluation is written."""
        refuse_stand_in(self.spec.algorithm)
        if self.finished:
            return True
        with self._locked():
            for leftover in (*self.folder.glob(".*.tmp"), *self.checkpoints.folder.glob(".*.tmp")):
                leftover.unlink()  # a temporary file of an interrupted write
            self._saved_at = None
            self._demos = self.demos()
            trainer = self._trainer()
            if (found := self.checkpoints.read_newest()) is not None:
                file, arrays, _ = found
                trainer.state = as_tree(arrays, trainer.shape(paused=bool(branch(arrays, "chunk"))), file)
                self._warn_of_differences(trainer.state)
            for lines in (self.metrics, self.timing):
                lines.keep(lambda row: found is not None and row["env_steps"] <= trainer.observed_steps)
            try:
                with tensorboard(self.folder, trainer.observed_steps) as board:
                    if found is None:
                        self._evaluate_untrained(trainer, board, between, doing)
                    listener = self._listener(trainer, board, observe, between)
                    trainer.advance(self.spec.steps, listener, every=self._every(), between=between)
                self._save_checkpoint(trainer.env_steps, trainer.state_to_save)
            except Unobserved:  # stopped before training
                return False
            except (DivergedError, EnvError) as error:
                found = self.checkpoints.read_newest()
                advice = f"{self.folder} has no checkpoint yet."
                if found is not None:
                    advice = (
                        f"The checkpoint of step {int(found[0].stem):,} is intact; continue: {self.command('resume')}."
                    )
                raise type(error)(f"{error} {advice}") from error
            finally:
                self.env().close()
            done = trainer.observed_steps >= self.spec.steps
            if done:
                save_learner(self.policy_file, self.spec.algorithm, trainer.state.learner, self.note(trainer))
        return done

    def _evaluate_untrained(
        self,
        trainer: Trainer,
        board: Callable[[int, dict[str, Any]], None],
        between: Between,
        doing: Callable[[str], None],
    ) -> None:
        """Evaluate the policy before training and log it as step 0. It never becomes the best policy."""
        if self.spec.algorithm.preparing:
            doing(self.spec.algorithm.preparing)
        begun = TrainStatus(0, {}, trainer.state)
        doing("evaluation before training")
        row = {"env_steps": 0} | self._evaluator(trainer.loop.env, between)(begun)
        self.metrics.append(row)
        board(0, row)
        doing("compiling")

    def _listener(
        self,
        trainer: Trainer,
        board: Callable[[int, dict[str, Any]], None],
        observe: Callable[[TrainStatus], bool | None],
        between: Between,
    ) -> Callable[[TrainStatus], bool | None]:
        """The observer that evaluates, logs and saves. It writes a row before the checkpoint of the same step."""
        evaluate = self._evaluator(trainer.loop.env, between)
        begun, at = time.monotonic(), trainer.env_steps
        kept = self.timing.rows()
        before = kept[-1].get("seconds", 0.0) if kept else 0.0  # seconds of earlier processes
        last, best = trainer.observed_steps, self._best_score()

        def due(every: int, step: int) -> bool:
            """True for the first chunk that ends at or after a multiple of `every`, and for the last chunk."""
            return step // every > last // every or step >= self.spec.steps

        def observe_all(status: TrainStatus) -> bool | None:
            nonlocal last, best
            step = status.env_steps
            row = {"env_steps": step} | status.metrics
            if due(self.spec.eval_every, step):
                found = evaluate(status)
                row |= found
                found |= {name: row[name] for name in NOVELTY if name in row}
                if best is None or _score(found) > best:
                    best = _score(found)
                    note = self.note(trainer) | {"best": found}
                    save_learner(self.best_file, self.spec.algorithm, status.state.learner, note)
                if (excess := _excess(found)) > 0 and step > self.spec.eval_every:
                    warnings.warn(
                        f"step {step:,}: the policy is more novel than the clone it began as, by {excess:.3f} a step. "
                        f"{self.best_file.name} keeps the best policy.",
                        stacklevel=2,
                    )
            self.metrics.append(row)
            board(step, row)
            seconds = time.monotonic() - begun
            rate = (step - at) / max(seconds, 1e-6)  # a coarse clock may show no difference
            self.timing.append({"env_steps": step, "steps_per_second": rate, "seconds": before + seconds})
            stop = observe(status._replace(metrics=row))
            if stop or due(self.spec.checkpoint_every, step):
                self._save_checkpoint(step, status.state)
            last = step
            return stop

        return observe_all

    def _every(self) -> list[int]:
        """Intervals in steps: chunks end at their multiples, and at the multiples of the usual chunk length."""
        short = self.spec.steps <= training.CHUNK
        log_every = self.spec.log_every or (max(1, self.spec.steps // 10) if short else training.CHUNK)
        wanted = log_every, self.spec.eval_every, self.spec.checkpoint_every
        return [every for every in wanted if every % training.CHUNK]

    def _save_checkpoint(self, step: int, state: Any) -> None:
        if step != self._saved_at:
            self.checkpoints.save(step, state, self.note() | {"env_steps": step})
            self._saved_at = step

    def _best_score(self) -> tuple[float, float] | None:
        """Score of best.safetensors; None if there is no such file."""
        try:
            return _score(read_note(self.best_file)["best"])
        except (CheckpointError, OSError, KeyError):
            return None

    def note(self, trainer: Trainer | None = None) -> dict[str, Any]:
        """The content of run.json and of the note of every policy file."""
        names = ("env", "demos", "rules", "seed", "steps", "eval_every", "checkpoint_every")
        spec = {name: getattr(self.spec, name) for name in names}
        note = {"format": FORMAT, "algorithm": self.spec.algorithm.name, "title": self.spec.algorithm.title, **spec}
        if self.spec.log_every is not None:
            note["log_every"] = self.spec.log_every
        note["config"] = self.settings
        return note if trainer is None else note | {"env_steps": trainer.env_steps, "columns": self.env().spaces.note}

    def _evaluator(self, env: BatchEnv, between: Between) -> Callable[[TrainStatus], dict[str, float]]:
        """Evaluation by greedy episodes, from the demonstrated starts if there are any. The measures are logged and
        never reach the learner. In a host environment `between` may stop an evaluation; it then raises `Unobserved`."""
        first = where.watched_starts(env, self._demos or where.demos_for(self.spec.env))
        policy, rules = self.spec.algorithm.policy, self.rules()

        def evaluate(status: TrainStatus) -> dict[str, float]:
            def advance(ended: int) -> None:
                if env.slow and between(status.env_steps):
                    raise Unobserved

            key = jax.random.fold_in(jax.random.key(self.spec.seed), status.env_steps)
            episodes = play(env, policy(status.state.learner), first, key, advance=advance)
            self.last_measures = measure_all(episodes, env, rules)
            found = average(self.last_measures) | {"episodes": float(len(episodes))}
            return {f"eval/{k}": v for k, v in found.items()}

        return evaluate

    def command(self, verb: str) -> str:
        """The command `scopil VERB FOLDER` for this run, with the options that it needs."""
        return f"scopil {verb} {self.folder}{'' if self.code is None or self.code.own else ' --trust-env'}"

    def _warn_of_differences(self, state: Any) -> None:
        """Warn if the result may differ from that of an uninterrupted run: versions changed, or episodes restart."""
        ends = "the result may differ from that of an uninterrupted run."
        with suppress(OSError, ValueError):
            begun, now = parse_json((self.folder / "versions.json").read_bytes()), _versions()
            odd = [name for name in now if isinstance(begun, dict) and begun.get(name) != now[name]]
            if odd:
                changes = "; ".join(f"{name} {begun.get(name)}, now {now[name]}" for name in odd)
                warnings.warn(f"{self.folder} was started with {changes}: {ends}", stacklevel=3)
        if state.env is not None and self.env().stale(state.env):
            warnings.warn(
                f"a checkpoint cannot hold the internal state of {self.spec.env}: its episodes restart; {ends}",
                stacklevel=3,
            )

    def _locked(self) -> AbstractContextManager[Any]:
        """A lock: one process per folder. The operating system releases it when the process ends."""
        _refuse_odd_entries(self.folder)
        try:
            return lock(self.folder / ".lock", wait=0.3)  # is_locked() of another process may hold the lock briefly
        except Locked as error:
            raise ConfigError(f"{self.folder} is being trained by another process.") from error


def _refuse_odd_entries(folder: Path) -> None:
    if odd := odd_entry(folder):
        raise CheckpointError(f"{odd}; want plain files in a run folder. Remove the entry or replace it by a copy.")


def _try_rules(rules: Rules, demos: Demonstrations | None, env: BatchEnv) -> None:
    """Look for the rules' keys of `info`, and apply the rules to one demonstrated step, so that a faulty rule fails
    before training and not during it."""
    check_keys(rules, [] if demos is None else demos.episodes, env)
    if demos is None:
        return
    e = demos.episodes[0]
    step = replace(e, observations=e.observations[:2], actions=e.actions[:1], rewards=None, info={})
    functions = rules.known_to([step])
    if functions is not None:
        with_rules([step], functions, env)


def _excess(evaluation: dict[str, float]) -> float:
    """Novelty of the policy above that of its clone and of the demonstrations, whichever is more; else 0."""
    own, *others = (evaluation.get(name, 0.0) for name in NOVELTY)
    return max(0.0, own - max(others))


def _score(evaluation: dict[str, float]) -> tuple[float, float]:
    """Score of an evaluation, from its logged measures (`eval/NAME`). A learner of novelty is judged by its novelty and
    reward, never by true costs."""
    if NOVELTY[0] in evaluation:
        return -_excess(evaluation), evaluation["eval/reward"]
    return score({name.removeprefix("eval/"): value for name, value in evaluation.items()})


def _whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def save_learner(path: Path, algorithm: Algorithm, learner: Any, note: dict[str, Any]) -> None:
    """Write a policy file: the policy, which can be loaded alone, and the complete state of the learner."""
    policy = algorithm.policy(learner)
    save_tree(path, {"policy": policy, "learner": learner}, note | {"form": policy.form()})


def last_output(folder: Path) -> str:
    """The last line of a run folder's log.txt."""
    log = folder / LOG
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "no output"


def _versions() -> dict[str, str]:
    """Versions and flags that can change a result, if only by rounding."""
    versions = {name: version(name) for name in PACKAGES}
    versions |= {"python": platform.python_version(), "machine": platform.machine()}
    return versions | {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
