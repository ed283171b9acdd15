"""Agents and policies from saved files and run folders. What a file says of itself is checked before it is used."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from scopil.agent import Agent, LoadedLearner
from scopil.algos.base import Algorithm, spaces_of, stand_in
from scopil.envs.base import BatchEnv
from scopil.envs.gym_env import AnyEnv
from scopil.envs.trust import id_in_file
from scopil.errors import CheckpointError
from scopil.files import is_line
from scopil.losses.density_ratio import Monitor
from scopil.nn.heads import DiscreteHead, Head
from scopil.policy import Policy, policy_from, read_policy
from scopil.registry import registered
from scopil.serialization import as_tree, branch, read_arrays, read_note
from scopil.train.run import Run


def load(
    path: str | Path,
    env: AnyEnv | None = None,
    demos: Any = None,
    algorithm: Algorithm | None = None,
    *,
    trust_env: bool = False,
) -> Agent:
    """An agent from `agent.save`, or from a run folder (its final policy, or its newest checkpoint).

    Args:
        path: the file or folder.
        env: needed when the agent was trained on an environment without an id.
        demos: to go on learning from a saved agent whose algorithm needs demonstrations; a run folder has its own.
        algorithm: needed when the agent's algorithm is not a registered one.
        trust_env: import the module that the file names where its environment's id is `module:Id-v0`. It then runs the
            code of that module; name the environment yourself, as `env`, for files from others.
    """
    path, final = Path(path), True
    run = run_of(path, algorithm)
    if run is not None:
        if demos is None and run.demos_file.exists():
            demos = run.demos()
        if path.is_dir():
            path, final = run.newest_policy(), run.finished
    arrays, note = read_arrays(path)
    name = note.get("algorithm")
    if name is None or "config" not in note:
        raise CheckpointError(f"{path} holds a policy alone; scopil.Policy.load(path) reads it.")
    _refuse_malformed(note, path)
    if algorithm is not None and algorithm.name != name:
        raise CheckpointError(f"{path} was made by {name}, not by {algorithm.name}.")
    if env is None and not note.get("env"):
        raise CheckpointError(f"{path} does not name its environment; give one: scopil.load(path, env=...).")
    algorithm = algorithm or registered().get(name)
    agent = Agent(
        algorithm or stand_in(name, note.get("title", name)),
        id_in_file(note["env"], path, trust_env) if env is None else env,
        demos,
        seed=note["seed"],
        **(note["config"] if algorithm is not None else {}),
    )
    policy = policy_from(arrays, note, path) if final else None
    if policy is not None:
        _refuse_other_spaces(policy, agent.env, path)
    agent.env_id = agent.env_id or note.get("env")
    agent.demos_name = agent.demos_name or note.get("demos")
    learner = branch(arrays, "learner")
    agent._loaded = LoadedLearner(
        lambda new: as_tree(learner, jax.eval_shape(new), path), note.get("env_steps", 0), policy
    )
    return agent


def run_of(path: Path, algorithm: Algorithm | None = None, *, trust_env: bool = False) -> Run | None:
    """The run that a folder holds, or of which a file in it is a policy; None of other files."""
    if path.is_dir():
        return Run.open(path, algorithm, trust_env=trust_env)
    if not (path.parent / "run.json").is_file():
        return None
    try:
        run = Run.open(path.parent, algorithm, trust_env=trust_env)
    except CheckpointError:  # damaged: the file stands for itself
        return None
    made, said = read_note(path), run.note()
    return run if all(made.get(key) == said[key] for key in ("algorithm", "env", "demos", "seed")) else None


def _refuse_malformed(note: dict[str, Any], path: Path) -> None:
    """What a file says of its agent, before any of it is used."""
    lines = (note.get(key) for key in ("algorithm", "title", "env", "demos"))
    counts = note.get("seed"), note.get("env_steps", 0)
    config = note["config"]
    if (
        not all(line is None or is_line(line) for line in lines)
        or not all(type(count) is int for count in counts)
        or not isinstance(config, dict)
        or not config.keys().isdisjoint(("self", "algorithm", "env", "demos", "seed"))
    ):
        raise CheckpointError(f"{path} is damaged: it names no algorithm, environment, seed and settings.")


def _refuse_other_spaces(policy: Policy, env: BatchEnv, path: Path) -> None:
    spaces = spaces_of(env.observation_space, env.action_space, env.image)
    found, wanted = policy.form()["sizes"][0], spaces.obs_dim
    if found != wanted:
        raise CheckpointError(f"{path} sees observations of {found} numbers; the environment's have {wanted}.")
    have, want = policy.head, spaces.head
    if str(_plain(have)) != str(_plain(want)):
        raise CheckpointError(
            f"{path} chooses {_actions(have)}; the environment takes {_actions(want)}: {env.action_space}."
        )


def _plain(head: Head) -> Any:
    """What two heads have to agree in."""
    if isinstance(head, DiscreteHead):
        return head.num_actions, head.start
    return np.asarray(head.low).tolist(), np.asarray(head.high).tolist()


def _actions(head: Head) -> str:
    if isinstance(head, DiscreteHead):
        return f"one of {head.num_actions} actions counted from {head.start}"
    low, high = _plain(head)
    return f"actions of {head.num_actions} components between {low} and {high}"


def policy_of(path: str | Path, *, trust_env: bool = False) -> tuple[Policy, dict[str, str]]:
    """The policy of a saved agent or a run, and a few words on where it comes from. No environment is opened where the
    policy is final."""
    path = Path(path)
    run = Run.open(path) if path.is_dir() else None
    if run is not None and not run.finished:
        agent = load(path, trust_env=trust_env)
        agent.env.close()
        policy, note = agent.policy, run.note() | {"env_steps": agent.num_timesteps}
    else:
        policy, note = read_policy(path if run is None else run.policy_file)
    kept = {"algorithm": "algorithm", "env": "env_id", "seed": "seed", "env_steps": "env_steps"}
    return policy, {name: str(note[key]) for key, name in kept.items() if note.get(key) is not None}


def monitor_of(path: str | Path, *, trust_env: bool = False) -> Monitor | None:
    """What tells how familiar a state is, of a run folder whose algorithm learns it; None of others."""
    if not Path(path).is_dir() or Run.open(Path(path)).spec.algorithm.monitor is None:
        return None
    agent = load(path, trust_env=trust_env)
    agent.env.close()
    return agent.monitor()
