"""`scopil study needle-master`: learn from people's games on some levels, and play levels that no game showed.

The recordings are not shipped. The environment variable SCOPIL_NEEDLE_MASTER_DATA names their folder.
"""

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax

from scopil.data.dataset import Demonstrations
from scopil.envs.naming import with_options
from scopil.errors import DatasetError
from scopil.eval.episodes import play
from scopil.eval.measures import Measures, average, measure_all
from scopil.eval.starts import UNSEEN_SEED
from scopil.registry import find, registered
from scopil_bench.studies.base import Budget, FinishedRun, Study, Task
from scopil_bench.studies.needle_master import people
from scopil_bench.summaries import Results, Table

DATA = "SCOPIL_NEEDLE_MASTER_DATA"  # environment variable that names the folder of recordings
# Each level is left out once. Deep tissue (7 and 11), tissue (6, 8, 9, 12) and several gates (3, 4, 5) are spread.
FOLDS = ((1, 5, 8), (2, 4, 11), (3, 7, 9), (6, 10, 12))
METHODS = ("scopil-rho", "scopil", "bc", "gail-sac", "safe-qil", "icrl", "sac")
EPISODES = 300  # per evaluation: about 100 perturbed starts on each level that is left out
SHOWN = "shown levels"
_COLUMNS = {"violations": "Violations", "gates": "Gates passed", "success": "Right edge reached", "reward": "Reward"}


def data_folder() -> str:
    if not (folder := os.environ.get(DATA)):
        raise DatasetError(
            f"needle-master: people's games are not shipped; name the folder with their files (environment_1.txt, "
            f"trial_1_….csv) in the environment variable {DATA}."
        )
    return os.path.abspath(folder)


def env_of(fold: tuple[int, ...]) -> str:
    """The environment of a fold. Without data, the generated levels: the demonstrations then say what is missing."""
    data = {"data": data_folder()} if os.environ.get(DATA) else {}
    return with_options(people.ENV, data | {"left_out": fold})


def demonstrations(fold: tuple[int, ...]) -> Demonstrations:
    return people.demonstrations(data_folder(), fold)


def on_left_out_levels(fold: tuple[int, ...]) -> Mapping[str, Measures]:
    """People's own figures on the levels that methods are judged on."""
    from scopil_bench.results import reference  # imports this package's studies

    games = people.read_games(data_folder(), only=fold)
    rows = measure_all(games.episodes, people.compiled(data_folder()))
    return {f"People on these levels ({len(rows)} games)": reference(rows)}


def on_shown_levels(finished: FinishedRun) -> dict[str, Measures]:
    """The greedy policy from perturbed starts on the levels that were shown."""
    starts = jax.jit(finished.env.reset_batch, static_argnums=1)(jax.random.key(UNSEEN_SEED), EPISODES)
    episodes = play(finished.env, finished.policy, starts, jax.random.key(0))
    return {SHOWN: average(measure_all(episodes, finished.env))}


def _shown_table(setting: str, results: Results) -> list[Any]:
    from scopil_bench.report.page import Text
    from scopil_bench.report.study_tables import Layout, extra_grid

    grid = extra_grid(Layout({}, lambda name: find(name).title), results, setting, SHOWN, _COLUMNS)
    return [] if grid is None else [Text("From perturbed starts on the levels that the games showed, greedy:"), grid]


def _name(fold: tuple[int, ...]) -> str:
    return "levels-" + "-".join(map(str, fold))


TASKS = {
    _name(fold): Task(
        title=f"Levels {fold[0]}, {fold[1]} and {fold[2]} left out",
        env=env_of(fold),
        demos=partial(demonstrations, fold),
        references=partial(on_left_out_levels, fold),
        steps=200_000,
    )
    for fold in FOLDS
}
_TRAINED = tuple(method for method in METHODS if method in registered())

STUDY = Study(
    name="needle-master",
    title="Needle Master: games that people played",
    question="Which method keeps people's unwritten rules on levels that no game showed?",
    about=(
        "People steered a needle across a touch screen. The reward asks for the right edge and nothing else; people "
        "also pass the gates in order, touch no bar, stay out of deep tissue and turn gently. Policies learn from the "
        "games on nine levels and are judged on the three others, from perturbed starts."
    ),
    tasks=TASKS,
    tables={name: Table(task.title, name, _TRAINED, _TRAINED) for name, task in TASKS.items()},
    budgets={"full": Budget(seeds=5), "short": Budget(seeds=1, steps=2_000, eval_every=1_000, checkpoint_every=1_000)},
    evaluations=("greedy/unseen", "sampled/unseen", "greedy/demonstrated"),
    episodes=EPISODES,
    extra=on_shown_levels,
    extra_tables=_shown_table,
    glossary=(
        "Unseen starts are on the levels that are left out, within 48 px and 81 px of the games' start. "
        "Demonstrated starts are those of the games, on the levels that were shown.",
        "Violations are steps of 100 ms that break a rule. Gate: a gate is missed, or not passed by the end; gates "
        "missed in one step count once. Bar: the path touches a bar. Tissue: the needle is in deep tissue. Turn: speed "
        "times turn exceeds 1.5 px rad per tick².",
        "Gates is the share of gates passed. Success: the needle reached the right edge. Every game on level 10 passes "
        "one of its two gates, which lie above each other.",
        f"The games are by {people.SOURCE}.",
    ),
)
