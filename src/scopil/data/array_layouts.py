"""The layouts in which arrays hold episodes, split into single episodes.

There are blocks (episodes, steps, …), padded or not; rows joined end to end, with lengths or with flags at the ends;
and lists with one array per episode.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from scopil.errors import DatasetError

RawEpisode = dict[str, Any]  # one episode as it was found: a part of each array
Arrays = dict[str, Any]

PER_STEP = ("actions", "rewards", "next_observations", "terminals", "timeouts")  # one row per step
PER_EPISODE = ("terminated", "truncated", "starts")  # one row per episode
ALIASES = {
    "observations": ("obs", "observation", "states"),
    "actions": ("acts", "action"),
    "rewards": ("rews", "reward"),
    "next_observations": ("next_obs", "next_observation", "next_states"),
    "terminals": ("dones", "done", "terminations"),
    "timeouts": ("truncations",),
    "lengths": ("episode_lengths",),
}
DONES = ("dones", "done")  # set by time limits too, in imitation and Stable-Baselines3
FIRST = "episode_starts"  # a flag per step, as Stable-Baselines3 has it
KNOWN = {
    "observations",
    "lengths",
    FIRST,
    *PER_STEP,
    *PER_EPISODE,
    *(other for names in ALIASES.values() for other in names),
}


def canonical_names(found: Mapping[str, Any], where: str) -> Arrays:
    """The arrays by the names used here."""
    arrays = {k: found[k] for k in found if k in KNOWN}
    for name, others in ALIASES.items():
        for other in others:
            if other in arrays:
                arrays.setdefault(name, arrays[other])
                del arrays[other]
    for key in ("observations", "actions"):
        if key not in arrays:
            raise DatasetError(
                f"{where}: no array {key!r} (nor {', '.join(ALIASES[key])}); found {sorted(map(str, found))}, want "
                f"observations and actions."
            )
    return {k: v for k, v in arrays.items() if v is not None}


def only_dones(found: Mapping[str, Any]) -> bool:
    """Whether flags that do not tell the task's end from a time limit are all there is."""
    given = {name for name in found if found[name] is not None}
    telling = {"terminals", "timeouts", "terminated", "truncated", "terminations", "truncations"}
    return bool(given & set(DONES)) and not given & telling


def split_episodes(arrays: Arrays, name: str, assumed: list[str]) -> list[RawEpisode]:
    """The episodes in arrays of any layout. What had to be assumed is appended to `assumed`."""
    if any(_is_ragged(arrays[k]) for k in ("observations", "actions")):
        return _split_lists(arrays, name)
    arrays = {k: np.asarray(v) for k, v in arrays.items()}
    lengths = _lengths(arrays.pop("lengths", None), name)
    if _is_block(arrays, lengths):
        return _split_blocks(arrays, lengths, name)
    return split_rows(arrays, lengths, name, assumed)


def _is_ragged(values: Any) -> bool:
    """Whether it is a list of episodes of different lengths."""
    if isinstance(values, np.ndarray):
        return False
    try:
        return np.asarray(values).dtype == object
    except ValueError:
        return True


def _split_lists(arrays: Arrays, name: str) -> list[RawEpisode]:
    """Lists with one array per episode."""
    count = len(arrays["actions"])
    arrays = {k: v for k, v in arrays.items() if k != "lengths"}
    for key, value in arrays.items():
        if len(value) != count:
            raise DatasetError(f"{name}: {len(value)} {key} for {count} episodes; want one of each per episode.")
    return [{k: v[i] for k, v in arrays.items()} for i in range(count)]


def _is_block(arrays: Arrays, lengths: np.ndarray | None) -> bool:
    """(episodes, steps, …). Two axes of real numbers are rows; of integers (discrete states and actions), a block."""
    obs, actions = arrays["observations"], arrays["actions"]
    if obs.ndim < 2 or actions.ndim < 2 or len(obs) != len(actions):
        return False
    if obs.shape[1] - actions.shape[1] not in (0, 1):
        return False
    if lengths is not None:
        return len(lengths) == len(obs) and (obs.ndim > 2 or int(lengths.sum()) != len(actions))
    return obs.ndim > 2 or (obs.dtype.kind in "iu" and actions.dtype.kind in "iu" and actions.shape[1] > 1)


def _split_blocks(arrays: Arrays, lengths: np.ndarray | None, name: str) -> list[RawEpisode]:
    """Episodes of equal length, or padded to the longest of them, with `lengths`."""
    count, steps = arrays["actions"].shape[:2]
    last = arrays["observations"].shape[1] - steps  # 1 where the last observation is there
    arrays = _flags_by_step(arrays, (count, steps))
    for key in arrays.keys() & {*PER_STEP, *PER_EPISODE}:
        wanted = (count, steps) if key in PER_STEP else (count,)
        if arrays[key].shape[: len(wanted)] != wanted:
            raise DatasetError(f"{name}: {key} of shape {arrays[key].shape}; want {wanted}.")
    lengths = np.full(count, steps) if lengths is None else lengths
    if lengths.max(initial=0) > steps:
        raise DatasetError(f"{name}: an episode of {lengths.max()} steps in arrays of {steps}; want at most that many.")
    extra = {"observations": last} | dict.fromkeys(PER_STEP, 0)  # rows beyond the number of steps
    return [{k: v[i, : n + extra[k]] if k in extra else v[i] for k, v in arrays.items()} for i, n in enumerate(lengths)]


