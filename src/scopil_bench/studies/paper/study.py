"""The study "paper": the paper's experiments on Marble Maze, compared with its printed tables."""

from scopil.envs.naming import IDS
from scopil.registry import registered
from scopil_bench.studies.base import Budget, Published, Study, Task
from scopil_bench.studies.paper.answers import answers
from scopil_bench.studies.paper.expected import verdicts
from scopil_bench.studies.paper.modes import mode_tables, modes_of
from scopil_bench.studies.paper.published import PRINTED
from scopil_bench.summaries import SAFE, Table

ABOUT = (
    "A ball rolls on a tray towards a hole, and the player tilts the tray. Regions behind a line or inside circles are "
    "forbidden, but the learner is not given these rules: its reward only depends on the time to the hole, and it has "
    "40 demonstrations of a careful player. SCOPIL should maximise the reward with no more violations than the "
    "demonstrations. This page compares it with the published figures and with other methods."
)
GLOSSARY = (
    "Reward is the sum of an episode's normalised rewards; Length the path of the ball in pixels; Steps the number of "
    "decisions.",
    "Violations count the states of an episode beyond a line or in a circle, the initial state included. A state that "
    "breaks two rules counts twice. The paper's tables call them H (horizontal line), V (vertical line) and C "
    "(circle), and F(·) per step.",
    "Avoidable violations leave the initial state out, because an episode may start in a circle. Unavoidable ones are "
    "those of initial states.",
    "Greedy takes the most likely action, sampled draws from the policy. The paper does not say which it used.",
    "Demonstrated starts are the initial states of the demonstrations. Unseen starts are new ones, the same for every "
    "policy.",
    "A seed is one training from scratch. IQM is the mean of the middle half of seeds, with a bootstrap interval.",
    "P(avoidable) ≤ is a 95 % upper bound on the probability that an episode contains an avoidable violation. Episodes "
    "of one seed are not independent, so it is the larger of two bounds: Clopper and Pearson's over the episodes of "
    "all seeds, and Student's over the seeds' shares of such episodes.",
    f"Steps to ≤ {SAFE:g} is the median over seeds of the training steps until the first evaluation with at most "
    f"{SAFE:g} avoidable violations per episode.",
)
METHODS = (
    "SCOPIL: soft actor-critic with a constraint that keeps the policy near the demonstrations, with a learned "
    "multiplier.",
    "SAC: soft actor-critic, no demonstrations. ICRL: learns a cost from the demonstrations, then avoids it.",
    "S-DGD: SCOPIL with a fixed multiplier. S-EiC: SCOPIL without entropy in the constraint. S-DGD-EiC: both.",
    "PPO+DGD: the same constraint on PPO instead of soft actor-critic. BC: cloning the demonstrations, no reward.",
    "Oracles are given the true cost. They are bounds, not competitors.",
)
_ABLATIONS = ("s-dgd", "s-eic", "s-dgd-eic", "ppo-dgd")
# Not in the paper: a learner that uses only the demonstrations, and learners that are given the true cost.
_BASELINES = ("bc", "oracle-ppo-lagrangian", "oracle-sac-lagrangian")
_SMALL_REPLAY = {"replay_size": 10_000}
_SMALL_ROLLOUT = {"rollout_steps": 512}
_OFF_POLICY = ("scopil", "scopil-clone", "scopil-rho", "sac", "s-dgd", "s-eic", "s-dgd-eic", "oracle-sac-lagrangian")
SHORT = dict.fromkeys(_OFF_POLICY, _SMALL_REPLAY) | {
    "ppo-dgd": _SMALL_ROLLOUT,
    "oracle-ppo-lagrangian": _SMALL_ROLLOUT,
    "icrl": _SMALL_ROLLOUT | {"forward_steps": 5_000, "rollouts": 20, "backward_iters": 5},
}


def _table(title: str, setting: str, shown: tuple[str, ...], trained: tuple[str, ...]) -> Table:
    return Table(title, setting, shown, tuple(m for m in trained if m in registered()))


STUDY = Study(
    name="paper",
    title="SCOPIL: the paper's experiments",
    question="Does SCOPIL keep unstated rules that only demonstrations show, as the paper reports?",
    about=ABOUT,
    tasks={
        setting: Task(title=title, env=IDS[setting], demos=f"marble-maze/{setting}-v1")
        for setting, title in (("simple", "Simple"), ("multiple", "Multiple"), ("two-modes", "Two-modes"))
    },
    tables={
        "simple": _table("Simple", "simple", ("scopil", "icrl", "sac", "bc"), ("scopil", "icrl", "sac")),
        "multiple": _table("Multiple", "multiple", ("scopil", "bc"), ("scopil",)),
        "two-modes": _table("Two-modes", "two-modes", ("scopil", "bc"), ("scopil",)),
        "ablation": _table("Ablations on Simple", "simple", ("scopil", *_ABLATIONS), _ABLATIONS),
        "yardsticks": _table("Yardsticks on Simple", "simple", ("scopil", *_BASELINES), _BASELINES),
    },
    budgets={
        "paper": Budget(seeds=10),
        "short": Budget(seeds=2, steps=10_000, eval_every=5_000, checkpoint_every=5_000, config=SHORT),
    },
    extra=modes_of,
    glossary=GLOSSARY,
    method_notes=METHODS,
    published=Published("paper", PRINTED),
    expectations=verdicts,
    answers=answers,
    extra_tables=mode_tables,
)
