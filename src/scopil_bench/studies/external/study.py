"""The study "external": six tasks by other authors, every method with its default settings.

The tasks are CartPole, CliffWalking and Acrobot with scripted experts, the ICRL authors' half-cheetah with their
expert, LunarLander with Gymnasium's controller, and highway-env with a scripted driver. The study needs
`pip install "scopil[phys2d,box2d,mujoco,highway]"` and the half-cheetah's data. `--only` selects tasks.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from scopil.data.dataset import Demonstrations
from scopil.data.record import play_expert
from scopil.envs.gym_env import open_env
from scopil_bench.studies.base import Budget, Study, Task
from scopil_bench.studies.external import half_cheetah, highway, lunar_lander
from scopil_bench.summaries import Table

METHODS = ("scopil-rho", "scopil-clone", "sac", "bc")
EPISODES = 100


def balance(obs: np.ndarray) -> int:
    """CartPole's expert. Observations are position, velocity, angle and angular velocity."""
    return int(obs @ np.array([0.5, 1.0, 8.0, 2.0]) > 0)


def off_the_middle(obs: np.ndarray, action: Any, next_obs: np.ndarray) -> float:
    return float(abs(next_obs[0]) >= 0.5)


def around(obs: np.ndarray) -> int:
    """CliffWalking's expert: it moves up to the second of 4 rows, right along the 12 cells, then down. Actions:
    0 up, 1 right, 2 down, 3 left. The observation is the cell's index."""
    row, column = divmod(int(np.squeeze(obs)), 12)
    if column == 11:
        return 2
    return 1 if row <= 1 else 0


def beside_the_cliff(obs: np.ndarray, action: Any, next_obs: np.ndarray) -> float:
    row, column = divmod(int(np.squeeze(next_obs)), 12)
    return float(row >= 2 and 0 < column < 11)


def pump(obs: np.ndarray) -> int:
    """Acrobot's expert: torque in the direction of the first joint's motion adds energy. Observations are the cosine
    and sine of both angles, and both angular velocities."""
    return 0 if obs[4] > 0 else 2


def too_fast(obs: np.ndarray, action: Any, next_obs: np.ndarray) -> float:
    return float(abs(next_obs[5]) > 12.5)


def demonstrations(env_id: str, expert: Callable[[np.ndarray], int], count: int) -> Demonstrations:
    """Episodes of an expert, from starts that no evaluation uses."""
    env = open_env(env_id)
    try:
        episodes = tuple(play_expert(env, env_id, expert, env.random_starts([10_000], count)))
    finally:
        env.close()
    return Demonstrations(
        episodes=episodes,
        observation_space=env.observation_space,  # pyright: ignore[reportArgumentType]
        action_space=env.action_space,  # pyright: ignore[reportArgumentType]
        name=f"{env_id}, {expert.__name__}",
        env_id=env_id,
    )


def _small(title: str, env: str, expert: Callable[[np.ndarray], int], rule: Any, count: int, **options: Any) -> Task:
    return Task(
        title=title, env=env, demos=partial(demonstrations, env, expert, count), rules=rule, steps=50_000, **options
    )


TASKS = {
    "cartpole": _small("CartPole that keeps to the middle", "phys2d/CartPole-v1", balance, off_the_middle, 10),
    "cliffwalking": _small(
        "CliffWalking a row away from the cliff",
        "tabular/CliffWalking-v0(max_episode_steps=200)",  # the environment has no time limit
        around,
        beside_the_cliff,
        10,
    ),
    "acrobot": _small("Acrobot below a speed", "Acrobot-v1", pump, too_fast, 40, demonstrator=pump),
    # This task precedes the lander, so missing data is reported before the lander's slow demonstrations.
    "half-cheetah": Task(
        title="Half-cheetah with a wall",
        env=half_cheetah.ENV,
        demos=half_cheetah.demonstrations_named,
        rules=half_cheetah.behind_the_wall,
        steps=100_000,
        episodes=half_cheetah.EPISODES,
    ),
    "lunar-lander": Task(
        title="LunarLander with the controller's habits",
        env=lunar_lander.ENV,
        demos=lunar_lander.demonstrate,
        demonstrator=lunar_lander.land,
        rules=lunar_lander.rules,
        steps=300_000,
    ),
    # This task has few steps and episodes because one step takes 25 ms.
    "highway": Task(
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
    title="Tasks by other authors",
    question="Which method keeps unstated rules, on tasks by other authors and without tuning?",
    about=(
        "Six tasks by other authors. Each has a demonstrator with a habit that the reward does not ask for; no "
        "learner is given the rule. Every method has its default settings on every task."
    ),
    tasks=TASKS,
    tables={name: Table(task.title, name, METHODS, METHODS) for name, task in TASKS.items()},
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
        "SCOPIL-ρ: SCOPIL with a second constraint, to stay in the states that the demonstrator visits.",
        "SCOPIL from a clone: soft actor-critic with a constraint that keeps the policy near the demonstrations.",
        "SAC: the reward alone. BC: cloning the demonstrations, no reward; its steps are gradient steps.",
    ),
)
