# merge: delete this whole file. It stands in for interfaces that other parts of the redesign bring; each name says what
# replaces it.
"""Stand-ins until the parts of the redesign are merged."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array

from scopil.demos import dataset
from scopil.envs.functional import BatchEnv, CompiledEnv


@dataclass(frozen=True, kw_only=True, eq=False)
class Episode(dataset.Episode):  # merge: scopil.demos.dataset.Episode
    """An episode with what the environment reported of every visited state, the initial one included."""

    info: dict[str, np.ndarray] = field(default_factory=dict)


def with_info(episode: Any) -> Episode:  # merge: the episode itself
    """A demonstrated episode as a played one."""
    if isinstance(episode, Episode):
        return episode
    return Episode(**{f.name: getattr(episode, f.name) for f in fields(episode)})


class Policy(eqx.Module):  # merge: scopil.policy.Policy
    """A learner's state that acts."""

    learner: Any
    algorithm: Any = eqx.field(static=True)

    def act(self, obs: Array, key: Any = None) -> Array:
        pi = self.algorithm.policy(self.learner, obs)
        return pi.mode() if key is None else pi.sample(key)


def load_policy(path: Path, env: BatchEnv) -> tuple[Policy, int]:
    # merge: Policy.load(path), and the steps from the note of the file: read_note(path)["env_steps"]
    agent = _agent(path, env)
    return Policy(agent.learner, agent.algorithm), agent.num_timesteps


def load_state(path: Path, env: BatchEnv) -> Any:
    # merge: scopil.load(path, env=env).state
    return _agent(path, env).learner


def _agent(path: Path, env: BatchEnv) -> Any:
    from importlib import import_module

    return import_module("scopil.agents").load(path, env=env)


def agent_policy(agent: Any) -> Policy:  # merge: agent.policy
    return Policy(agent.learner, agent.algorithm)


def learned_cost(state: Any) -> Callable[[Array, Array], Array] | None:
    # merge: whatever the Algorithm offers as its learned cost; None where it learns none
    if not hasattr(state, "constraint"):
        return None
    from importlib import import_module

    return lambda obs, action: import_module("scopil.algos.icrl").cost(state, obs, action)


def algorithm(name: str) -> Any:  # merge: scopil.algos.find(name), for RunSpec(algorithm=…)
    return name


def algorithm_name(spec: Any) -> str:  # merge: spec.algorithm.name
    return spec.algorithm


def title_of(name: str) -> str:  # merge: scopil.algos.find(name).title
    return _algorithms()[name].title if name in _algorithms() else name


def budget_of(name: str) -> int:  # merge: scopil.algos.find(name).budget
    return _algorithms()[name].budget


def known_algorithms() -> list[str]:  # merge: list(scopil.algos.registered())
    return list(_algorithms())


def _algorithms() -> dict[str, Any]:
    from importlib import import_module

    return import_module("scopil.algos").ALGORITHMS


def inner_env(env: BatchEnv) -> Any:
    # merge: env.env of a CompiledEnv; of a HostEnv the environment that was given, unwrapped
    if isinstance(env, CompiledEnv):
        return env.env
    first = next(
        (e for e in (getattr(env, "_spare", None), *getattr(env, "_ours", ())) if e is not None), None
    )
    return None if first is None else first.unwrapped


def marble_maze_offer(inner: Any, name: str) -> Callable[..., Any] | None:
    # merge: methods of MarbleMaze with these names, which call the functions of studies/marble_maze/paths.py and
    # constraint_map.py
    if type(inner).__name__ != "MarbleMaze":
        return None
    from importlib import import_module

    home = {"measures": "paths", "draw_episodes": "paths", "draw_cost": "constraint_map"}
    if name not in home:
        return None
    return getattr(import_module(f"scopil.studies.marble_maze.{home[name]}"), name)


def lock(path: Path) -> Any:
    # merge: scopil.files.lock(path), an object with release()
    import fcntl

    class Held:
        def __init__(self):
            self._file = path.open("w")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._file.close()
                raise

        def release(self) -> None:
            self._file.close()

    return Held()


def is_locked(path: Path) -> bool:
    # merge: scopil.files.is_locked(path)
    if not path.exists():
        return False
    try:
        lock(path).release()
    except OSError:
        return True
    return False
