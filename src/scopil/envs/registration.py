"""Environment ids, registered by `import scopil`. JAX is imported when an environment is made."""

from functools import lru_cache

import gymnasium as gym

from scopil.errors import ConfigError

IDS = {
    "simple": "scopil/MarbleMaze-Simple-v0",
    "multiple": "scopil/MarbleMaze-Multiple-v0",
    "two-modes": "scopil/MarbleMaze-TwoModes-v0",
}
OTHERS = {  # tasks of other authors with added rules: id → entry point, time limit in steps
    "scopil/HalfCheetahWall-v0": ("scopil_bench.studies.external.half_cheetah:HalfCheetahWall", 1000),
    "scopil/Highway-v0": ("scopil_bench.studies.external.highway:Highway", None),  # has its own time limit
}


def setting_id(setting: str) -> str:
    """The environment of a Marble Maze setting."""
    if setting not in IDS:
        raise ConfigError(f"unknown setting {setting!r}; want one of {', '.join(IDS)}.")
    return IDS[setting]


def make(setting: str, render_mode: str | None = None) -> gym.Env:
    from scopil.envs.as_gym import FunctionalEnv

    return FunctionalEnv(_compiled(setting), render_mode)


def make_vec(setting: str, num_envs: int = 1, max_episode_steps: int | None = None) -> gym.vector.VectorEnv:
    from scopil.envs.as_gym import FunctionalVectorEnv

    return FunctionalVectorEnv(_compiled(setting, max_episode_steps), num_envs)


@lru_cache  # environments of one setting share their compiled code
def _compiled(setting: str, max_episode_steps: int | None = None):
    from scopil.envs.jax_env import CompiledEnv
    from scopil.envs.marble_maze import SETTINGS, MarbleMaze

    return CompiledEnv(MarbleMaze(SETTINGS[setting]), max_episode_steps=max_episode_steps)


def register() -> None:
    for setting, env_id in IDS.items():
        if env_id not in gym.registry:
            gym.register(
                env_id,
                entry_point="scopil.envs.registration:make",
                vector_entry_point="scopil.envs.registration:make_vec",
                kwargs={"setting": setting},
            )
    for env_id, (entry_point, steps) in OTHERS.items():
        if env_id not in gym.registry:
            gym.register(env_id, entry_point=entry_point, max_episode_steps=steps)
