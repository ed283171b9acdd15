"""Record episodes that a person plays in a window or in the studio, with undo, and change recorded files.

Each change locks the file, reads it and writes it again, because other processes may change it too.
"""

import hashlib
import numbers
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from scopil.data import storage
from scopil.data.dataset import Demonstrations, Episode
from scopil.data.record import widened, without_bounds
from scopil.envs.base import cost_of
from scopil.envs.rollout import start_of
from scopil.envs.spaces import Spaces
from scopil.errors import DatasetError, EnvError
from scopil.files import Locked, lock

# (obs, action, next_obs, info) → number of rules that the step breaks
StepCost = Callable[[Any, Any, Any, dict[str, Any]], int]
WAIT = 10.0  # seconds to wait for the lock of a file
LONGEST_NAME = 240  # bytes


class Recorder:
    """Plays one episode at a time on `env` and writes each kept episode to `out` before the next one begins.

    An episode is determined by its reset seed and its actions, so undo replays it from the seed without the last
    action. If the replayed observations differ (the environment is not deterministic for a given seed), the episode
    restarts. New episodes are added to an existing file of the same environment; other processes may add to it too.
    """

    def __init__(
        self,
        env: gym.Env,
        out: str | Path,
        *,
        seed: int = 0,
        name: str = "recorded",
        env_id: str | None = None,
        drawn: bool = True,
        cost: StepCost | None = None,
        begin_with: Demonstrations | None = None,
    ):
        """`name` is the name of a new set, `seed` the reset seed of its first episode. `env` was made from the name
        `env_id` (default: the id of its spec, without file and options). `drawn`: `image` renders the environment.
        `cost` replaces the costs in `info`; the initial state breaks no rule. A new file starts with the episodes of
        `begin_with`. Raises `EnvError` if spaces or render mode are not supported, `DatasetError` if `out` cannot be
        written or holds episodes of another environment."""
        self._spaces = _checked_spaces(env, drawn)
        self._cost, self._begin_with = cost, begin_with
        self.env, self.out, self.name = env, Path(out), name
        self.env_id = env_id or (env.spec.id if env.spec is not None else None)
        self.demos = self._continued()
        self.kept_now = 0  # episodes kept since this recorder was made
        earlier = [kept["seed"] for kept in self.recorded]
        self._seed = max([seed, *(s + 1 for s in earlier)])
        self.restart()

    def _continued(self) -> Demonstrations | None:
        """The set in the existing file; None if the file does not exist."""
        if len(os.fsencode(self.out.name)) > LONGEST_NAME:  # a temporary file beside it has a longer name
            raise DatasetError(f"{self.out.name[:40]}…: want a file name of at most {LONGEST_NAME} bytes.")
        storage.refuse_ending(self.out)
        if not self.out.exists():
            try:
                self.out.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise DatasetError(f"cannot write {self.out}: {error.strerror}; choose another file.") from error
            if not os.access(self.out.parent, os.W_OK):
                raise DatasetError(f"cannot write to {self.out.parent}; choose another file.")
            return self._begin_with
        if not self.out.is_file():
            raise DatasetError(f"{self.out} is not a file; want a path such as my.npz.")
        demos = storage.read(self.out)
        seen: Any = self._spaces.stored
        fits = demos.observation_space in (seen, without_bounds(seen))
        fits = fits and demos.flattened_from == self._spaces.flattened_from
        if not fits or (demos.env_id, demos.action_space) != (self.env_id, self.env.action_space):
            found = demos.env_id or f"an unnamed environment with {demos.observation_space}"
            wanted = self.env_id or self.env.unwrapped
            raise DatasetError(f"{self.out} holds episodes of {found}, not of {wanted}; choose another file.")
        return demos

    # --- the current episode -------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Restart this episode from the same initial state."""
        obs, info = self.env.reset(seed=self._seed)
        self._observations, self._actions, self._rewards = [self._spaces.to_stored(obs)], [], []
        self._newest = deepcopy(obs)  # in the environment's own form, for the rules
        self._costs = [_rules_broken(info) if self._cost is None else 0]
        self._start = start_of(self.env, info)
        self.terminated = self.truncated = False
        self._image: np.ndarray | None = None

    def step(self, action: Any) -> None:
        assert not self.over, "the episode is over: keep or discard it"
        played = np.asarray(action, self.env.action_space.dtype)
        obs, reward, terminated, truncated, info = self.env.step(played if played.ndim else played[()])
        self._observations.append(self._spaces.to_stored(obs))
        self._actions.append(played)
        self._rewards.append(float(reward))
        before, self._newest = self._newest, deepcopy(obs)
        after = self._newest
        self._costs.append(_rules_broken(info) if self._cost is None else self._cost(before, played, after, info))
        self.terminated, self.truncated = bool(terminated), bool(truncated)
        self._image = None

    def undo(self) -> None:
        """Undo the last step. Raises `EnvError` if the environment is not deterministic for a given seed."""
        if not self._actions:
            return
        actions, before = self._actions[:-1], self._observations[:-1]
        self.restart()
        for action in actions:
            self.step(action)
        if not all(np.array_equal(a, b) for a, b in zip(before, self._observations, strict=True)):
            self.restart()
            raise EnvError("this environment does not repeat itself from its seed, so undo restarted the episode.")

    def keep(self, parts: Sequence[tuple[int, int]] | None = None) -> None:
        """Save the finished episode, or parts of any episode, and begin the next one. A part is its first step and its
        end, and becomes an episode of its own. If saving fails, the episode stays in memory."""
        assert self.over or parts, "only a finished episode can be kept"
        with sole_writer(self.out):
            before = self.demos = self._continued()
            try:
                for first, end in parts or [(0, self.steps)]:
                    self.demos = self._with_episode(first, end)
                storage.write(self.demos, self.out)  # pyright: ignore[reportArgumentType]  (at least one part)
            except BaseException:
                self.demos = before
                raise
        self.kept_now += 1
        self.discard()

    def discard(self) -> None:
        """Discard this episode and begin another one with a new seed."""
        self._seed += 1
        self.restart()

    def _with_episode(self, first: int, end: int) -> Demonstrations:
        """The set with the steps from `first` to `end` appended as an episode."""
        last = end == self.steps
        episode = Episode(
            observations=np.stack(self._observations[first : end + 1]),
            actions=np.stack(self._actions[first:end]),
            rewards=np.array(self._rewards[first:end], np.float32),
            terminated=self.terminated and last,
            truncated=self.truncated and last,
            start=self._start if first == 0 else None,
        )
        about = {"made_by": "scopil play"} if self.demos is None else self.demos.about
        violations = _broken(self._costs[first : end + 1])
        about = about | {"recorded": [*self.recorded, {"seed": self._seed, "violations": violations}]}
        known: Any = self._spaces.stored if self.demos is None else self.demos.observation_space
        seen, about = widened([episode], known, about)
        if self.demos is None:
            return Demonstrations(
                episodes=(episode,),
                observation_space=seen,
                action_space=self.env.action_space,  # type: ignore[arg-type]  (checked by _checked_spaces)
                flattened_from=self._spaces.flattened_from,
                name=self.name,
                env_id=self.env_id,
                about=about,
            )
        # Either all episodes of a set have starts or none has; the same holds for rewards.
        episodes = (*self.demos.episodes, episode)
        for what in ("start", "rewards"):
            if any(getattr(e, what) is None for e in episodes):
                episodes = tuple(replace(e, **{what: None}) for e in episodes)
        return replace(self.demos, episodes=episodes, observation_space=seen, about=about)

    @property
    def image(self) -> np.ndarray:
        """The rendered newest state; it is rendered on first use."""
        if self._image is None:
            self._image = np.asarray(self.env.render())
        return self._image

    # --- counts -------------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated

    @property
    def steps(self) -> int:
        return len(self._actions)

    @property
    def observation(self) -> np.ndarray:
        """The newest observation."""
        return self._observations[-1]

    @property
    def broken(self) -> bool:
        """Whether the newest state breaks a rule."""
        return bool(self._costs[-1])

    @property
    def violations(self) -> int | None:
        """The number of violations, as evaluations count them: a state that breaks two rules counts twice. None if the
        environment reports no costs."""
        return _broken(self._costs)

    @property
    def recorded(self) -> list[dict[str, Any]]:
        """The seed and violations of each episode that was recorded into the file."""
        return [] if self.demos is None else self.demos.about.get("recorded", [])

    @property
    def kept(self) -> int:
        return 0 if self.demos is None else len(self.demos)

    @property
    def kept_steps(self) -> int:
        return 0 if self.demos is None else self.demos.pairs

    @property
    def kept_violations(self) -> int | None:
        """None if they are not known of every episode in the file."""
        found = [kept["violations"] for kept in self.recorded]
        return sum(found) if len(found) == self.kept and None not in found else None


