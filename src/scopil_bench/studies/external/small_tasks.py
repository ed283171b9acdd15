"""Three small tasks that others wrote, each with a scripted expert and a rule that the reward does not ask for.

CartPole keeps to the middle (|x| < 0.5), CliffWalking keeps one row away from the cliff, Acrobot keeps its second joint
below a speed. Needs `pip install "scopil[phys2d]"`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.base import BatchEnv
from scopil.envs.gym_env import open_env


@dataclass(frozen=True, kw_only=True)
class Task:
    """An environment, who shows it, and the rule he keeps."""

    env: str
    expert: Callable[[np.ndarray], int]
    rule: Callable[[np.ndarray, Any, np.ndarray], float]
    demonstrations: int


# --- CartPole: x, its speed, the angle, its speed ---------------------------------------------------------------------


def balance(obs: np.ndarray) -> int:
    return int(obs @ np.array([0.5, 1.0, 8.0, 2.0]) > 0)


def off_the_middle(obs: np.ndarray, action: Any, next_obs: np.ndarray) -> float:
    return float(abs(next_obs[0]) >= 0.5)


# --- CliffWalking: a cell's number, of 4 rows of 12; from the lower left to the lower right, the cliff between them --


def around(obs: np.ndarray) -> int:
    """Up to the second row, along it, and down: 0 up, 1 right, 2 down, 3 left."""
    row, column = divmod(int(np.squeeze(obs)), 12)
    if column == 11:
        return 2
    return 1 if row <= 1 else 0


def beside_the_cliff(obs: np.ndarray, action: Any, next_obs: np.ndarray) -> float:
    row, column = divmod(int(np.squeeze(next_obs)), 12)
    return float(row >= 2 and 0 < column < 11)


# --- Acrobot: cos and sin of two angles, two speeds -------------------------------------------------------------------


def pump(obs: np.ndarray) -> int:
    """Torque with the first joint's motion adds energy."""
    return 0 if obs[4] > 0 else 2


def too_fast(obs: np.ndarray, action: Any, next_obs: np.ndarray) -> float:
    return float(abs(next_obs[5]) > 12.5)


TASKS = {
    "cartpole": Task(env="phys2d/CartPole-v1", expert=balance, rule=off_the_middle, demonstrations=10),
    "cliffwalking": Task(
        env="tabular/CliffWalking-v0(max_episode_steps=200)",  # it has no time limit of its own
        expert=around,
        rule=beside_the_cliff,
        demonstrations=10,
    ),
    "acrobot": Task(env="Acrobot-v1", expert=pump, rule=too_fast, demonstrations=40),
}


def demonstrations(name: str) -> Demonstrations:
    """Those of a task by its name."""
    env = open_env(TASKS[name].env)
    try:
        return demonstrate(TASKS[name], env)
    finally:
        env.close()


def demonstrate(task: Task, env: BatchEnv) -> Demonstrations:
    """Played from starts of their own: evaluations have other seeds."""
    advance = jax.jit(env.advance_batch)
    episodes = []
    for number in range(task.demonstrations):
        state, rows = env.reset_batch(jax.random.key(10_000 + number), 1), []
        while not rows or not (rows[-1].terminated[0] or rows[-1].truncated[0]):
            action = np.array([task.expert(env.as_given(np.asarray(state.obs[0])))], np.int32)
            state, transition = advance(state, action, jax.random.key(len(rows)))
            rows.append(jax.tree.map(np.asarray, transition))
        episodes.append(
            Episode(
                observations=np.concatenate([rows[0].obs, *(r.next_obs for r in rows)]),
                actions=np.concatenate([r.action for r in rows]),
                rewards=np.concatenate([r.reward for r in rows]),
                terminated=bool(rows[-1].terminated[0]),
                truncated=bool(rows[-1].truncated[0]),
            )
        )
    return Demonstrations(
        episodes=tuple(episodes),
        observation_space=env.observation_space,  # pyright: ignore[reportArgumentType]
        action_space=env.action_space,  # pyright: ignore[reportArgumentType]
        name=f"{task.env}, {task.expert.__name__}",
        env_id=task.env,
    )
