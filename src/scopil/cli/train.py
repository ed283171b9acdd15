"""`scopil train ALGORITHM …` and `scopil resume RUN`: training on the command line."""

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, field, make_dataclass
from itertools import dropwhile, islice, pairwise, takewhile
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium as gym
import jax
import tyro
from rich.text import Text

from scopil.algos.base import Algorithm, spaces_of
from scopil.callbacks import NovelBudget
from scopil.cli.interrupts import INTERRUPTED, heard
from scopil.cli.options import EnvKwargs, MaxSteps, RulesOption, TrustEnv, call, env_name, option
from scopil.config import settings
from scopil.data.fit_to_env import recorded_elsewhere
from scopil.envs.jax_env import make_env
from scopil.envs.spaces import numbered
from scopil.errors import ConfigError
from scopil.eval import starts as where
from scopil.eval.measures import with_margin
from scopil.eval.tables import print_margins, print_measures, with_bounds
from scopil.registry import find, registered
from scopil.terminal import Console
from scopil.train.logging import WandbCallback
from scopil.train.progress import ProgressLines
from scopil.train.run import Run, RunSpec
from scopil.train.trainer import TrainStatus

FEW = 10  # demonstrations: with fewer, a warning
Verbosity = Annotated[
    Literal["quiet", "normal", "full"],
    tyro.conf.arg(
        help="quiet: warnings only; normal: progress; full: every row of metrics", metavar="quiet|normal|full"
    ),
]
Wandb = Annotated[str | None, option("also log to this Weights & Biases project", "PROJECT")]


def main(argv: list[str]) -> int:
    if "--resume" in argv[:2]:
        return resume_main([word for word in argv if word != "--resume"])
    known: list[str] = []
    if argv and not argv[0].startswith("-"):
        algorithm = find(argv[0])  # raises for an unknown name and suggests the nearest one
        known = [s.name for s in settings(algorithm.config)]
    continuous = _continuous(argv)
    return call(
        {name: _verb(algorithm, continuous) for name, algorithm in registered().items()},
        "scopil train",
        argv,
        description="Train a policy and save it in a run folder. scopil resume RUN continues an interrupted run.",
        known=known,
    )


def resume_main(argv: list[str]) -> int:
    return call(resume, "scopil resume", argv)


def resume(
    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(help="a run folder", metavar="RUN")],
    steps: Annotated[
        int | None, option("new total of environment steps, to extend the run; default: unchanged", "N")
    ] = None,
    demos: Annotated[
        str | None, option("go on with these demonstrations, for example with corrections added", "NAME")
    ] = None,
    verbosity: Verbosity = "normal",
    wandb: Wandb = None,
    trust_env: TrustEnv = False,
) -> int:
    """Continue from the newest checkpoint. In a compiled environment the result equals that of an uninterrupted run."""
    opened = Run.open(run, trust_env=trust_env)
    if steps is not None or demos is not None:
        opened = opened.extended(opened.spec.steps if steps is None else steps, demos)
    return train_run(opened, verbosity, wandb)


def _continuous(argv: list[str]) -> bool:
    """Whether the environment named by --env has continuous actions. The default settings depend on it, so --env is
    read before the other options."""
    words = [part for word in argv for part in (word.split("=", 1) if word.startswith("--env=") else [word])]
    named = [after for before, after in pairwise(words) if before == "--env"]
    if not named:
        return False
    after = dropwhile(lambda word: word != "--env-kwargs", words)
    kwargs = takewhile(lambda word: not word.startswith("--"), islice(after, 1, None))
    env = make_env(env_name(named[-1], list(kwargs)))
    env.close()
    return isinstance(numbered(env.action_space), gym.spaces.Box)


def _options(algorithm: Algorithm, continuous: bool) -> type:
    """The algorithm's settings as command-line options. The help text of each gives its meaning and its range."""
    made: list[tuple[str, Any, Any]] = []
    for s in settings(algorithm.config, continuous):
        help = f"{s.about} {s.range}".strip().replace("%", "%%")
        made.append((s.name, Annotated[s.type, tyro.conf.arg(help=help)], field(default=s.default)))
    return make_dataclass("Settings", made)


def _verb(algorithm: Algorithm, continuous: bool) -> Callable[..., int]:
    def train(
        out: Annotated[Path, tyro.conf.arg(help="the run folder to create", metavar="RUN")],
        cfg: Annotated[Any, tyro.conf.arg(name="", constructor=_options(algorithm, continuous))],
        env: Annotated[
            str, tyro.conf.arg(help="a Gymnasium id, or FILE.py:CLASS", metavar="ID")
        ] = "scopil/MarbleMaze-Simple-v0",
        env_kwargs: EnvKwargs = (),
        max_episode_steps: MaxSteps = None,
        demos: Annotated[
            str | None, option("demonstrations: a set shipped with scopil, a file or minari:ID", "NAME")
        ] = None,
        rules: RulesOption = None,
        steps: Annotated[int, tyro.conf.arg(help="total environment steps")] = algorithm.budget,
        seed: Annotated[int, tyro.conf.arg(help="seed of all random numbers")] = 0,
        eval_every: Annotated[int, tyro.conf.arg(help="steps between evaluations")] = 10_000,
        checkpoint_every: Annotated[int, tyro.conf.arg(help="steps between checkpoints")] = 50_000,
        log_every: Annotated[
            int | None,
            option("steps between rows of metrics; default: 5000; in a shorter run, a tenth of its steps", "N"),
        ] = None,
        novel_budget: Annotated[
            str | None, option("stop when more than N of M training episodes are novel (scopil-rho)", "N/M")
        ] = None,
        verbosity: Verbosity = "normal",
        wandb: Wandb = None,
    ) -> int:
        budget = None if novel_budget is None else NovelBudget.parse(novel_budget)
        if budget is not None and algorithm.stops is None:
            raise ConfigError(f"{algorithm.name} stops no novel episodes; want scopil-rho.", setting="novel_budget")
        if steps < 0 or (steps == 0 and algorithm.prepare is None):
            raise ConfigError(f"steps = {steps}; want at least 1.", setting="steps")
        spec = RunSpec(
            algorithm=algorithm,
            env=env_name(env, env_kwargs, max_episode_steps),
            demos=demos,
            rules=rules,
            seed=seed,
            steps=steps,
            eval_every=eval_every,
            checkpoint_every=checkpoint_every,
            log_every=log_every,
            config=asdict(cfg),
        )
        run = Run.create(out, spec)
        if verbosity != "quiet":
            for line in _remarks(run):
                _warn(Console(soft_wrap=True), line)
        return train_run(run, verbosity, wandb, budget)

    train.__doc__ = f"{algorithm.title}: {algorithm.summary}."
    return train


