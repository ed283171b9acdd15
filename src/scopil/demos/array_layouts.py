"""The layouts in which other people keep games in arrays, taken apart into games.

They are (games, steps, …) blocks, padded or not; rows joined end to end, with lengths or with flags at the ends; or
lists with one array a game.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from scopil.errors import DatasetError

Game = dict[str, Any]  # one game as it was found: a part of each array
Arrays = dict[str, Any]

STEPS = ("actions", "rewards", "next_observations", "terminals", "timeouts")  # one row a step
GAMES = ("terminated", "truncated", "starts")  # one row a game
ALIASES = {
    "observations": ("obs",),
    "actions": ("acts",),
    "rewards": ("rews",),
    "next_observations": ("next_obs",),
    "terminals": ("dones", "terminations"),
    "timeouts": ("truncations",),
    "lengths": ("episode_lengths",),
}
KNOWN = {"observations", "lengths", *STEPS, *GAMES, *(other for names in ALIASES.values() for other in names)}


def named(found: Mapping[str, Any], where: str) -> Arrays:
    """By the names used here."""
    arrays = {k: found[k] for k in found if k in KNOWN}
    for name, others in ALIASES.items():
        for other in others:
            if other in arrays:
                arrays.setdefault(name, arrays[other])
                del arrays[other]
    for key in ("observations", "actions"):
        if key not in arrays:
            raise DatasetError(
                f"{where}: no array {key!r}; found {sorted(map(str, found))}, want observations and actions."
            )
    return {k: v for k, v in arrays.items() if v is not None}


def _ragged(values: Any) -> bool:
    """Whether it is a list of games that are not equally long."""
    if isinstance(values, np.ndarray):
        return False
    try:
        return np.asarray(values).dtype == object
    except ValueError:
        return True


def games_in(arrays: Arrays, name: str, assumed: list[str]) -> list[Game]:
    if any(_ragged(arrays[k]) for k in ("observations", "actions")):
        return _listed(arrays, name)
    arrays = {k: np.asarray(v) for k, v in arrays.items()}
    lengths = _lengths(arrays.pop("lengths", None), name)
    if _is_block(arrays, lengths):
        return _blocks(arrays, lengths, name)
    return rows(arrays, lengths, name, assumed)


def _listed(arrays: Arrays, name: str) -> list[Game]:
    """Lists with one array a game."""
    count = len(arrays["actions"])
    arrays = {k: v for k, v in arrays.items() if k != "lengths"}
    for key, value in arrays.items():
        if len(value) != count:
            raise DatasetError(f"{name}: {len(value)} {key} for {count} games; want one of each a game.")
    return [{k: v[i] for k, v in arrays.items()} for i in range(count)]


def _is_block(arrays: Arrays, lengths: np.ndarray | None) -> bool:
    """(games, steps, …). Two axes of real numbers are rows; of whole ones, numbered states and actions, a block."""
    obs, actions = arrays["observations"], arrays["actions"]
    if obs.ndim < 2 or actions.ndim < 2 or len(obs) != len(actions):
        return False
    if obs.shape[1] - actions.shape[1] not in (0, 1):
        return False
    if lengths is not None:
        return len(lengths) == len(obs) and (obs.ndim > 2 or int(lengths.sum()) != len(actions))
    return obs.ndim > 2 or (obs.dtype.kind in "iu" and actions.dtype.kind in "iu" and actions.shape[1] > 1)


def _blocks(arrays: Arrays, lengths: np.ndarray | None, name: str) -> list[Game]:
    """Equally long games, or games padded to the longest of them with `lengths`."""
    count, steps = arrays["actions"].shape[:2]
    last = arrays["observations"].shape[1] - steps  # 1 where the last observation is there
    arrays = _flags_by_step(arrays, (count, steps))
    for key in arrays.keys() & {*STEPS, *GAMES}:
        wanted = (count, steps) if key in STEPS else (count,)
        if arrays[key].shape[: len(wanted)] != wanted:
            raise DatasetError(f"{name}: {key} of shape {arrays[key].shape}; want {wanted}.")
    lengths = np.full(count, steps) if lengths is None else lengths
    if lengths.max(initial=0) > steps:
        raise DatasetError(
            f"{name}: a game of {lengths.max()} steps in arrays of {steps}; want at most that."
        )
    rows = {"observations": last} | dict.fromkeys(STEPS, 0)
    return [
        {k: v[i, : n + rows[k]] if k in rows else v[i] for k, v in arrays.items()}
        for i, n in enumerate(lengths)
    ]


def rows(arrays: Arrays, lengths: np.ndarray | None, name: str, assumed: list[str]) -> list[Game]:
    """Games joined end to end, told apart by lengths, by flags, or by observations that do not follow."""
    obs, actions = arrays["observations"], arrays["actions"]
    if obs.ndim == 0 or actions.ndim == 0:
        raise DatasetError(
            f"{name}: observations {obs.shape} and actions {actions.shape}; want rows of them."
        )
    pairs = len(actions)
    if lengths is None:
        arrays = _flags_by_step(arrays, (pairs,))
        lengths = _told_apart(arrays, name, assumed)
    elif len(lengths) != pairs:  # else one flag a game and one a step are the same
        arrays = _flags_by_step(arrays, (pairs,))
    games, told = len(lengths), int(lengths.sum())
    last = len(obs) - told
    wanted = {"actions": told} | dict.fromkeys(STEPS, told) | dict.fromkeys(GAMES, games)
    if last not in (0, games):
        raise DatasetError(
            f"{name}: observations of shape {obs.shape}; want {told + games} rows for {games} games with {told} "
            f"actions (one more observation than actions in each), or {told} (none after the last action)."
        )
    for key in sorted(wanted.keys() & arrays.keys()):
        flag = key in ("terminated", "truncated")
        if arrays[key].shape[:1] != (wanted[key],) or (flag and arrays[key].ndim > 1):
            raise DatasetError(
                f"{name}: {key} of shape {arrays[key].shape}; want {wanted[key]} rows for {games} games with {told} "
                f"actions."
            )
    more = int(last > 0)
    ends = np.cumsum(lengths)
    cut = []
    for i, (a, b) in enumerate(zip(ends - lengths, ends)):
        game = {k: arrays[k][a:b] for k in arrays.keys() & set(STEPS)}
        game |= {k: arrays[k][i] for k in arrays.keys() & set(GAMES)}
        cut.append(game | {"observations": obs[a + i * more : b + (i + 1) * more]})
    return cut


def _told_apart(arrays: Arrays, name: str, assumed: list[str]) -> np.ndarray:
    """How long the games are that lie end to end."""
    obs, pairs = arrays["observations"], len(arrays["actions"])
    flags = [k for k in ("terminals", "timeouts") if k in arrays]
    for key in {*flags, "next_observations"} & arrays.keys():
        if len(arrays[key]) != pairs:
            raise DatasetError(f"{name}: {key} of shape {arrays[key].shape}; want {pairs} rows, one a step.")
    over = np.zeros(pairs, bool)
    for key in flags:
        over |= arrays[key].reshape(pairs, -1).any(axis=1)
    follows = arrays.get("next_observations")
    if follows is not None and len(obs) == pairs and follows.shape == obs.shape:
        jumps = np.any((follows[:-1] != obs[1:]).reshape(max(pairs - 1, 0), -1), axis=1) & ~over[:-1]
        over[:-1] |= jumps
        if jumps.any():
            assumed.append(
                f"{int(jumps.sum())} games are cut where next_observations is not the next observation"
            )
    elif not flags:
        assumed.append("no lengths and no flags: taken for one single game")
    over[-1:] = True
    return np.diff(np.flatnonzero(over) + 1, prepend=0)


def _flags_by_step(arrays: Arrays, shape: tuple[int, ...]) -> Arrays:
    """Gymnasium's words for D4RL's `terminals` and `timeouts`, when there is one a step."""
    names = {"terminated": "terminals", "truncated": "timeouts"}
    return {names[k] if k in names and v.shape[: len(shape)] == shape else k: v for k, v in arrays.items()}


def _lengths(found: Any, name: str) -> np.ndarray | None:
    if found is None:
        return None
    whole = found.dtype.kind in "iuf" and np.all(found == np.floor(found))
    if found.ndim != 1 or not whole or not np.all(found >= 0):
        raise DatasetError(f"{name}: lengths {found.dtype}{found.shape}; want one whole number ≥ 1 a game.")
    return found.astype(np.int64)
