"""The study "unseen" compares methods on every tray, from unseen and from demonstrated starts. The demonstrations come
from a planner or from simulated players.

Each evaluation has 1 000 episodes; demonstrated starts are repeated to reach this number. The task Simple with
simulated players has all methods. The other tasks have the most important methods.
"""

from functools import partial

from scopil.envs.naming import IDS
from scopil.registry import registered
from scopil_bench.report.study_page import Answer
from scopil_bench.studies.base import Budget, Published, Study, Task
from scopil_bench.studies.paper import expected
from scopil_bench.studies.paper.answers import answers, most_lawful
from scopil_bench.studies.paper.modes import mode_tables, modes_of
from scopil_bench.studies.paper.published import PRINTED
from scopil_bench.studies.paper.study import SHORT
from scopil_bench.summaries import Results, Table

METHODS = ("scopil-rho", "scopil", "sac", "bc")
ON_POLICY = ("ppo-dgd", "icrl", "oracle-ppo-lagrangian")  # one step takes a tenth of the time of SCOPIL's step
YARDSTICKS = ("oracle-sac-lagrangian", "oracle-ppo-lagrangian")  # these methods receive the true cost
ABLATIONS = ("ppo-dgd", "icrl", "s-dgd", "s-eic", "s-dgd-eic")
EVERY = ("scopil-rho", "scopil-clone", "scopil", "sac", "bc", *ABLATIONS, *YARDSTICKS)
_TITLES = {
    "simple": "Simple, planner",
    "simple-simulated": "Simple, simulated players",
    "multiple": "Multiple, planner",
    "multiple-simulated": "Multiple, simulated players",
    "two-modes": "Two-modes, planner",
    "two-modes-simulated": "Two-modes, simulated players",
}


def _table(setting: str, title: str) -> Table:
    """SAC does not use demonstrations, so its policies with planner and simulated demonstrations are equal. With
    simulated players it is trained only on Simple."""
    chosen = EVERY if setting == "simple-simulated" else METHODS
    if setting in ("multiple-simulated", "two-modes-simulated"):
        chosen = tuple(m for m in METHODS if m != "sac")
    methods = tuple(m for m in chosen if m in registered())
    return Table(title, setting, methods, methods)


def questions(results: Results) -> list[Answer]:
    lawful = most_lawful(results, "scopil-rho", YARDSTICKS)
    return [
        Answer("Is SCOPIL-ρ the most lawful from unseen starts?", *lawful),
        *answers(results, simple="simple-simulated"),
    ]


STUDY = Study(
    name="unseen",
    title="Lawful from unseen starts",
    question="Which method has the fewest violations of unstated rules from unseen starts?",
    about="A ball rolls on a tilting tray into a hole; lines and circles on the tray are forbidden, which only the "
    "demonstrations show. Policies are evaluated from unseen and from demonstrated starts.",
    tasks={
        name: Task(title=title, env=IDS[name.removesuffix("-simulated")], demos=f"marble-maze/{name}-v1")
        for name, title in _TITLES.items()
    },
    tables={name: _table(name, title) for name, title in _TITLES.items()},
    budgets={
        "paper": Budget(seeds=10, eval_every=50_000, checkpoint_every=100_000),
        "medium": Budget(seeds=10, steps=300_000, whole=ON_POLICY, eval_every=50_000, checkpoint_every=100_000),
        "short": Budget(seeds=1, steps=5_000, eval_every=5_000, checkpoint_every=5_000, config=SHORT),
    },
    episodes=1_000,
    extra=modes_of,
    method_notes=(
        "SCOPIL-ρ: SCOPIL with a second constraint, to stay in the states that the demonstrator visits.",
        "SCOPIL: soft actor-critic with a constraint that keeps the policy near the demonstrations, with the paper's "
        "settings; from a clone: it starts as a clone, with δ from the data.",
        "SAC: the reward alone. BC: cloning the demonstrations, no reward.",
        "S-DGD: SCOPIL with a fixed multiplier. S-EiC: without entropy in the constraint. S-DGD-EiC: both.",
        "PPO+DGD: the same constraint on PPO. ICRL: learns a cost from the demonstrations, then avoids it.",
        "Oracles are given the true cost. They are bounds, not competitors.",
    ),
    published=Published("paper", PRINTED | {f"{name}-simulated": table for name, table in PRINTED.items()}),
    expectations=partial(expected.verdicts, file=expected.UNSEEN),
    answers=questions,
    extra_tables=mode_tables,
)
