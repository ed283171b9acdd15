"""`scopil study rules`: six tasks with rules and one without. Every method uses its default settings."""

from functools import partial

from scopil_bench.studies.base import Budget, Study, Task
from scopil_bench.studies.rules import ENVS, corridor, demonstrations
from scopil_bench.studies.rules.tasks import TASKS
from scopil_bench.summaries import Table

METHODS = ("scopil-rho", "scopil", "gail-sac", "sac", "bc")
ALL = {
    name: Task(title=task.title, env=ENVS[name], demos=partial(demonstrations, name), steps=100_000)
    for name, task in TASKS.items()
} | {
    "corridor": Task(
        title="The corridor of docs/own_task.md",
        env=ENVS["corridor"],
        demos=partial(demonstrations, "corridor"),
        demonstrator=corridor.act,
        rules=f"{corridor.__name__}:RULES",
        steps=20_000,
        episodes=200,
    )
}

STUDY = Study(
    name="rules",
    title="Rules of several kinds",
    question="Which method keeps rules on speeds, actions, distances and flags that the reward does not ask for?",
    about=(
        "Small tasks. In each, breaking the rule earns more, the demonstrator keeps it, and no learner is given it. "
        "Every method has the library's defaults on every task."
    ),
    tasks=ALL,
    tables={name: Table(task.title, name, METHODS, METHODS) for name, task in ALL.items()},
    budgets={"full": Budget(seeds=5), "short": Budget(seeds=1, steps=2_000, eval_every=1_000, checkpoint_every=1_000)},
    evaluations=("greedy/unseen", "sampled/unseen"),
    episodes=1000,
    glossary=(
        "Violations are steps that break the rule, per episode.",
        "Rules that the demonstrators keep. "
        + " ".join(f"{task.title}: {task.rule}." for task in TASKS.values() if task.rule)
        + " The corridor: not faster than 1, and not on the wet side (y > 0.5).",
    ),
)