def step_cost(rules: Any) -> StepCost | None:
    """A function that applies rules to one step; None without rules."""
    if rules is None:
        return None
    from scopil.eval.measures import broken_rules  # imports JAX
    from scopil.eval.rules import with_rules

    def cost(obs: Any, action: Any, next_obs: Any, info: dict[str, Any]) -> int:
        reported = {k: np.array([0.0, float(v)]) for k, v in info.items() if isinstance(v, numbers.Real)}
        seen = np.stack([_held(obs), _held(next_obs)])
        step = Episode(observations=seen, actions=np.asarray(action)[None], info=reported)
        return sum(int(broken[-1]) for broken in broken_rules(with_rules([step], rules)[0]).values())

    return cost


def _held(obs: Any) -> np.ndarray:
    """An observation in the form that rules receive. A Dict or Tuple becomes a 0-d object array."""
    if not isinstance(obs, Mapping | tuple):
        return np.asarray(obs)
    held = np.empty((), object)
    held[()] = obs
    return held


def _rules_broken(info: Mapping[str, Any]) -> int | None:
    """The number of rules that a state breaks: of its costs by rule, or else its `cost`; None without costs."""
    names = [key for key in info if str(key).startswith("cost_")] or ["cost"]
    known = [cost for key in names if key in info and (cost := cost_of({"cost": info[key]})) is not None]
    return sum(cost > 0 for cost in known) if known else None