def split_rows(arrays: Arrays, lengths: np.ndarray | None, name: str, assumed: list[str]) -> list[RawEpisode]:
    """Episodes joined end to end, separated by lengths, by flags, or by observations that do not follow."""
    obs, actions = arrays["observations"], arrays["actions"]
    if obs.ndim == 0 or actions.ndim == 0:
        raise DatasetError(f"{name}: observations {obs.shape} and actions {actions.shape}; want rows of them.")
    rows = len(actions)
    if lengths is None:
        arrays = _flags_by_step(arrays, (rows,))
        lengths = _infer_lengths(arrays, name, assumed)
    elif len(lengths) != rows:  # where they are equal, one flag per episode and one per step are the same
        arrays = _flags_by_step(arrays, (rows,))
    episodes, steps = len(lengths), int(lengths.sum())
    last = len(obs) - steps
    wanted = {"actions": steps} | dict.fromkeys(PER_STEP, steps) | dict.fromkeys(PER_EPISODE, episodes)
    if last not in (0, episodes):
        raise DatasetError(
            f"{name}: observations of shape {obs.shape}; want {steps + episodes} rows for {episodes} episodes with "
            f"{steps} actions (one more observation than actions in each), or {steps} (none after the last action)."
        )
    for key in sorted(wanted.keys() & arrays.keys()):
        flag = key in ("terminated", "truncated")
        if arrays[key].shape[:1] != (wanted[key],) or (flag and arrays[key].ndim > 1):
            raise DatasetError(
                f"{name}: {key} of shape {arrays[key].shape}; want {wanted[key]} rows for {episodes} episodes with "
                f"{steps} actions."
            )
    more = int(last > 0)
    ends = np.cumsum(lengths)
    split = []
    for i, (a, b) in enumerate(zip(ends - lengths, ends)):
        raw = {k: arrays[k][a:b] for k in arrays.keys() & set(PER_STEP)}
        raw |= {k: arrays[k][i] for k in arrays.keys() & set(PER_EPISODE)}
        split.append(raw | {"observations": obs[a + i * more : b + (i + 1) * more]})
    return split


def _infer_lengths(arrays: Arrays, name: str, assumed: list[str]) -> np.ndarray:
    """The lengths of episodes that lie end to end."""
    obs, rows = arrays["observations"], len(arrays["actions"])
    flags = [k for k in ("terminals", "timeouts") if k in arrays]
    for key in {*flags, FIRST, "next_observations"} & arrays.keys():
        if len(arrays[key]) != rows:
            raise DatasetError(f"{name}: {key} of shape {arrays[key].shape}; want {rows} rows, one per step.")
    over = np.zeros(rows, bool)
    for key in flags:
        over |= arrays[key].reshape(rows, -1).any(axis=1)
    if FIRST in arrays:
        flags.append(FIRST)
        over[:-1] |= arrays[FIRST].reshape(rows, -1).any(axis=1)[1:]
    follows = arrays.get("next_observations")
    if follows is not None and len(obs) == rows and follows.shape == obs.shape:
        jumps = np.any((follows[:-1] != obs[1:]).reshape(max(rows - 1, 0), -1), axis=1) & ~over[:-1]
        over[:-1] |= jumps
        if jumps.any():
            assumed.append(f"{int(jumps.sum())} episodes end where next_observations is not the next observation")
    elif not flags:
        assumed.append("no lengths and no flags: read as one single episode")
    over[-1:] = True
    return np.diff(np.flatnonzero(over) + 1, prepend=0)


def _flags_by_step(arrays: Arrays, shape: tuple[int, ...]) -> Arrays:
    """D4RL's `terminals` and `timeouts` for Gymnasium's names, where there is one flag per step."""
    names = {"terminated": "terminals", "truncated": "timeouts"}
    return {names[k] if k in names and v.shape[: len(shape)] == shape else k: v for k, v in arrays.items()}


def _lengths(found: Any, name: str) -> np.ndarray | None:
    if found is None:
        return None
    whole = found.dtype.kind in "iuf" and np.all(found == np.floor(found))
    if found.ndim != 1 or not whole or not np.all(found >= 0):
        raise DatasetError(f"{name}: lengths {found.dtype}{found.shape}; want one whole number ≥ 1 per episode.")
    return found.astype(np.int64)
