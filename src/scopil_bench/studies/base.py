"""What a study is: everything about one task, so that any study runs through the same executor, statistics and report.

A study is a value. `scopil.studies.find(name)` looks one up among ours and those that other packages register in the
entry-point group `scopil.studies`.
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
class Setting:
    """A task: an environment, demonstrations of it, and rules to count violations by."""

    title: str
    env: str  # a Gymnasium id; "module:id" imports a module that registers it
    demos: str | Callable[[], Demonstrations] | None = None  # anything that `load_demos` takes, or what makes a set
    demonstrator: Callable[[Any], Any] | None = (
        None  # who made them, where he is a program that `scopil.record` plays: he is judged from the policies' starts
    )
    rules: Any = None  # what `scopil.Rules.of` takes; None: the costs that the environment reports
    steps: int | None = None  # environment steps of a run, where the budget names none
    episodes: int | None = None  # per evaluation, where they are not the study's


@dataclass(frozen=True, kw_only=True)
class Method:
    """An algorithm with settings other than its defaults."""

    algorithm: Algorithm
    title: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long, how often, and with which settings."""

    seeds: int
    steps: int | None = None  # None: the setting's, or else what each algorithm has as its budget
    whole: tuple[str, ...] = ()  # methods whose steps are cheap: they have their algorithms' budgets all the same
    eval_every: int = 10_000
    checkpoint_every: int = 50_000
    config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by method, over the method's own


class FinishedRun(NamedTuple):
    """What a study's extra measures are made from."""

    run: Run
    env: BatchEnv
    demos: Demonstrations | None
    policy: Policy


class Published(NamedTuple):
    """Printed figures to compare with: setting → method → measure → as printed."""

    source: str  # what the rows are called: "paper"
    printed: Mapping[str, Mapping[str, Mapping[str, str]]]
    heading: Callable[[str, Sequence[str]], str] | None = None  # the source's own column headings


@dataclass(frozen=True, kw_only=True)
class Study:
    """Settings, methods and tables, with whatever a study wants shown besides.

    Only the first five fields are needed; the others are for what no other study has.
    """

    name: str  # as on the command line
    title: str
    settings: Mapping[str, Setting]
    tables: Mapping[str, Table]  # by the name that `--only` takes
    budgets: Mapping[str, Budget]  # the first is the default
    question: str = ""  # that the report answers, in one sentence; empty: a usual one
    about: str = ""  # a paragraph for readers who know nothing of it
    source: str | None = None  # the file it was read from
    methods: Mapping[str, Method] = field(default_factory=dict)  # those not listed are algorithms with their defaults
    evaluations: tuple[str, ...] = EVALUATIONS
    episodes: int | None = None  # per evaluation; None: one per demonstrated start, 40 unseen ones
    extra: Callable[[FinishedRun], dict[str, Measures]] | None = None
    glossary: Sequence[str] = ()  # how to read its tables
    method_notes: Sequence[str] = ()
    published: Published | None = None
    expectations: Callable[[str, Results], tuple[list[Verdict], list[Verdict]]] | None = (
        None  # budget → ranges, targets
    )
    answers: Callable[[Results], list[Any]] | None = None  # `scopil_bench.report.study_page.Answer`s
    extra_tables: Callable[[str, Results], list[Any]] | None = (
        None  # blocks of `scopil_bench.report.page`, after a setting's tables
    )

    def cells(self, only: Sequence[str] = ()) -> list[Cell]:
        """The cells to train for some tables, or for all."""
        if unknown := [name for name in only if name not in self.tables]:
            raise ConfigError(f"no table {', '.join(unknown)} in {self.name}; there are {', '.join(self.tables)}.")
        wanted = [table for name, table in self.tables.items() if name in only or not only]
        return [Cell(table.setting, method) for table in wanted for method in table.trained]

    def method(self, name: str) -> Method:
        return self.methods.get(name) or Method(algorithm=find(name))

    def title_of(self, method: str) -> str:
        found = self.method(method)
        return found.title or found.algorithm.title

    def episodes_of(self, setting: str) -> int | None:
        """Per evaluation."""
        return self.settings[setting].episodes or self.episodes

    def spec(self, budget: str, cell: Cell, seed: int, demos: str | None) -> RunSpec:
        """One run. Methods that want no demonstrations get them too: their evaluation starts where these do."""
        chosen, method, setting = self.budgets[budget], self.method(cell.method), self.settings[cell.setting]
        steps = None if cell.method in chosen.whole else chosen.steps or setting.steps
        return RunSpec(
            algorithm=method.algorithm,
            env=setting.env,
            demos=demos,
            rules=name_of_rules(setting.rules),
            seed=seed,
            steps=steps or method.algorithm.budget,
            eval_every=chosen.eval_every,
            checkpoint_every=chosen.checkpoint_every,
            config={**method.config, **chosen.config.get(cell.method, {})},
        )


def run_folder(out: Path, cell: Cell, seed: int) -> Path:
    return out / "runs" / cell.setting / f"{cell.method}-{seed}"
