"""Demonstrations from arrays in the common layouts, and from trajectories with `obs` and `acts`.

Whatever had to be assumed is written into the set's `about["assumed"]`, one sentence each, and is stored with it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from scopil.data.array_layouts import KNOWN, PER_EPISODE, RawEpisode, canonical_names, only_dones, split_episodes
from scopil.data.dataset import NO_FLAGS, Demonstrations, Episode, guess_space
from scopil.data.named_observations import by_names, numbers
from scopil.errors import DatasetError

READ_OFF = "read off the data"  # about["spaces"] of a set that came without spaces
ONLY_DONES = (
    "dones tell that episodes ended and not how: counted as terminated by the task, also where it was a time limit; "
    "give terminated and truncated instead to tell them apart"
)


def from_arrays(source: Any) -> Demonstrations:
    """A set from arrays or objects in memory.

    Args:
        source: a dict of arrays by name, a pair (observations, actions) or triple with rewards, a list of
            trajectories (dicts, or objects with `obs` and `acts`), or rows of the `imitation` package. The layouts
            are listed in docs/demonstrations.md.
    """
    name, source_name = "arrays", f"{type(source).__name__} in memory"
    if isinstance(source, Mapping):
        return from_mapping(source, name, source_name)
    if hasattr(source, "obs") and hasattr(source, "acts"):
        if hasattr(source, "dones"):  # imitation's Transitions: rows of many episodes
            rows = {k: getattr(source, k, None) for k in ("obs", "acts", "next_obs", "dones", "rews")}
            return from_mapping(rows, name, source_name)
        source = [source]
    if isinstance(source, tuple) and len(source) in (2, 3) and not _is_trajectory(source[0]):
        return from_mapping(dict(zip(("observations", "actions", "rewards"), source)), name, source_name)
    if not isinstance(source, Iterable) or isinstance(source, np.ndarray):
        raise DatasetError(
            f"demonstrations of type {type(source).__name__}; want a name, a path, a pair (observations, actions), a "
            f"dict of arrays, a list of trajectories with `obs` and `acts`, or scopil.Demonstrations."
        )
    return from_trajectories(source, "trajectories", source_name)


def _is_trajectory(item: Any) -> bool:
    return isinstance(item, Mapping) or (hasattr(item, "obs") and hasattr(item, "acts"))


def from_mapping(found: Mapping[str, Any], name: str, source: str) -> Demonstrations:
    """A set from arrays by name; the layouts are in docs/demonstrations.md."""
    arrays = canonical_names(found, name)
    arrays, named = _unnamed(arrays, name)
    assumed: list[str] = []
    if unused := sorted(set(map(str, found)) - KNOWN):
        assumed.append(f"not used: {', '.join(unused)}")
    if only_dones(found):
        assumed.append(ONLY_DONES)
    return from_raw_episodes(split_episodes(arrays, name, assumed), name, source, assumed, named)


def from_trajectories(items: Iterable[Any], name: str, source: str) -> Demonstrations:
    """A set from one object per episode: mappings, or anything with `obs` and `acts`, as in the `imitation` package."""
    episodes, named, assumed = [], None, []
    for i, item in enumerate(items):
        where = f"{name}, episode {i}"
        if isinstance(item, Mapping):
            episodes.append(canonical_names(item, where))
            assumed = [ONLY_DONES] if only_dones(item) else assumed
        elif _is_trajectory(item):
            episodes.append(_from_trajectory(item))
        else:
            raise DatasetError(
                f"{where}: {type(item).__name__}; want a trajectory with `obs` and `acts`, or a dict. To give "
                f"observations and actions separately, use a pair: (observations, actions)."
            )
        episodes[-1], named = _unnamed(episodes[-1], where, named)
    return from_raw_episodes(episodes, name, source, assumed, named)


def _unnamed(
    arrays: dict[str, Any], where: str, before: gym.Space | None = None
) -> tuple[dict[str, Any], gym.Space | None]:
    """The same with observations by name as flat rows, and the space they make; None where they have no names."""
    found: gym.Space | None = before
    out = dict(arrays)
    for key in arrays.keys() & {"observations", "next_observations"}:
        rows = _named_rows(arrays[key], arrays["actions"], f"{where}: {key}")
        if rows is None:
            continue
        out[key], space = rows
        if found is not None and space != found:
            raise DatasetError(f"{where}: {key} of {space}, others of {found}; want the same in all episodes.")
        found = space
    return out, found


def _named_rows(values: Any, actions: Any, where: str) -> tuple[Any, gym.Space] | None:
    """One observation after the other, or a list with one entry per episode."""
    if isinstance(values, Mapping):
        return by_names(values, where, lead=2 if _in_blocks(values, actions) else 1)
    if not isinstance(values, list | tuple) or not values:
        return None
    one_each = isinstance(actions, list | tuple) and len(values) == len(actions) and np.ndim(actions[0]) > 0
    if isinstance(values[0], Mapping) and not one_each:
        return by_names(values, where)
    each = [found for i, one in enumerate(values) if (found := by_names(one, f"{where}, episode {i}"))]
    return ([rows for rows, _ in each], each[0][1]) if len(each) == len(values) else None


def _in_blocks(values: Mapping[str, Any], actions: Any) -> bool:
    """Whether each array is (episodes, steps, …)."""
    count, *steps = np.shape(actions)[:2]
    parts = [np.shape(value) for value in values.values()]
    return bool(steps) and all(len(part) > 1 and part[0] == count and part[1] - steps[0] in (0, 1) for part in parts)


def from_raw_episodes(
    raw: list[RawEpisode], name: str, source: str, assumed: list[str], named: gym.Space | None = None
) -> Demonstrations:
    """The last step of every format: fill in ends and last observations, find the spaces, check everything."""
    raw = [
        {k: v if k in PER_EPISODE else numbers(v, f"{name}, episode {i}: {k}") for k, v in one.items()}
        for i, one in enumerate(raw)
    ]
    raw = _discrete_actions(raw, assumed)
    episodes = tuple(to_episode(one, f"{name}, episode {i}") for i, one in enumerate(raw))
    _note_assumptions(raw, assumed)
    spaces = {
        f"{what}_space": _guess([getattr(e, f"{what}s") for e in episodes], f"{name}: {what}s", what == "action")
        for what in ("observation", "action")
    }
    found = spaces["action_space"]
    bounds = "a Box of their range" if isinstance(found, gym.spaces.Box) else f"{found}, by the largest action"
    assumed.append(f"the action space is {bounds}; that of the environment replaces it when it is known")
    about = {"source": source, "spaces": READ_OFF, "assumed": assumed}
    return Demonstrations(episodes=episodes, name=name, about=about, flattened_from=named, **spaces)


def _note_assumptions(raw: list[RawEpisode], assumed: list[str]) -> None:
    unended = [e for e in raw if len(e["observations"]) == len(e["actions"])]
    repeated = sum("next_observations" not in e for e in unended)
    if repeated:
        assumed.append(
            f"the last observation of {repeated} of {len(raw)} episodes is not recorded: the one before it is "
            f"repeated; no learner uses it as a next state"
        )
    if len(unended) > repeated:
        assumed.append("the last observation of an episode is the last of its next_observations")
    if not any({"terminated", "truncated", "terminals", "timeouts"} & e.keys() for e in raw):
        assumed.append(NO_FLAGS)


# --- one episode ----------------------------------------------------------------------------------------------------


def to_episode(raw: RawEpisode, where: str) -> Episode:
    obs, actions = raw["observations"], raw["actions"]
    if len(obs) == len(actions) > 0:
        after = raw.get("next_observations", obs)
        if after.shape != obs.shape:
            raise DatasetError(f"{where}: next_observations of shape {after.shape}; want {obs.shape}.")
        obs = np.concatenate([obs, after[-1:]])
    terminated, truncated = (
        _end_flag(raw, *keys, where) for keys in (("terminated", "terminals"), ("truncated", "timeouts"))
    )
    if terminated is None:
        terminated = truncated is None  # there are no flags
    rewards = raw.get("rewards")
    if rewards is not None and rewards.shape == (len(actions), 1):
        rewards = rewards[:, 0]
    return Episode(
        observations=obs,
        actions=actions,
        rewards=rewards,
        terminated=terminated,
        truncated=bool(truncated),
        start=raw.get("starts"),
    )


def _end_flag(raw: RawEpisode, whole: str, by_step: str, where: str) -> bool | None:
    """A flag of the episode; None when there is none."""
    if whole in raw:
        return bool(np.all(raw[whole]))
    if by_step not in raw:
        return None
    flags = np.atleast_1d(raw[by_step].reshape(len(raw[by_step]), -1).any(axis=1))
    if flags[:-1].any():
        raise DatasetError(
            f"{where}: {by_step} set at step {int(np.argmax(flags))} of {len(flags)}; want it at the last step of "
            f"an episode only. Do the lengths fit?"
        )
    return bool(flags.any())


def _from_trajectory(item: Any) -> RawEpisode:
    """`imitation` sets `terminal` when an episode was recorded to its end; a time limit shows in the last info."""
    raw: RawEpisode = {"observations": item.obs, "actions": item.acts}
    rewards, infos = getattr(item, "rews", None), getattr(item, "infos", None)
    if rewards is not None:
        raw["rewards"] = rewards
    if hasattr(item, "terminal"):
        last = infos[-1] if infos is not None and len(infos) else {}
        raw["truncated"] = bool(last.get("TimeLimit.truncated", False))
        raw["terminated"] = bool(item.terminal) and not raw["truncated"]
    return raw


def _discrete_actions(raw: list[RawEpisode], assumed: list[str]) -> list[RawEpisode]:
    """One integer per step is a discrete action, also where it is stored as a row of one."""
    rows = [e["actions"] for e in raw]
    if not rows or not all(a.ndim == 2 and a.shape[1] == 1 and a.dtype.kind in "biu" for a in rows):
        return raw
    assumed.append("actions of one whole number per row are read as discrete actions")
    return [e | {"actions": e["actions"][:, 0]} for e in raw]


def _guess(arrays: list[np.ndarray], what: str, bounded: bool) -> Any:
    try:
        return guess_space(arrays, bounded=bounded)
    except DatasetError as error:
        raise DatasetError(f"{what}: {error}") from error
