"""Policies in the studio's folder, with their environments and rules."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from scopil.envs.base import BatchEnv
from scopil.errors import ConfigError
from scopil.eval.rules import Rules
from scopil.loading import load
from scopil.serialization import read_note
from scopil.train.run import Run
from scopil_studio.listing import plain, version_of
from scopil_studio.paths import inside, refuse_outside
from scopil_studio.watching import RUN_FILES
from scopil_studio.worker import StudioConfig


class Played(NamedTuple):
    """A policy, or a recorded episode if `agent` is None, with its environment and the rules that it is judged by."""

    opened: BatchEnv
    env: str  # the name that opens the environment in this process
    rules: Callable[[], Rules | None]
    agent: Any = None

    def act(self, obs: Any) -> Any:
        """The greedy action."""
        return self.agent.predict(obs)[0]


def open_policy(config: StudioConfig, env: str, name: str) -> Played:
    """The policy of a run folder or file in the studio's folder. The caller's rules replace those of its run. Raises
    ConfigError if it was trained on another environment."""
    path = inside(config.folder, name)
    refuse_outside(config.folder, path, *(path / file for file in RUN_FILES))
    file = Run.open(path).newest_policy() if path.is_dir() else plain(path)
    found = _loaded(path, version_of(file.stat()), config)
    if found.agent.env_id != env:
        raise ConfigError(f"{name} was trained on another environment; want {env}.")
    given = config.rules_for(env)
    return found if given is None else found._replace(rules=lambda: given)


@lru_cache(maxsize=8)
def _loaded(path: Path, version: tuple[int, ...], config: StudioConfig) -> Played:
    """The policy, read once per version of its file. Code that its run does not sign must be named by the caller."""
    run = Run.open(path) if path.is_dir() else None
    own = run is not None and run.code is not None and run.code.own
    env = run.spec.env if run is not None else read_note(path).get("env")
    if not own:
        config.refuse_env(str(env))
    name = run.env_name() if run is not None and own else str(env)
    agent = load(path, None if own else name)
    source, agent.run = agent.run, None  # the pages judge the episodes
    return Played(agent.env, name, (lambda: None) if source is None else source.rules, agent)