def _remarks(run: Run) -> Iterator[str]:
    """Warnings about a run that is too short or ends late, demonstrations of another environment, and assumptions made
    when reading the demonstrations."""
    check = run.spec.algorithm.short_run
    if check is not None and (warning := check(run.config, run.spec.steps)):
        yield warning
    if remark := run.overshoot():
        yield remark
    demos = run.demos()
    if demos is not None:
        yield from recorded_elsewhere(demos, run.spec.env)
        yield from (f"{demos.name}: {sentence}" for sentence in demos.about.get("assumed", []))


def train_run(run: Run, verbosity: str = "normal", wandb: str | None = None, budget: NovelBudget | None = None) -> int:
    """Train with a progress display, stop on a signal or at the end of the budget of novel episodes, and print the last
    evaluation. Returns the exit code."""
    console = Console(quiet=verbosity == "quiet")
    spec = run.spec
    if run.finished:
        console.print(f"{run.folder} is finished: {spec.steps:,} steps. Next: {run.command('evaluate')}")
        return 0
    online = None if wandb is None else WandbCallback(wandb, str(run.folder), run.note())
    if verbosity != "quiet":
        _say(run, console, trained=False)
    progress = ProgressLines(spec.algorithm, spec.steps, console, every_metric=verbosity == "full")
    with progress as lines, _signals(console) as asked, _warnings(console):

        def observe(status: TrainStatus) -> bool:
            lines(status)
            if online is not None:
                online(status)
            if budget is not None and budget(status):
                novel, of = budget.found
                console.print(f"{novel:,} of {of:,} episodes were novel; the budget is {budget.most} of {budget.of}")
                return True
            return asked.is_set()

        def between(done: int) -> bool:
            lines.moved(done)
            return asked.is_set()

        finished = run.train(observe, between, lines.doing)
    if online is not None:
        online.close()
    if not finished:
        console.print(f"stopped at step {lines.steps:,}, saved; to continue: {run.command('resume')}", soft_wrap=True)
        return INTERRUPTED
    rows = run.metrics.rows()
    if rows and verbosity != "quiet":
        last = {k.removeprefix("eval/"): v for k, v in rows[-1].items() if k.startswith("eval/")}
        starts, episodes = (
            where.watched_from(run.env(), run.demos() or where.demos_for(spec.env)),
            last.pop("episodes", 0),
        )
        name = f"{spec.algorithm.title}, greedy, {starts} starts ({episodes:.0f} episodes), last evaluation in training"
        means = with_margin(run.last_measures) if run.last_measures else last
        print_measures({name: with_bounds(means, int(episodes)) if episodes else means}, console=console)
        print_margins(run.last_measures, console)
        _say(run, console, trained=True)
    console.print(f"Next: {run.command('evaluate')}, or {run.command('report')}", soft_wrap=True)
    return INTERRUPTED if asked.is_set() else 0  # a signal arrived during the last chunk


def _say(run: Run, console: Console, trained: bool) -> None:
    """The algorithm's lines about what it will watch, or what it found."""
    algorithm, env = run.spec.algorithm, run.env()
    if algorithm.remarks is None:
        return
    cfg, demos = run.config, run.demos()
    if trained:
        lines = algorithm.remarks(run.learner(), cfg)
    else:
        spaces = spaces_of(env.observation_space, env.action_space, env.spaces)
        lines = algorithm.remarks(algorithm.init(jax.random.key(0), spaces, cfg), cfg)
        count = 0 if demos is None else len(demos.episodes)
        lines.append(f"{count} demonstrations{f'; {FEW} or more are better' if count < FEW else ''}")
    for line in lines:
        console.print(Text(f"{algorithm.title}: {line}"), soft_wrap=True)


@contextmanager
def _warnings(console: Console) -> Iterator[None]:
    """Print each warning on one line without its source location, also with --verbosity quiet."""
    console = Console() if console.quiet else console
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: _warn(console, str(message))
        yield


def _warn(console: Console, line: str) -> None:
    console.print(Text.assemble(("warning:", "yellow"), f" {line}"))


@contextmanager
def _signals(console: Console) -> Iterator[threading.Event]:
    """SIGINT and SIGTERM stop training after the current chunk; a second SIGINT ends the process at once."""
    asked = threading.Event()

    def stop(number: int) -> None:
        if asked.is_set() and number == signal.SIGINT:
            console.show_cursor(True)
            console.print("\nstopped; the files saved before are complete")
            os._exit(INTERRUPTED)  # the run folder stays readable
        elif not asked.is_set():
            console.print("stopping and saving …  (Ctrl-C again stops at once)")
        asked.set()

    with heard((signal.SIGINT, signal.SIGTERM), stop):
        yield asked
