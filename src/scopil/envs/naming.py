"""Ids that `import scopil` registers, environment names with options, and checks of names that refer to code.

CartPole-v1                                          a Gymnasium id
CartPole-v1(max_episode_steps=300)                   with arguments of `gym.make`
module:Id-v0                                         from a module that registers it
my_env.py:MyEnv(size=5, max_episode_steps=300)       a class or function in a file, with its arguments

A name with a colon runs code. A caller may pass such a name. A policy, run folder or demonstration set may come from
an untrusted source: its name is refused unless it is in OWN_CODE, or the caller trusts it. `scopil.train.code` decides
for run folders.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import gymnasium as gym

from scopil.errors import ConfigError, EnvError

IDS = {
    "simple": "scopil/MarbleMaze-Simple-v0",
    "multiple": "scopil/MarbleMaze-Multiple-v0",
    "two-modes": "scopil/MarbleMaze-TwoModes-v0",
}
OTHERS = {  # tasks by other authors: id → entry point, time limit in steps
    "scopil/HalfCheetahWall-v0": ("scopil_bench.studies.external.half_cheetah:HalfCheetahWall", 1000),
    # The others have their own time limit.
    "scopil/Highway-v0": ("scopil_bench.studies.external.highway:Highway", None),
    "scopil/NeedleMaster-v0": ("scopil_bench.studies.needle_master:make", None),
}
_FORM = re.compile(r"(?P<base>[^()]*)(?:\((?P<options>.*)\))?", re.DOTALL)
# The environments and rules of the built-in studies: the only names of code that a file from others may hold.
_STUDIES = "scopil_bench.studies"
_TASKS = ("Action", "Corridor", "Distance", "Flag", "Free", "Speed", "Zone")
OWN_CODE = frozenset(
    [
        *(f"{_STUDIES}.rules:rules/{task}-v0" for task in _TASKS),
        f"{_STUDIES}.rules.corridor:RULES",
        f"{_STUDIES}.external.half_cheetah:behind_the_wall",
        f"{_STUDIES}.external.highway:RULES",
        f"{_STUDIES}.external.lunar_lander:rules",
        *(f"{_STUDIES}.external.study:{rule}" for rule in ("beside_the_cliff", "off_the_middle", "too_fast")),
    ]
)


def split_options(name: str) -> tuple[str, dict[str, Any]]:
    """`A(size=5)` → A, {size: 5}. Options are literals (numbers, text, lists); nothing is evaluated."""
    found = _FORM.fullmatch(name.strip())
    try:
        if found is None:
            raise ValueError("brackets that do not close")
        call = ast.parse(f"f({found['options'] or ''})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(k.arg is None for k in call.keywords):
            raise ValueError("options without a name")
        return found["base"].strip(), {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise ConfigError(
            f"environment {name!r}: {reason}; want options as in my_env.py:MyEnv(size=5, max_episode_steps=300)."
        ) from error


def with_options(name: str, options: Mapping[str, Any]) -> str:
    if not options:
        return name
    base, before = split_options(name)
    return f"{base}({', '.join(f'{key}={value!r}' for key, value in (before | dict(options)).items())})"


def read_options(words: Sequence[str]) -> dict[str, Any]:
    """`size=5 mode=fast` → {size: 5, mode: "fast"}."""
    options = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError(f"--env-kwargs {word}; want NAME=VALUE, as in --env-kwargs size=5 mode=fast.")
        try:
            options[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[key] = value  # strings need no quotes
    return options


def names_code(env: Any) -> bool:
    """Whether making this environment may import code other than OWN_CODE. A string option may name a file."""
    if not isinstance(env, str):
        return False
    name, options = split_options(env)
    outside = ":" in name and name not in OWN_CODE
    return outside or any(not isinstance(value, int | float | None) for value in options.values())


def id_in_file(env: Any, source: Any, trust_env: bool) -> Any:
    """Return `env`, a name read from the file `source`. Raises EnvError if it refers to untrusted code."""
    if names_code(env) and not trust_env:
        raise EnvError(
            f"{source} names the environment {env!r}, and making it would run code that a file chose. If that code is "
            f"yours or you trust it, add --trust-env (trust_env=True), or name it yourself (env={env!r})."
        )
    return env


def setting_id(setting: str) -> str:
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
                entry_point="scopil.envs.naming:make",
                vector_entry_point="scopil.envs.naming:make_vec",
                kwargs={"setting": setting},
            )
    for env_id, (entry_point, steps) in OTHERS.items():
        if env_id not in gym.registry:
            gym.register(env_id, entry_point=entry_point, max_episode_steps=steps)
