"""Other people's demonstrations: arrays in the layouts that are about, and trajectories with `obs` and `acts`.

Whatever had to be assumed is written down in the set's `about["assumed"]`, a sentence each, and travels with it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from scopil.demos.array_layouts import GAMES, KNOWN, Game, games_in, named
from scopil.demos.dataset import Demonstrations, Episode, guess_space
from scopil.errors import DatasetError

READ_OFF = "read off the data"  # about["spaces"] of a set whose spaces nobody has declared


def from_objects(source: Any) -> Demonstrations:
    """A set from what somebody has in memory."""
    name, source_name = "arrays", f"{type(source).__name__} in memory"
    if isinstance(source, Mapping):
        return from_mapping(source, name, source_name)
    if hasattr(source, "obs") and hasattr(source, "acts"):
        if hasattr(source, "dones"):  # imitation's Transitions: rows of many games
            rows = {k: getattr(source, k, None) for k in ("obs", "acts", "next_obs", "dones", "rews")}
            return from_mapping(rows, name, source_name)
        source = [source]
    if isinstance(source, tuple) and len(source) in (2, 3) and not _is_game(source[0]):
        return from_mapping(dict(zip(("observations", "actions", "rewards"), source)), name, source_name)
    if not isinstance(source, Iterable) or isinstance(source, np.ndarray):
        raise DatasetError(
            f"demonstrations of type {type(source).__name__}; want a name, a path, a pair (observations, actions), a "
            f"dict of arrays, a list of trajectories with `obs` and `acts`, or scopil.Demonstrations."
        )
    return from_trajectories(source, "trajectories", source_name)


def _is_game(item: Any) -> bool:
    return isinstance(item, Mapping) or (hasattr(item, "obs") and hasattr(item, "acts"))


def from_mapping(found: Mapping[str, Any], name: str, source: str) -> Demonstrations:
    """A set from arrays by name; the layouts are in docs/demonstrations.md."""
    arrays = named(found, name)
    assumed: list[str] = []
    if unused := sorted(set(map(str, found)) - KNOWN):
        assumed.append(f"not used: {', '.join(unused)}")
    games = games_in(arrays, name, assumed)
    return from_games(games, name, source, assumed)


def from_trajectories(items: Iterable[Any], name: str, source: str) -> Demonstrations:
    """A set from one object a game: mappings, or anything with `obs` and `acts` (the `imitation` package's types)."""
    games = []
    for i, item in enumerate(items):
        where = f"{name}, game {i}"
        if isinstance(item, Mapping):
            games.append(named(item, where))
        elif _is_game(item):
            games.append(_of_trajectory(item))
        else:
            raise DatasetError(
                f"{where}: {type(item).__name__}; want a trajectory with `obs` and `acts`, or a dict. Observations and "
                f"actions apart are given as a pair: (observations, actions)."
            )
    return from_games(games, name, source, [])


def from_games(games: list[Game], name: str, source: str, assumed: list[str]) -> Demonstrations:
    """The last step for every format: ends and last observations are filled in, spaces read off, all is checked."""
    games = [
        {k: v if k in GAMES else _array(v, f"{name}, game {i}: {k}") for k, v in g.items()}
        for i, g in enumerate(games)
    ]
    games = _plain_actions(games, assumed)
    episodes = tuple(episode_of(game, f"{name}, game {i}") for i, game in enumerate(games))
    _say_what_was_filled_in(games, assumed)
    spaces = {
        f"{what}_space": _guess(
            [getattr(e, f"{what}s") for e in episodes], f"{name}: {what}s", what == "action"
        )
        for what in ("observation", "action")
    }
    found = spaces["action_space"]
    bounds = "their extremes" if isinstance(found, gym.spaces.Box) else f"{found}, the highest number seen"
    assumed.append(
        f"the bounds of the actions are {bounds}; an environment's own take their place when it is known"
    )
    about = {"source": source, "spaces": READ_OFF, "assumed": assumed}
    return Demonstrations(episodes=episodes, name=name, about=about, **spaces)


def _say_what_was_filled_in(games: list[Game], assumed: list[str]) -> None:
    unended = [g for g in games if len(g["observations"]) == len(g["actions"])]
    repeated = sum("next_observations" not in g for g in unended)
    if repeated:
        assumed.append(
            f"where {repeated} of {len(games)} games ended is not recorded: the last observation stands there a "
            f"second time, in no pair that is learned from"
        )
    if len(unended) > repeated:
        assumed.append("the last observation of a game is the last of its next_observations")
    if not any({"terminated", "truncated", "terminals", "timeouts"} & g.keys() for g in games):
        assumed.append("no flags say how games ended: counted as ended by the task")


# --- one game -------------------------------------------------------------------------------------------------------


def episode_of(game: Game, where: str) -> Episode:
    obs, actions = game["observations"], game["actions"]
    if len(obs) == len(actions) > 0:
        after = game.get("next_observations", obs)
        if after.shape != obs.shape:
            raise DatasetError(f"{where}: next_observations of shape {after.shape}; want {obs.shape}.")
        obs = np.concatenate([obs, after[-1:]])
    terminated, truncated = (
        _end(game, *keys, where) for keys in (("terminated", "terminals"), ("truncated", "timeouts"))
    )
    if terminated is None:
        terminated = truncated is None  # nobody says anything
    rewards = game.get("rewards")
    if rewards is not None and rewards.shape == (len(actions), 1):
        rewards = rewards[:, 0]
    return Episode(
        observations=obs,
        actions=actions,
        rewards=rewards,
        terminated=terminated,
        truncated=bool(truncated),
        start=game.get("starts"),
    )


def _end(game: Game, whole: str, by_step: str, where: str) -> bool | None:
    """A flag of the game; None when nobody says."""
    if whole in game:
        return bool(np.all(game[whole]))
    if by_step not in game:
        return None
    flags = np.atleast_1d(game[by_step].reshape(len(game[by_step]), -1).any(axis=1))
    if flags[:-1].any():
        raise DatasetError(
            f"{where}: {by_step} set at step {int(np.argmax(flags))} of {len(flags)}; want it at a game's last step "
            f"only. Do the lengths fit?"
        )
    return bool(flags.any())


def _of_trajectory(item: Any) -> Game:
    """`imitation` sets `terminal` when an episode was seen to its end; the clock's ends are told by the last info."""
    game: Game = {"observations": item.obs, "actions": item.acts}
    rewards, infos = getattr(item, "rews", None), getattr(item, "infos", None)
    if rewards is not None:
        game["rewards"] = rewards
    if hasattr(item, "terminal"):
        last = infos[-1] if infos is not None and len(infos) else {}
        game["truncated"] = bool(last.get("TimeLimit.truncated", False))
        game["terminated"] = bool(item.terminal) and not game["truncated"]
    return game


def _plain_actions(games: list[Game], assumed: list[str]) -> list[Game]:
    """One whole number a step is a number, also where it was kept as a row of one."""
    rows = [g["actions"] for g in games]
    if not rows or not all(a.ndim == 2 and a.shape[1] == 1 and a.dtype.kind in "biu" for a in rows):
        return games
    assumed.append("actions of one whole number a row are taken for numbered actions")
    return [g | {"actions": g["actions"][:, 0]} for g in games]


def _array(values: Any, what: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DatasetError(f"{what}: rows of unequal shape; want one array ({error}).") from error
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise DatasetError(f"{what}: {array.dtype}{array.shape}; want rows of numbers.")
    return array


def _guess(arrays: list[np.ndarray], what: str, bounded: bool) -> Any:
    try:
        return guess_space(arrays, bounded=bounded)
    except DatasetError as error:
        raise DatasetError(f"{what}: {error}") from error
