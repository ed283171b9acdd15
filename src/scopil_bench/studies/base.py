"""A study as a value: tasks, methods, budgets and tables. All studies share one executor, statistics and report.

`scopil_bench.studies.find(name)` returns a built-in study, or one that another package registers in the entry-point
group `scopil.studies`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from scopil.algos.base import Algorithm
from scopil.data.dataset import Demonstrations
from scopil.envs.base import BatchEnv
from scopil.errors import ConfigError
from scopil.eval.measures import Measures
from scopil.eval.rules import name_of_rules
from scopil.policy import Policy
from scopil.registry import find
from scopil.train.run import Run, RunSpec
from scopil_bench.summaries import EVALUATIONS, Cell, Results, Table, Verdict


@dataclass(frozen=True, kw_only=True)
class Task:
    """An environment, demonstrations, and rules that define violations."""

    title: str
    env: str  # a Gymnasium id; "module:id" imports a module that registers it
    demos: str | Callable[[], Demonstrations] | None = None  # an argument of `load_demos`, or a function
    # Scripted expert (observation → action) or None. It is evaluated from the same unseen starts as the policies.
    demonstrator: Callable[[Any], Any] | None = None
    # Further rows to compare with, such as people's results on levels that training leaves out: title → measures.
    references: Callable[[], Mapping[str, Measures]] | None = None
    rules: Any = None  # an argument of `scopil.Rules.of`; None: the costs that the environment reports
    steps: int | None = None  # environment steps per run, used if the budget sets none
    episodes: int | None = None  # per evaluation; None: the study's number


@dataclass(frozen=True, kw_only=True)
class Method:
    """An algorithm with settings other than its defaults."""

    algorithm: Algorithm
    title: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Number of runs, steps per run, and settings."""

    seeds: int
    steps: int | None = None  # per run; None: the task's steps, or the algorithm's budget if the task sets none
    whole: tuple[str, ...] = ()  # methods that ignore `steps` and use their algorithm's budget
    eval_every: int = 10_000
    checkpoint_every: int = 50_000
    config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by method; overrides its settings


class FinishedRun(NamedTuple):
    """The argument of `Study.extra`."""

    run: Run
    env: BatchEnv
    demos: Demonstrations | None
    policy: Policy


class Published(NamedTuple):
    """Published results. `printed` maps task → method → measure → the printed text."""

    source: str  # label of the rows, such as "paper"
    printed: Mapping[str, Mapping[str, Mapping[str, str]]]


@dataclass(frozen=True, kw_only=True)
class Study:
    """Tasks, methods, budgets and tables. Only the first five fields are required."""

    name: str  # as on the command line
    title: str
    tasks: Mapping[str, Task]
    tables: Mapping[str, Table]  # by name, for `--only`
    budgets: Mapping[str, Budget]  # the first is the default
    question: str = ""  # one sentence, which the report answers; empty: a general question
    about: str = ""  # one paragraph of introduction
    source: str | None = None  # the file that the study was read from
    methods: Mapping[str, Method] = field(default_factory=dict)  # other names: algorithms with defaults
    evaluations: tuple[str, ...] = EVALUATIONS
    episodes: int | None = None  # per evaluation; None: one per demonstrated start, and 40 unseen starts
    extra: Callable[[FinishedRun], dict[str, Measures]] | None = None
    glossary: Sequence[str] = ()  # explains the terms in the tables
    method_notes: Sequence[str] = ()
    published: Published | None = None
    # (budget, results) → ranges, targets
    expectations: Callable[[str, Results], tuple[list[Verdict], list[Verdict]]] | None = None
    answers: Callable[[Results], list[Any]] | None = None  # `scopil_bench.report.study_page.Answer`s
    # (task, results) → blocks of `scopil_bench.report.page`, shown after the task's tables
    extra_tables: Callable[[str, Results], list[Any]] | None = None

    def cells(self, only: Sequence[str] = ()) -> list[Cell]:
        """The cells to train for the tables in `only`. If `only` is empty, the cells of all tables."""
        if unknown := [name for name in only if name not in self.tables]:
            raise ConfigError(f"no table {', '.join(unknown)} in {self.name}; there are {', '.join(self.tables)}.")
        wanted = [table for name, table in self.tables.items() if name in only or not only]
        return [Cell(table.setting, method) for table in wanted for method in table.trained]

    def method(self, name: str) -> Method:
        return self.methods.get(name) or Method(algorithm=find(name))

    def title_of(self, method: str) -> str:
        found = self.method(method)
        return found.title or found.algorithm.title

    def episodes_of(self, task: str) -> int | None:
        """Episodes per evaluation of a task."""
        return self.tasks[task].episodes or self.episodes

    def spec(self, budget: str, cell: Cell, seed: int, demos: str | None) -> RunSpec:
        """The specification of one run. Every method gets demonstrations, because evaluations use their starts."""
        chosen, method, task = self.budgets[budget], self.method(cell.method), self.tasks[cell.setting]
        steps = None if cell.method in chosen.whole else chosen.steps or task.steps
        return RunSpec(
            algorithm=method.algorithm,
            env=task.env,
            demos=demos,
            rules=name_of_rules(task.rules),
            seed=seed,
            steps=steps or method.algorithm.budget,
            eval_every=chosen.eval_every,
            checkpoint_every=chosen.checkpoint_every,
            config={**method.config, **chosen.config.get(cell.method, {})},
        )


def run_folder(out: Path, cell: Cell, seed: int) -> Path:
    return out / "runs" / cell.setting / f"{cell.method}-{seed}"
