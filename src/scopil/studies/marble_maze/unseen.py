"""The study "unseen": lawful from starts that nobody has shown, with a planner and with people as demonstrators.

Cloning stands beside every method. Evaluations play 1 000 unseen starts; the demonstrated ones are repeated as often.
"""

from scopil.envs.registration import IDS
from scopil.evaluate.summaries import Table
from scopil.studies.base import Budget, Setting, Study
from scopil.studies.marble_maze.modes import modes_of

METHODS = ("scopil-rho", "scopil", "sac", "bc")
_TITLES = {
    "simple": "Simple, planner",
    "simple-people": "Simple, people",
    "multiple": "Multiple-constraints, planner",
    "multiple-people": "Multiple-constraints, people",
    "two-modes": "Two-modes, planner",
    "two-modes-people": "Two-modes, people",
}

STUDY = Study(
    name="unseen",
    title="Lawful where nothing was shown",
    question="Which method breaks rules that nobody has stated least often, from starts that nobody has shown it?",
    about="A ball rolls on a tilting tray into a hole; lines and circles on the tray are forbidden, which only the "
    "demonstrations show. Policies are judged from starts that were not demonstrated, and from those that were.",
    settings={
        name: Setting(title=title, env=IDS[name.removesuffix("-people")], demos=f"marble-maze/{name}-v1")
        for name, title in _TITLES.items()
    },
    tables={name: Table(title, name, METHODS, METHODS) for name, title in _TITLES.items()},
    budgets={
        "full": Budget(seeds=5, steps=300_000, eval_every=50_000, checkpoint_every=100_000),
        "short": Budget(seeds=1, steps=5_000, eval_every=5_000, checkpoint_every=5_000),
    },
    episodes=1_000,
    extra=modes_of,
    method_notes=(
        "SCOPIL-ρ: SCOPIL with a second constraint, to stay where the demonstrator is found.",
        "SCOPIL: soft actor-critic with a constraint that keeps the policy near the demonstrations.",
        "SAC: the reward alone.",
        "BC: cloning the demonstrations, no reward.",
    ),
)
