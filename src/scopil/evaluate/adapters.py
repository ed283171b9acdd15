# merge: delete this whole file.
"""Stand-ins until the parts of the redesign are merged."""

from pathlib import Path
from typing import Any

from scopil.algos import find, registered
from scopil.demos.dataset import Episode
from scopil.envs.base import BatchEnv
from scopil.files import is_locked, lock
from scopil.policy import Policy, read_policy

__all__ = ["Episode", "Policy", "is_locked", "lock"]


def with_info(episode: Any) -> Episode:
    return episode


def load_policy(path: Path, env: BatchEnv) -> tuple[Policy, int]:
    policy, note = read_policy(path / "policy.safetensors" if path.is_dir() else path)
    return policy, int(note["env_steps"])


def load_state(path: Path, env: BatchEnv) -> Any:
    from scopil.agents import load

    return load(path, env=env).state


def agent_policy(agent: Any) -> Policy:
    return agent.policy


def learned_cost(state: Any) -> Any:
    from scopil.algos import icrl

    return (lambda obs, action: icrl.cost(state, obs, action)) if hasattr(state, "constraint") else None


def algorithm(name: str) -> Any:
    return find(name)


def algorithm_name(spec: Any) -> str:
    return spec.algorithm.name


def title_of(name: str) -> str:
    return registered()[name].title if name in registered() else name


def budget_of(name: str) -> int:
    return find(name).budget


def known_algorithms() -> list[str]:
    return list(registered())


def inner_env(env: BatchEnv) -> Any:
    return env


def marble_maze_offer(env: Any, name: str) -> Any:
    return env.offer(name)
