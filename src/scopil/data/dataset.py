"""Episodes and demonstrations. In demonstrations, an expert solves the task and obeys its rules."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from scopil.errors import DatasetError

Space = gym.spaces.Box | gym.spaces.Discrete
NO_FLAGS = "no flags tell how episodes ended: counted as terminated by the task"  # in about["assumed"]
MIN_GROUPS = 4  # for cross-validation with up to four folds


@dataclass(frozen=True, kw_only=True, eq=False)
class Episode:
    """One episode, demonstrated or played: T actions and T+1 observations. The last observation follows action T."""

    observations: np.ndarray  # (T+1, *observation shape)
    actions: np.ndarray  # (T, *action shape)
    rewards: np.ndarray | None = None  # (T,); None if not recorded
    terminated: bool = True  # ended by the task
    truncated: bool = False  # stopped by a time limit
    start: np.ndarray | None = None  # `reset(options={"start": start})` starts here again
    # Entries of the environment's `info` for every visited state, (T+1, …) each: `cost`, `cost_<rule>`, `position`, …
    # Evaluation uses them to count violations; learners do not receive them.
    info: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        """The number of steps."""
        return len(self.actions)

    @property
    def total_reward(self) -> float:
        """The sum of rewards; NaN if they were not recorded."""
        return float("nan") if self.rewards is None else float(np.sum(self.rewards, dtype=np.float64))


class DemoTransitions(NamedTuple):
    """Demonstrated steps, one row each. Learners get these, so there is no cost field."""

    obs: Any
    action: Any
    next_obs: Any
    episode: Any  # the index of the step's episode
    reward: Any  # None if not recorded
    terminated: Any  # the task ended with this step
    group: Any = None  # an integer; cross-validation holds out the steps of one group together


class DemoStarts(NamedTuple):
    """The first observations of demonstrated episodes, one row each."""

    obs: Any
    group: Any  # equal starts have equal numbers


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Demonstrations:
    """Episodes with their observation and action spaces. Immutable: every change makes a new object.

    The constructor checks every value and raises `DatasetError`; arrays are copied and read-only."""

    episodes: tuple[Episode, ...]
    observation_space: Space
    action_space: Space
    name: str = "demonstrations"
    env_id: str | None = None
    about: dict[str, Any] = field(default_factory=dict)  # provenance: seed, recorder, …; JSON values only
    flattened_from: gym.Space | None = None  # the Dict or Tuple space that observations were flattened from

    def __post_init__(self):
        if not self.episodes:
            raise DatasetError(f"{self.name}: no episodes; want at least one.")
        for space, what in ((self.observation_space, "observation"), (self.action_space, "action")):
            if not isinstance(space, gym.spaces.Box | gym.spaces.Discrete):
                raise DatasetError(f"{self.name}: {what} space {space} is not supported; want Box or Discrete.")
            if isinstance(space, gym.spaces.Discrete):  # values are int64 for any dtype of the environment
                self._set(f"{what}_space", gym.spaces.Discrete(int(space.n), start=int(space.start)))
        try:
            # Store `about` as a saved file would return it: tuples become lists.
            self._set("about", json.loads(json.dumps(self.about, allow_nan=False)))
        except (TypeError, ValueError) as error:
            raise DatasetError(
                f"{self.name}: `about` is not JSON ({error}); want text, numbers, lists, dicts."
            ) from error
        self._set("episodes", tuple(self._check(i, e) for i, e in enumerate(self.episodes)))
        for what in ("rewards", "start"):
            have = [getattr(e, what) is not None for e in self.episodes]
            if any(have) and not all(have):
                raise DatasetError(
                    f"{self.name}: episode {have.index(False)} has no {what}; want it in all or in none."
                )
        if len(shapes := {e.start.shape for e in self.episodes if e.start is not None}) > 1:
            raise DatasetError(f"{self.name}: starts of shapes {sorted(shapes)}; want the same in every episode.")

    def _set(self, field_name: str, value: Any) -> None:
        object.__setattr__(self, field_name, value)  # the class is frozen; only __post_init__ calls this

    def _check(self, index: int, episode: Episode) -> Episode:
        where = f"{self.name}, episode {index}"
        obs = _fit(episode.observations, self.observation_space, f"{where}: observations", self.flattened_from)
        actions = _fit(episode.actions, self.action_space, f"{where}: actions")
        if len(actions) == 0:
            raise DatasetError(f"{where}: no actions; want at least one step.")
        if len(obs) != len(actions) + 1:
            raise DatasetError(f"{where}: {len(obs)} observations for {len(actions)} actions; want one more of them.")
        rewards, start = (
            None if values is None else _frozen(real(values, f"{where}: {what}", np.float32))
            for what, values in (("rewards", episode.rewards), ("start", episode.start))
        )
        if rewards is not None and rewards.shape != (len(actions),):
            raise DatasetError(f"{where}: rewards of shape {rewards.shape}; want ({len(actions)},).")
        ends = {"terminated": bool(episode.terminated), "truncated": bool(episode.truncated)}
        return replace(episode, observations=obs, actions=actions, rewards=rewards, start=start, **ends)

    # --- reading ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.episodes)

    def __iter__(self) -> Iterator[Episode]:
        return iter(self.episodes)

    def __repr__(self) -> str:
        spaces = f"{describe_space(self.observation_space)} → {describe_space(self.action_space)}"
        count = f"{len(self)} episode{'s' * (len(self) != 1)}, {self.pairs} step{'s' * (self.pairs != 1)}"
        return f"Demonstrations({self.name!r}: {count}, {spaces}, env {self.env_id or 'not named'})"

    @cached_property
    def observations(self) -> np.ndarray:
        """The observations before each action, (pairs, …): all but the last of each episode."""
        return _frozen(np.concatenate([e.observations[:-1] for e in self.episodes]))

    @cached_property
    def actions(self) -> np.ndarray:
        return _frozen(np.concatenate([e.actions for e in self.episodes]))

    @property
    def pairs(self) -> int:
        """The number of (observation, action) pairs, which is the number of steps."""
        return sum(len(e) for e in self.episodes)

    @property
    def starts(self) -> np.ndarray | None:
        """The start of every episode, (episodes, …); None if not recorded."""
        starts = [e.start for e in self.episodes]
        return None if any(s is None for s in starts) else np.stack(starts)  # type: ignore[arg-type]

    def as_given(self, observation: np.ndarray) -> Any:
        """An observation in the environment's own form: unflattened, if it came from a Dict or Tuple."""
        return observation if self.flattened_from is None else gym.spaces.unflatten(self.flattened_from, observation)

    def transitions(self) -> DemoTransitions:
        """All steps of all episodes, in order."""
        episodes = self.episodes
        last = [np.arange(len(e)) == len(e) - 1 for e in episodes]
        rewards = [e.rewards for e in episodes if e.rewards is not None]
        return DemoTransitions(
            obs=self.observations,
            action=self.actions,
            next_obs=_frozen(np.concatenate([e.observations[1:] for e in episodes])),
            episode=_frozen(np.repeat(np.arange(len(self)), [len(e) for e in episodes])),
            reward=_frozen(np.concatenate(rewards)) if rewards else None,
            terminated=_frozen(np.concatenate([ended & e.terminated for e, ended in zip(episodes, last)])),
            group=_frozen(self._groups()),
        )

    def first_states(self) -> DemoStarts:
        """The first observations as flat rows, and their group numbers: equal rows have equal numbers."""
        first = np.stack([np.ravel(e.observations[0]) for e in self.episodes])
        return DemoStarts(first, np.unique(first, axis=0, return_inverse=True)[1].reshape(-1))

    def _groups(self) -> np.ndarray:
        """The group number of every step. Episodes with equal first observations form a group, because they predict
        each other. With fewer than four distinct starts, each episode is a group. With fewer than four episodes, the
        k-th quarters of all episodes form group k."""
        lengths, starts = [len(e) for e in self.episodes], self.first_states().group
        if starts.max() + 1 >= MIN_GROUPS:
            return np.repeat(starts, lengths)
        if len(self) >= MIN_GROUPS:
            return np.repeat(np.arange(len(self)), lengths)
        return np.concatenate([np.arange(n) * MIN_GROUPS // n for n in lengths])

    @cached_property
    def digest(self) -> str:
        """A SHA-256 over the episodes and their spaces, without names, provenance and `info`. Computed once."""
        found = hashlib.sha256(f"{self.observation_space}{self.action_space}".encode())
        for e in self.episodes:
            found.update(f"{e.terminated}{e.truncated}".encode())
            for array in (e.observations, e.actions, e.rewards, e.start):
                found.update(b"-" if array is None else f"{array.dtype}{array.shape}".encode() + array.tobytes())
        return found.hexdigest()

    def statistics(self) -> dict[str, float]:
        """Counts of episodes and pairs, mean and standard deviation of reward and steps, share terminated."""
        steps = np.array([len(e) for e in self.episodes], np.float64)
        rewards = np.array([e.total_reward for e in self.episodes])
        return {
            "episodes": float(len(self)),
            "pairs": float(self.pairs),
            "reward": float(rewards.mean()),
            "reward_std": float(rewards.std()),
            "steps": float(steps.mean()),
            "steps_std": float(steps.std()),
            "terminated": float(np.mean([e.terminated for e in self.episodes])),
        }

    def save(self, path: str | Path) -> None:
        """Write a sealed `.npz` file; `scopil.load_demos(path)` reads it."""
        from scopil.data.storage import write

        write(self, path)

    # --- making new sets ----------------------------------------------------------------------------------------

    def select(self, keep: Callable[[Episode], bool]) -> "Demonstrations":
        """The episodes for which `keep` is true."""
        return replace(self, episodes=tuple(e for e in self.episodes if keep(e)))

    def split(self, fraction: float, seed: int = 0) -> tuple["Demonstrations", "Demonstrations"]:
        """Two sets of whole episodes. The first set has `fraction` of the episodes; each set has at least one."""
        if not 0 < fraction < 1 or len(self) < 2:
            raise DatasetError(f"cannot split {len(self)} episodes at {fraction}; want ≥ 2 episodes, 0 < fraction < 1.")
        order = np.random.default_rng(seed).permutation(len(self))
        first = min(max(round(fraction * len(self)), 1), len(self) - 1)
        parts = [tuple(self.episodes[i] for i in sorted(part)) for part in (order[:first], order[first:])]
        return replace(self, episodes=parts[0]), replace(self, episodes=parts[1])

    def sample(self, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """`size` (observation, action) pairs, uniform with replacement."""
        index = rng.integers(self.pairs, size=size)
        return self.observations[index], self.actions[index]

    @classmethod
    def from_arrays(
        cls,
        observations: Any,
        actions: Any,
        rewards: Any = None,
        *,
        terminated: Any = None,
        truncated: Any = None,
        action_space: Space | None = None,
        observation_space: Space | None = None,
        **fields: Any,
    ) -> "Demonstrations":
        """A set from lists with one array per episode. (`scopil.load_demos` reads many other layouts.)

        Args:
            observations: one array (T+1, …) per episode.
            actions: one array (T, …) per episode.
            rewards: one array (T,) per episode, or None.
            terminated: one flag per episode: the task ended it. If neither kind of flag is given, all episodes count as
                terminated, and `about["assumed"]` says so.
            truncated: one flag per episode: a time limit stopped it. An episode with neither flag was cut off.
            action_space: default: `Discrete(max + 1)` for integer actions, a Box of their range for real ones.
            observation_space: default: an unbounded Box, or Discrete for integers.
            fields: `name`, `env_id` and `about` of the set.
        """
        rewards = [None] * len(actions) if rewards is None else rewards
        if not len(observations) == len(actions) == len(rewards):
            counts = f"{len(observations)} observation, {len(actions)} action and {len(rewards)} reward arrays"
            raise DatasetError(f"{counts}; want one of each per episode.")
        if terminated is None and truncated is None:
            about = fields.get("about") or {}
            fields["about"] = about | {"assumed": [*about.get("assumed", []), NO_FLAGS]}
        absent = {"terminated": truncated is None, "truncated": False}
        flags: dict[str, np.ndarray] = {}
        for what, given in (("terminated", terminated), ("truncated", truncated)):
            flags[what] = np.full(len(actions), absent[what]) if given is None else np.asarray(given)
            if flags[what].shape != (len(actions),):
                raise DatasetError(
                    f"{what} of shape {flags[what].shape}; want one flag for each of {len(actions)} episodes."
                )
        episodes = tuple(
            Episode(
                observations=real(o, f"episode {i}: observations"),
                actions=real(a, f"episode {i}: actions"),
                rewards=None if r is None else real(r, f"episode {i}: rewards"),
                terminated=bool(flags["terminated"][i]),
                truncated=bool(flags["truncated"][i]),
            )
            for i, (o, a, r) in enumerate(zip(observations, actions, rewards))
        )
        seen, done = [e.observations for e in episodes], [e.actions for e in episodes]
        return cls(
            episodes=episodes,
            observation_space=observation_space or guess_space(seen, False, "observations"),
            action_space=action_space or guess_space(done, True, "actions"),
            **fields,
        )


def describe_space(space: Space) -> str:
    """A short text for a space. A Box is described without its bounds."""
    return f"Box{space.shape} {space.dtype}" if isinstance(space, gym.spaces.Box) else str(space)


def guess_space(arrays: list[np.ndarray], bounded: bool, what: str) -> Space:
    """A space for the rows of `arrays`: Discrete for integers, else a Box. If `bounded`, it has their range."""
    if not arrays:
        raise DatasetError(f"{what}: no episodes; want at least one.")
    arrays = [real(a, f"{what}: episode {i}") for i, a in enumerate(arrays)]
    shapes = {a.shape[1:] for a in arrays}
    if len(shapes) > 1 or any(a.ndim == 0 for a in arrays):
        found = sorted({a.shape for a in arrays})
        raise DatasetError(f"{what}: shapes {found} in one set; want (T, …) with the same … in every episode.")
    shape = shapes.pop()
    if shape == () and all(a.dtype.kind in "biu" for a in arrays):
        return gym.spaces.Discrete(max(int(a.max(initial=0)) for a in arrays) + 1)
    if not bounded or not all(a.size for a in arrays):
        return gym.spaces.Box(-np.inf, np.inf, shape, np.float32)
    low = np.min([a.min(axis=0) for a in arrays], axis=0).astype(np.float32)
    high = np.max([a.max(axis=0) for a in arrays], axis=0).astype(np.float32)
    return gym.spaces.Box(low, high, shape, np.float32)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


def real(
    values: Any, what: str, dtype: Any = None, finite: bool = True, flattened_from: gym.Space | None = None
) -> np.ndarray:
    """A new array of numbers, in `dtype` if it is given. Refuses NaN and infinity if `finite`."""
    try:
        given = np.array(values)
    except ValueError as error:
        raise DatasetError(f"{what}: rows of unequal shape; want one array ({error}).") from error
    if given.dtype.kind not in "biuf":
        raise DatasetError(f"{what}: dtype {given.dtype}; want numbers.")
    with np.errstate(over="ignore"):  # the check below refuses an overflow
        array = given if dtype is None else np.ascontiguousarray(given, dtype=dtype).reshape(given.shape)
    if finite and (bad := ~np.isfinite(array)).any():
        at, where = _first(bad, flattened_from)
        raise DatasetError(f"{what}: {given[at]} at index {where}; want finite numbers that fit {array.dtype}.")
    return array


def _first(bad: np.ndarray, flattened_from: gym.Space | None) -> tuple[tuple[int, ...], str]:
    """The index of the first true value, and its text. The text names the column of a flat row."""
    at = tuple(np.argwhere(bad)[0].tolist())
    if flattened_from is None or len(at) != 2 or bad.shape[1] != gym.spaces.flatdim(flattened_from):
        return at, str(at)
    from scopil.envs.spaces import column_names  # imports JAX

    return at, f"{at}, {column_names(flattened_from)[at[1]]}"


def _fit(values: Any, space: Space, what: str, flattened_from: gym.Space | None = None) -> np.ndarray:
    """`values` as a read-only array of the space's dtype, every row inside the space."""
    if isinstance(space, gym.spaces.Discrete):
        low, high, dtype = space.start, space.start + space.n - 1, np.dtype(np.int64)
    else:
        low, high, dtype = space.low, space.high, space.dtype
    # The bounds also have the precision of the space.
    array = real(values, what, dtype if dtype.kind == "f" else None, flattened_from=flattened_from)
    if array.ndim == 0 or array.shape[1:] != space.shape:
        wanted = ", ".join(["T", *map(str, space.shape or ())])
        raise DatasetError(f"{what}: shape {array.shape}; want ({wanted}) for {space}.")
    if dtype.kind != "f" and not np.all(array == np.floor(array)):
        raise DatasetError(f"{what}: found {array.dtype} with fractions; want whole numbers for {space}.")
    if (outside := (array < low) | (array > high)).any():
        at, where = _first(outside, flattened_from)
        raise DatasetError(f"{what}: {array[at]} at index {where} is out of range; want values in {space}.")
    return _frozen(np.ascontiguousarray(array, dtype=dtype))
