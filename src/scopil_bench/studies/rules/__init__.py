"""Small tasks, each with one rule that the reward does not express. Importing this package registers their ids.

`demonstrations("speed")` makes the demonstrations of a task.
`scopil train sac --env scopil_bench.studies.rules:rules/Speed-v0` trains on the task.
"""

import gymnasium as gym

from scopil.data.dataset import Demonstrations
from scopil.envs.as_gym import FunctionalEnv, FunctionalVectorEnv
from scopil_bench.studies.rules import corridor
from scopil_bench.studies.rules.base import compiled, demonstrate
from scopil_bench.studies.rules.tasks import TASKS

IDS = {name: f"rules/{name.capitalize()}-v0" for name in (*TASKS, "corridor")}
ENVS = {name: f"{__name__}:{env_id}" for name, env_id in IDS.items()}  # importable from every process


def make(name: str, render_mode: str | None = None) -> gym.Env:
    return FunctionalEnv(compiled(TASKS[name]), render_mode)


def make_vec(name: str, num_envs: int = 1, max_episode_steps: int | None = None) -> gym.vector.VectorEnv:
    return FunctionalVectorEnv(compiled(TASKS[name], max_episode_steps), num_envs)


def demonstrations(name: str, episodes: int | None = None, seed: int = 0) -> Demonstrations:
    """The demonstrations of the task `name`. The seed determines the set."""
    if name == "corridor":
        return corridor.demonstrate(ENVS[name], episodes or corridor.DEMONSTRATIONS, seed)
    return demonstrate(TASKS[name], ENVS[name], episodes, seed)


def _register() -> None:
    for name in TASKS:
        gym.register(
            IDS[name], entry_point=f"{__name__}:make", vector_entry_point=f"{__name__}:make_vec", kwargs={"name": name}
        )
    gym.register(IDS["corridor"], entry_point=f"{corridor.__name__}:Corridor", max_episode_steps=corridor.MAX_STEPS)


if IDS["corridor"] not in gym.registry:
    _register()
