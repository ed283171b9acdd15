"""Tasks that others wrote, every method as the library has it: nothing is set for a task.

CartPole, CliffWalking and Acrobot with scripted experts (small_tasks.py), the half-cheetah of the ICRL
authors with their expert, LunarLander with Gymnasium's own controller, and highway-env with a scripted driver. Needs
`pip install "scopil[phys2d,box2d,mujoco,highway]"` and the half-cheetah's data; `--only` leaves tasks out.
"""

from functools import partial

from scopil_bench.studies.base import Budget, Setting, Study
from scopil_bench.studies.external import half_cheetah, half_cheetah_study, highway, lunar_lander, small_tasks
from scopil_bench.summaries import Table

METHODS = ("scopil-rho", "scopil", "sac", "bc")
EPISODES = 100
_SMALL = {
    "cartpole": "CartPole that keeps to the middle",
    "cliffwalking": "CliffWalking a row away from the cliff",
    "acrobot": "Acrobot below a speed",
}


def _small(name: str, title: str) -> Setting:
    task = small_tasks.TASKS[name]
    return Setting(
        title=title,
        env=task.env,
        demos=partial(small_tasks.demonstrations, name),
        demonstrator=task.expert if name == "acrobot" else None,  # of the others no start is harder
        rules=task.rule,
        steps=50_000,
    )


SETTINGS = {name: _small(name, title) for name, title in _SMALL.items()} | {
    "half-cheetah": Setting(  # before the lander, whose demonstrations take a minute: its data may be missing
        title="Half-cheetah with a wall",
        env=half_cheetah_study.ENV,
        demos=half_cheetah_study.demonstrations_named,
        rules=half_cheetah.behind_the_wall,
        steps=100_000,
        episodes=half_cheetah_study.EPISODES,
    ),
    "lunar-lander": Setting(
        title="LunarLander with the controller's habits",
        env=lunar_lander.ENV,
        demos=lunar_lander.demonstrate,
        demonstrator=lunar_lander.land,
        rules=lunar_lander.rules,
        steps=300_000,
    ),
    "highway": Setting(  # few steps and episodes: a step takes 25 ms
        title="Highway with a cautious driver",
        env=highway.ENV,
        demos=highway.demonstrations,
        demonstrator=highway.drive,
        rules=f"{highway.__name__}:RULES",
        steps=10_000,
        episodes=40,
    ),
}


STUDY = Study(
    name="external",
    title="Tasks that others wrote",
    question="Which method keeps rules that nobody has stated, on tasks that others wrote and without any tuning?",
    about=(
        "Six tasks of other authors. Each has a demonstrator with a habit that the reward does not ask for; no "
        "learner is told the rule. Every method has the library's defaults on every task."
    ),
    settings=SETTINGS,
    tables={name: Table(setting.title, name, METHODS, METHODS) for name, setting in SETTINGS.items()},
    budgets={"full": Budget(seeds=5), "short": Budget(seeds=1, steps=2_000, eval_every=1_000, checkpoint_every=1_000)},
    evaluations=("greedy/unseen", "sampled/unseen"),
    episodes=EPISODES,
    glossary=(
        "Violations are steps that break the rule, per episode.",
        "CartPole: 0.5 or more from the middle. CliffWalking: on a cell above the cliff. Acrobot: the second "
        "joint faster than 12.5 rad/s. Half-cheetah: 3 m or more behind its start. LunarLander: an engine on while a "
        f"leg touches the ground, or tilted by more than {lunar_lander.TILT:g} rad. Highway: a collision, or less than "
        "1.5 s behind the car ahead.",
        "The rewards of the half-cheetah's demonstrator were not recorded.",
    ),
    method_notes=(
        "SCOPIL-ρ: SCOPIL with a second constraint, to stay where the demonstrator is found.",
        "SCOPIL: soft actor-critic with a constraint that keeps the policy near the demonstrations, from a clone.",
        "SAC: the reward alone. BC: cloning the demonstrations, no reward; its steps are gradient steps.",
    ),
)