def _broken(costs: Sequence[int | None]) -> int | None:
    known = [c for c in costs if c is not None]
    return sum(known) if known else None


def _checked_spaces(env: gym.Env, drawn: bool) -> Spaces:
    name = env.spec.id if env.spec is not None else str(env.unwrapped)
    actions = env.action_space
    if not isinstance(actions, gym.spaces.Box | gym.spaces.Discrete):
        raise EnvError(f"{name} takes {actions}; recording wants Box or Discrete actions.")
    if drawn and env.render_mode != "rgb_array":
        modes = env.metadata.get("render_modes", [])
        way = "make it with gym.make(id, render_mode='rgb_array')" if "rgb_array" in modes else f"it has only {modes}"
        raise EnvError(f"{name} has render_mode {env.render_mode!r}; recording wants 'rgb_array': {way}.")
    return Spaces(name, env.observation_space, actions)


# --- changes to a file ------------------------------------------------------------------------------------------------


@contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """Hold the file's lock; all writers in this package take it. Raises `DatasetError` if it cannot be taken."""
    try:
        held = lock(path.with_name(f".{path.name}.lock"), WAIT)
    except Locked as error:
        raise DatasetError(f"{path} is being written by another process; try again.") from error
    except OSError as error:
        raise DatasetError(f"cannot write {path}: {error.strerror or error}.") from error
    with held:
        yield


def mark_of(episode: Episode) -> str:
    """An episode's id, independent of its index: a digest of its observations and actions."""
    digest = hashlib.sha256(episode.observations.tobytes())
    digest.update(episode.actions.tobytes())
    return digest.hexdigest()[:16]


def drop(path: Path, mark: str) -> Demonstrations | None:
    """Remove an episode and return the remaining set. Removing the only episode deletes the file and returns None."""
    find(path, mark)  # a missing file gets no lock
    with sole_writer(path):
        demos, index = find(path, mark)
        if len(demos) == 1:
            path.unlink()
            return None
        about = dict(demos.about)
        recorded = list(about.get("recorded", []))
        at = index - (len(demos) - len(recorded))  # `recorded` describes only the last episodes of the set
        if at >= 0:
            del recorded[at]
            about["recorded"] = recorded
        left = tuple(e for i, e in enumerate(demos.episodes) if i != index)
        storage.write(demos := replace(demos, episodes=left, about=about), path)
        return demos


def find(path: Path, mark: str) -> tuple[Demonstrations, int]:
    """The set in a file, and the index of the episode with this mark."""
    demos = storage.read(path)
    for index, episode in enumerate(demos):
        if mark_of(episode) == mark:
            return demos, index
    raise DatasetError(f"{path} has no episode {mark}; it may have been dropped already.")
