"""Demonstrations: episodes of somebody doing the task lawfully, checked at birth."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np

from scopil.errors import DatasetError

Space = gym.spaces.Box | gym.spaces.Discrete


@dataclass(frozen=True, kw_only=True, eq=False)
class Episode:
    """One game: T actions and T+1 observations, the last one being where the game ended."""

    observations: np.ndarray  # (T+1, *observation shape)
    actions: np.ndarray  # (T, *action shape)
    rewards: np.ndarray | None = None  # (T,); None when nobody wrote them down
    terminated: bool = True  # ended by the task
    truncated: bool = False  # stopped by the clock
    start: np.ndarray | None = None  # what `reset(options={"start": ...})` wants to play from here again

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def total_reward(self) -> float:
        return float("nan") if self.rewards is None else float(np.sum(self.rewards, dtype=np.float64))


@dataclass(frozen=True, kw_only=True, eq=False)
class Demonstrations:
    """Episodes with the spaces they live in. Immutable: every change makes a new, newly checked object."""

    episodes: tuple[Episode, ...]
    observation_space: Space
    action_space: Space
    name: str = "demonstrations"
    env_id: str | None = None
    about: dict[str, Any] = field(default_factory=dict)  # provenance: seed, recorder, …; JSON values only

    def __post_init__(self):
        if not self.episodes:
            raise DatasetError(f"{self.name}: no episodes; want at least one.")
        for space, what in ((self.observation_space, "observation"), (self.action_space, "action")):
            if not isinstance(space, gym.spaces.Box | gym.spaces.Discrete):
                raise DatasetError(f"{self.name}: {what} space {space} is not supported; want Box or Discrete.")
        checked = tuple(self._check(i, e) for i, e in enumerate(self.episodes))
        object.__setattr__(self, "episodes", checked)

    def _check(self, index: int, episode: Episode) -> Episode:
        where = f"{self.name}, episode {index}"
        obs = _fit(episode.observations, self.observation_space, f"{where}: observations")
        actions = _fit(episode.actions, self.action_space, f"{where}: actions")
        if len(actions) == 0:
            raise DatasetError(f"{where}: no actions; want at least one step.")
        if len(obs) != len(actions) + 1:
            raise DatasetError(
                f"{where}: {len(obs)} observations for {len(actions)} actions; want one more observation than "
                f"actions. Did the recorder drop the last state?"
            )
        rewards = episode.rewards
        if rewards is not None:
            rewards = _real(rewards, f"{where}: rewards").astype(np.float32)
            if rewards.shape != (len(actions),):
                raise DatasetError(f"{where}: rewards of shape {rewards.shape}; want ({len(actions)},).")
            rewards.setflags(write=False)
        start = episode.start
        if start is not None:
            start = _real(start, f"{where}: start").astype(np.float32)
            start.setflags(write=False)
        return replace(
            episode,
            observations=obs,
            actions=actions,
            rewards=rewards,
            start=start,
            terminated=bool(episode.terminated),
            truncated=bool(episode.truncated),
        )

    # --- looking ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.episodes)

    def __iter__(self) -> Iterator[Episode]:
        return iter(self.episodes)

    @cached_property
    def observations(self) -> np.ndarray:
        """The states an action was shown in, (pairs, …): every observation but each episode's last."""
        return np.concatenate([e.observations[:-1] for e in self.episodes])

    @cached_property
    def actions(self) -> np.ndarray:
        return np.concatenate([e.actions for e in self.episodes])

    @property
    def pairs(self) -> int:
        return sum(len(e) for e in self.episodes)

    @property
    def starts(self) -> np.ndarray | None:
        """Every episode's start, or None when one of them has none."""
        starts = [e.start for e in self.episodes]
        return None if any(s is None for s in starts) else np.stack(starts)  # type: ignore[arg-type]

    def statistics(self) -> dict[str, float]:
        steps = np.array([len(e) for e in self.episodes], dtype=np.float64)
        rewards = np.array([e.total_reward for e in self.episodes])
        return {
            "games": float(len(self)),
            "pairs": float(self.pairs),
            "reward": float(rewards.mean()),
            "reward_std": float(rewards.std()),
            "steps": float(steps.mean()),
            "steps_std": float(steps.std()),
            "terminated": float(np.mean([e.terminated for e in self.episodes])),
        }

    # --- making others -----------------------------------------------------------------------------------------

    def select(self, keep: Callable[[Episode], bool]) -> "Demonstrations":
        return replace(self, episodes=tuple(e for e in self.episodes if keep(e)))

    def split(self, fraction: float, seed: int = 0) -> tuple["Demonstrations", "Demonstrations"]:
        """Two sets of whole episodes, the first with `fraction` of them (at least one on either side)."""
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
        action_space: Space | None = None,
        observation_space: Space | None = None,
        **fields: Any,
    ) -> "Demonstrations":
        """From lists with one array an episode. Spaces that are not given are read off the data: integer actions
        mean `Discrete(max + 1)`, real ones a box of their range; observations an unbounded box."""
        rewards = [None] * len(actions) if rewards is None else rewards
        if not len(observations) == len(actions) == len(rewards):
            raise DatasetError(
                f"{len(observations)} observation, {len(actions)} action and {len(rewards)} reward arrays; want one "
                f"of each an episode."
            )
        episodes = tuple(
            Episode(observations=np.asarray(o), actions=np.asarray(a), rewards=None if r is None else np.asarray(r))
            for o, a, r in zip(observations, actions, rewards)
        )
        return cls(
            episodes=episodes,
            observation_space=observation_space or guess_space([e.observations for e in episodes], bounded=False),
            action_space=action_space or guess_space([e.actions for e in episodes], bounded=True),
            **fields,
        )


