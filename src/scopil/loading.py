"""Loading of agents and policies from files and run folders. The content of a file is checked before it is used."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from scopil.agent import Agent, LoadedLearner
from scopil.algos.base import Algorithm, spaces_of, stand_in
from scopil.config import OWN_FEATURES, with_code
from scopil.envs.base import BatchEnv
from scopil.envs.gym_env import AnyEnv
from scopil.envs.naming import id_in_file
from scopil.errors import CheckpointError, ConfigError
from scopil.files import is_line
from scopil.losses.familiarity import Monitor
from scopil.nn.heads import DiscreteHead, Head
from scopil.policy import Policy, policy_from, read_policy
from scopil.registry import registered
from scopil.serialization import as_tree, branch, read_arrays
from scopil.train.run import Run
from scopil.user_code import load_object


def load(
    path: str | Path,
    env: AnyEnv | None = None,
    demos: Any = None,
    algorithm: Algorithm | None = None,
    *,
    features: Any = None,
    trust_env: bool = False,
) -> Agent:
    """Load an agent from a file of `agent.save`, or from a run folder (its final policy or newest checkpoint). An agent
    from a run folder has the run, as `agent.run`, and its rules.

    Args:
        path: the file or folder.
        env: needed if the agent was trained on an environment without an id.
        demos: needed to continue learning if the algorithm uses demonstrations. A run folder has its own copy, which is
            read on first use.
        algorithm: needed if the agent's algorithm is not registered.
        features: the function of own features that the agent was trained with, if it has no name or is not trusted.
        trust_env: whether to run the code that the file or folder names as its environment, rules and features. Runs
            that you made on this machine need no trust. For files from others, pass the environment as `env` instead.
    """
    path, final = Path(path), True
    if path.is_dir():
        run = Run.open(path, algorithm, trust_env=trust_env)
        final = run.finished
        path, arrays, note = run.newest_arrays()
    else:
        arrays, note = read_arrays(path)
        run = _run_of(path, note, algorithm, trust_env)
    if demos is None and run is not None and run.demos_file.exists():
        demos = run.demos
    name = note.get("algorithm")
    if name is None or "config" not in note:
        raise CheckpointError(f"{path} holds a policy alone; scopil.Policy.load(path) reads it.")
    _refuse_malformed(note, path)
    if algorithm is not None and algorithm.name != name:
        raise CheckpointError(f"{path} was made by {name}, not by {algorithm.name}.")
    if env is None and not note.get("env"):
        raise CheckpointError(f"{path} does not name its environment; give one: scopil.load(path, env=...).")
    algorithm = algorithm or registered().get(name)

    def own_features(name: str) -> Any:
        if features is not None:
            return features if callable(features) else load_object(features, OWN_FEATURES)
        if run is not None:
            return run.load_features(name)
        if not trust_env:
            raise ConfigError(
                f"{path} names the features {name!r}, and loading them would run code that a file chose. If that code "
                f"is yours or you trust it, add --trust-env (trust_env=True), or give them: features={name!r}."
            )
        return load_object(name, OWN_FEATURES)

    agent = Agent(
        algorithm or stand_in(name, note.get("title", name)),
        env if env is not None else run.env() if run is not None else id_in_file(note["env"], path, trust_env),
        demos,
        seed=note["seed"],
        **(with_code(note["config"], own_features) if algorithm is not None else {}),
    )
    policy = policy_from(arrays, note, path) if final else None
    if policy is not None:
        refuse_other_spaces(policy, agent.env, path)
    agent.env_id = agent.env_id or note.get("env")
    agent._demos_name = note.get("demos")
    agent.run = run
    learner = branch(arrays, "learner")
    agent._loaded = LoadedLearner(
        lambda new: as_tree(learner, jax.eval_shape(new), path), note.get("env_steps", 0), policy
    )
    return agent


def _run_of(path: Path, note: dict[str, Any], algorithm: Algorithm | None, trust_env: bool) -> Run | None:
    """The run that wrote a policy file, if the file is still in its folder."""
    if not (path.parent / "run.json").is_file():
        return None
    try:
        run = Run.open(path.parent, algorithm, trust_env=trust_env)
    except CheckpointError:  # the file is readable even if its run folder is damaged
        return None
    wanted = run.note()
    return run if all(note.get(key) == wanted[key] for key in ("algorithm", "env", "demos", "seed")) else None


def _refuse_malformed(note: dict[str, Any], path: Path) -> None:
    """Raise if the note of a file does not describe an agent."""
    lines = (note.get(key) for key in ("algorithm", "title", "env", "demos"))
    counts = note.get("seed"), note.get("env_steps", 0)
    config = note["config"]
    if (
        not all(line is None or is_line(line) for line in lines)
        or not all(type(count) is int for count in counts)
        or not isinstance(config, dict)
        or not config.keys().isdisjoint(("self", "algorithm", "env", "demos", "seed", "verbose"))
    ):
        raise CheckpointError(f"{path} is damaged: algorithm, environment, seed or settings are malformed.")


def refuse_other_spaces(policy: Policy, env: BatchEnv, path: Path) -> None:
    """Raise `CheckpointError` if a policy does not fit an environment."""
    spaces = spaces_of(env.observation_space, env.action_space, env.spaces)
    found, wanted = policy.form()["sizes"][0], spaces.obs_dim
    if found != wanted:
        raise CheckpointError(f"{path} takes observations of {found} numbers; the environment's have {wanted}.")
    have, want = _actions(policy.head), _actions(spaces.head)
    if have != want:
        raise CheckpointError(f"{path} chooses {have}; the environment takes {want}: {env.action_space}.")


def _actions(head: Head) -> str:
    """The properties of a head that must match the environment."""
    if isinstance(head, DiscreteHead):
        return f"one of {head.num_actions} actions counted from {head.start}"
    low, high = np.asarray(head.low).tolist(), np.asarray(head.high).tolist()
    return f"actions of {head.num_actions} components between {low} and {high}"


def policy_of(path: str | Path, *, trust_env: bool = False) -> tuple[Policy, dict[str, str], Monitor | None]:
    """For export: the policy of a saved agent or run, its metadata, and its familiarity model if the run's algorithm
    learns one. No environment is opened for a final policy without a familiarity model."""
    path = Path(path)
    run = Run.open(path) if path.is_dir() else None
    if run is None or (run.finished and run.spec.algorithm.monitor is None):
        policy, note = read_policy(path if run is None else run.policy_file)
        monitor = None
    else:
        agent = load(path, trust_env=trust_env)
        agent.env.close()
        policy, note, monitor = agent.policy, run.note() | {"env_steps": agent.num_timesteps}, agent.monitor()
        note["columns"] = agent.env.spaces.note
    kept = {"algorithm": "algorithm", "env": "env_id", "seed": "seed", "env_steps": "env_steps"}
    about = {name: str(note[key]) for key, name in kept.items() if note.get(key) is not None}
    if isinstance(note.get("columns"), list):
        about["columns"] = json.dumps(note["columns"])
    return policy, about, monitor
