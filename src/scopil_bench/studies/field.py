"""`scopil study field`: ten methods on twelve tasks of the other studies, every method with its default settings.

Other packages add a task through the entry-point group `scopil.tasks` (name = "module:TASK", a `Task`), and a method
through `scopil.algorithms`. Both get their row.
"""

from importlib.metadata import entry_points

from scopil.errors import ConfigError
from scopil.registry import BUILT_IN, registered
from scopil_bench.studies import unseen
from scopil_bench.studies.base import Budget, Study, Task
from scopil_bench.studies.external.study import STUDY as EXTERNAL
from scopil_bench.studies.needle_master.study import STUDY as NEEDLE_MASTER
from scopil_bench.studies.rules.study import STUDY as RULES
from scopil_bench.summaries import Table

GROUP = "scopil.tasks"
OURS = (*("scopil-rho", "scopil", "scopil-clone", "bc", "gail-sac"), *("safe-qil", "ppo-dgd", "icrl", "vicrl", "sac"))
TRAYS = ("simple-simulated", "multiple-simulated", "two-modes-simulated")
CHOSEN = (
    (unseen.STUDY, TRAYS),
    (NEEDLE_MASTER, tuple(NEEDLE_MASTER.tasks)[:1]),
    (RULES, ("speed", "zone", "action", "distance", "flag")),
    (EXTERNAL, ("half-cheetah", "lunar-lander", "highway")),
)


def tasks() -> dict[str, Task]:
    """Our tasks and those of other packages, by name."""
    found = {name: study.tasks[name] for study, names in CHOSEN for name in names}
    for point in entry_points(group=GROUP):
        if not isinstance(task := point.load(), Task):
            raise ConfigError(f"entry point {point.value} is a {type(task).__name__}; want a scopil_bench Task.")
        found.setdefault(point.name, task)
    return found


ALL = tasks()
METHODS = (*OURS, *(name for name in registered() if name not in BUILT_IN))

STUDY = Study(
    name="field",
    title="The field",
    question="Which method keeps unstated rules, over tasks of many kinds and without tuning?",
    about="Tasks of the other studies. No learner is given a rule or a cost, and every method has its defaults.",
    tasks=ALL,
    tables={name: Table(task.title, name, METHODS, METHODS) for name, task in ALL.items()},
    budgets={
        "full": Budget(seeds=5, whole=unseen.ON_POLICY),
        "medium": Budget(seeds=5, steps=100_000),
        "short": Budget(seeds=1, steps=2_000, eval_every=1_000, checkpoint_every=1_000),
    },
    evaluations=("greedy/unseen", "sampled/unseen"),
    episodes=1_000,
    glossary=("Violations are steps that break a rule, per episode.",),
)