def guess_space(arrays: list[np.ndarray], bounded: bool) -> Space:
    if not arrays:
        raise DatasetError("no episodes; want at least one.")
    if arrays[0].ndim == 1 and np.issubdtype(arrays[0].dtype, np.integer):
        return gym.spaces.Discrete(max(int(a.max(initial=0)) for a in arrays) + 1)
    shape = arrays[0].shape[1:]
    if not bounded or not all(a.size for a in arrays):
        return gym.spaces.Box(-np.inf, np.inf, shape, np.float32)
    low = np.min([a.min(axis=0) for a in arrays], axis=0).astype(np.float32)
    high = np.max([a.max(axis=0) for a in arrays], axis=0).astype(np.float32)
    return gym.spaces.Box(low, high, shape, np.float32)


def _real(values: Any, what: str) -> np.ndarray:
    array = np.array(values)
    if array.dtype.kind not in "biuf":
        raise DatasetError(f"{what}: dtype {array.dtype}; want numbers.")
    bad = ~np.isfinite(array)
    if bad.any():
        raise DatasetError(f"{what}: {array[bad][0]} at index {tuple(np.argwhere(bad)[0].tolist())}; want finite numbers.")
    return array


def _fit(values: Any, space: Space, what: str) -> np.ndarray:
    """`values` as a read-only array of the space's dtype, every row inside the space."""
    array = _real(values, what)
    if array.ndim == 0 or array.shape[1:] != space.shape:
        raise DatasetError(f"{what}: shape {array.shape}; want (T, {', '.join(map(str, space.shape or ()))}) for {space}.")
    if isinstance(space, gym.spaces.Discrete):
        if not np.all(array == np.floor(array)):
            raise DatasetError(f"{what}: found {array.dtype} with fractions; want whole numbers for {space}.")
        low, high = space.start, space.start + space.n - 1
        dtype = np.int64
    else:
        low, high, dtype = space.low, space.high, space.dtype
    outside = (array < low) | (array > high)
    if outside.any():
        at = tuple(np.argwhere(outside)[0].tolist())
        raise DatasetError(f"{what}: {array[at]} at index {at} is out of range; want values in {space}.")
    array = np.ascontiguousarray(array, dtype=dtype)
    array.setflags(write=False)
    return array
