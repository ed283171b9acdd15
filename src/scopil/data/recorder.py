"""Record demonstrations from a loop that scopil does not run: teleoperation, a simulator, a robot."""

from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from scopil.data import storage
from scopil.data.arrays import from_trajectories
from scopil.data.dataset import Demonstrations
from scopil.data.fit_to_env import fit_to_env
from scopil.envs.gym_env import open_env
from scopil.envs.jax_env import id_of
from scopil.errors import DatasetError


class Recorder:
    """A context manager that records episodes and writes them to a file.

        with scopil.Recorder("demos.npz") as recorder:
            while running:
                action = teleoperation(obs)
                recorder.step(obs, action)
                obs, done = robot(action)
                if done:
                    recorder.end(obs, terminated=True)

    The file is written after every episode, so that a crash loses the open episode only. An episode that is open at the
    end of the `with` block is kept as truncated; `drop` discards it.

    Args:
        out: the `.npz` file to write; it must not exist. None: nothing is written, `demos` has the episodes.
        env: an id or an environment; its spaces are checked and stored. Without it, they are inferred from the data.
        name: the name of the set.
    """

    def __init__(self, out: str | Path | None = None, *, env: Any = None, name: str = "recorded"):
        self._out, self._name, self._env_id = None if out is None else Path(out), name, id_of(env)
        if self._out is not None and self._out.exists():
            raise DatasetError(f"{self._out} exists; want the name of a new file.")
        storage.refuse_ending(self._out or "")
        self._env = None if env is None else open_env(env)
        self._shared = env is self._env
        self._done: list[dict[str, Any]] = []
        self._open: dict[str, Any] = {}
        self._like: tuple[Any, Any] | None = None  # shapes of the first observation and action

    def step(self, obs: Any, action: Any, reward: float | None = None) -> None:
        """Record an observation and the action that follows it.

        Args:
            obs: an array or a dict of arrays. It is copied.
            action: a number or an array. It is copied.
            reward: the reward of the step; either all steps have one, or none.
        """
        seen, done = _copied(obs, "observation"), _copied(action, "action")
        found = _shape(seen), _shape(done)
        if self._like is None:
            self._like = found
        elif found != self._like:
            at = f"step {len(self._open.get('acts', []))} of episode {len(self._done)}"
            raise DatasetError(f"{at}: observation and action of shapes {found}; the first step has {self._like}.")
        if self._open and (reward is None) != (self._open["rews"] is None):
            raise DatasetError(f"reward = {reward} after steps {'without' if reward is not None else 'with'} a reward.")
        if not self._open:
            self._open = {"obs": [], "acts": [], "rews": None if reward is None else []}
        self._open["obs"].append(seen)
        self._open["acts"].append(done)
        if reward is not None:
            self._open["rews"].append(float(reward))

    def end(self, obs: Any = None, *, terminated: bool = True, truncated: bool = False) -> None:
        """End the episode and write the file.

        Args:
            obs: the observation after the last action, if it is known.
            terminated: the task ended the episode.
            truncated: a time limit or the operator ended it.
        """
        if not self._open:
            raise DatasetError("end() before any step(): the episode has no actions.")
        episode, self._open = self._open, {}
        if obs is not None:
            episode["obs"].append(_copied(obs, "observation"))
        ends = {"terminated": terminated, "truncated": truncated}
        self._done.append(episode | {"acts": np.stack(episode["acts"])} | ends)
        try:
            demos = self.demos
        except DatasetError:
            self._done.pop()  # the episodes before it stay sound
            raise
        if self._out is not None:
            storage.write(demos, self._out)

    def drop(self) -> None:
        """Discard the open episode."""
        self._open = {}

    def __len__(self) -> int:
        """The number of finished episodes."""
        return len(self._done)

    @property
    def demos(self) -> Demonstrations:
        """The finished episodes."""
        if not self._done:
            raise DatasetError("no episode has ended; call step() and end() first.")
        found = from_trajectories(self._done, self._name, "scopil.Recorder")
        return replace(found if self._env is None else fit_to_env(found, self._env), env_id=self._env_id)

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if self._open:
                # An error of the loop is more important than one of its last episode.
                with nullcontext() if error is None else suppress(DatasetError):
                    self.end(terminated=False, truncated=True)
        finally:
            if self._env is not None and not self._shared:
                self._env.close()


def _copied(value: Any, what: str) -> Any:
    """A copy, since a loop may reuse its arrays. Raises `DatasetError` unless it holds finite numbers."""
    if isinstance(value, dict):
        return {str(key): _copied(one, f"{what} {key}") for key, one in value.items()}
    array = np.array(value)
    if array.dtype.kind not in "biuf" or not np.all(np.isfinite(array)):
        raise DatasetError(f"{what} {str(value)[:80]}; want finite numbers.")
    return array


def _shape(value: Any) -> Any:
    return {key: one.shape for key, one in value.items()} if isinstance(value, dict) else value.shape
