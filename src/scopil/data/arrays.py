"""Demonstrations from arrays in the common layouts, and from trajectories with `obs` and `acts`.

Layouts: blocks of shape (episodes, steps, …), padded or not; rows, which are the steps of all episodes joined end to
end, with the lengths of the episodes or with flags at their last steps; lists with one array per episode. The readers
add a sentence to `about["assumed"]` for every assumption. These sentences are stored with the demonstrations.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from scopil.data.dataset import NO_FLAGS, Demonstrations, Episode, guess_space, real
from scopil.errors import DatasetError

RawEpisode = dict[str, Any]  # the arrays of one episode by name, before any check
Arrays = dict[str, Any]

READ_OFF = "read off the data"  # about["spaces"] of demonstrations whose source gives no spaces
ONLY_DONES = (
    "dones do not distinguish termination by the task from a time limit: all episodes count as terminated; to "
    "distinguish the two, give terminated and truncated instead"
)
PER_STEP = ("actions", "rewards", "next_observations", "terminals", "timeouts")  # one row per step
BY_STEP = {"terminated": "terminals", "truncated": "timeouts"}  # flag per episode → name of the same flag per step
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
DONES = ("dones", "done")  # imitation and Stable-Baselines3 set these at time limits too
FIRST = "episode_starts"  # of Stable-Baselines3: a flag per step, set at the first step of an episode
KNOWN = {"observations", "lengths", FIRST, *PER_STEP, *PER_EPISODE, *(other for n in ALIASES.values() for other in n)}


# --- sources ----------------------------------------------------------------------------------------------------------


def from_arrays(source: Any) -> Demonstrations:
    """Demonstrations from a dict of arrays, a pair or triple of arrays, trajectories, or `Transitions` of the
    `imitation` package. The layouts are listed in docs/demonstrations.md."""
    name, source_name = "arrays", f"{type(source).__name__} in memory"
    if isinstance(source, Mapping):
        return from_mapping(source, name, source_name)
    if _is_trajectory(source):
        if hasattr(source, "dones"):  # imitation's Transitions: rows of many episodes
            rows = {k: getattr(source, k, None) for k in ("obs", "acts", "next_obs", "dones", "rews")}
            return from_mapping(rows, name, source_name)
        source = [source]
    if isinstance(source, tuple) and len(source) in (2, 3) and not _is_trajectory(source[0]):
        return from_mapping(dict(zip(("observations", "actions", "rewards"), source)), name, source_name)
    if not isinstance(source, Iterable) or isinstance(source, np.ndarray):
        raise DatasetError(
            f"demonstrations of type {type(source).__name__}; want the name of a shipped set, a path, a pair "
            f"(observations, actions), a dict of arrays, or a list of trajectories with `obs` and `acts`."
        )
    return from_trajectories(source, "trajectories", source_name)


def _is_trajectory(item: Any) -> bool:
    return isinstance(item, Mapping) or (hasattr(item, "obs") and hasattr(item, "acts"))


def from_mapping(found: Mapping[str, Any], name: str, source: str) -> Demonstrations:
    """Demonstrations from a dict of arrays. The layouts are listed in docs/demonstrations.md."""
    arrays, named = _flattened(_canonical_names(found, name), name)
    assumed: list[str] = []
    if unused := sorted(set(map(str, found)) - KNOWN):
        assumed.append(f"not used: {', '.join(unused)}")
    if _only_dones(found):
        assumed.append(ONLY_DONES)
    return from_raw_episodes(split_episodes(arrays, name, assumed), name, source, assumed, named)


def from_trajectories(items: Iterable[Any], name: str, source: str) -> Demonstrations:
    """Demonstrations from one object per episode: a dict, or an object with `obs` and `acts` as in `imitation`."""
    episodes, named, assumed = [], None, []
    for i, item in enumerate(items):
        where = f"{name}, episode {i}"
        if not _is_trajectory(item):
            want = "a trajectory with `obs` and `acts`, or a dict; or give a pair (observations, actions)"
            raise DatasetError(f"{where}: an item of type {type(item).__name__}; want {want}.")
        found = item if isinstance(item, Mapping) else _from_trajectory(item)
        assumed = [ONLY_DONES] if _only_dones(found) else assumed
        raw, named = _flattened(_canonical_names(found, where), where, named)
        episodes.append(raw)
    return from_raw_episodes(episodes, name, source, assumed, named)


def _from_trajectory(item: Any) -> RawEpisode:
    """`terminal` of `imitation`: the episode was recorded to its end. The last info tells if a time limit ended it."""
    raw: RawEpisode = {"observations": item.obs, "actions": item.acts, "rewards": getattr(item, "rews", None)}
    if hasattr(item, "terminal"):
        infos = getattr(item, "infos", None)
        late = infos is not None and len(infos) > 0 and bool(infos[-1].get("TimeLimit.truncated", False))
        raw |= {"truncated": late, "terminated": bool(item.terminal) and not late}
    return raw


def _canonical_names(found: Mapping[str, Any], where: str) -> Arrays:
    """The known arrays, with aliases replaced by the keys of `ALIASES`. None values are dropped."""
    arrays = {k: found[k] for k in found if k in KNOWN}
    for name, others in ALIASES.items():
        for other in others:
            if other in arrays:
                arrays.setdefault(name, arrays[other])
                del arrays[other]
    for key in ("observations", "actions"):
        if key not in arrays:
            raise DatasetError(f"{where}: no array {key!r} (nor {', '.join(ALIASES[key])}); found {_names(found)}.")
    return {k: v for k, v in arrays.items() if v is not None}


def _only_dones(found: Mapping[str, Any]) -> bool:
    given = {name for name in found if found[name] is not None}
    telling = {"terminals", "timeouts", "terminated", "truncated", "terminations", "truncations"}
    return bool(given & set(DONES)) and not given & telling


# --- Dict observations ------------------------------------------------------------------------------------------------


def _flattened(arrays: Arrays, where: str, before: gym.Space | None = None) -> tuple[Arrays, gym.Space | None]:
    """`arrays` with Dict observations flattened to rows, and their Dict space; None if observations are not dicts."""
    found, out = before, dict(arrays)
    for key in arrays.keys() & {"observations", "next_observations"}:
        rows = _named_rows(arrays[key], arrays["actions"], f"{where}: {key}")
        if rows is None:
            continue
        out[key], space = rows
        if found is not None and space != found:
            raise DatasetError(f"{where}: {key} have {space}, others {found}; want one space for all episodes.")
        found = space
    return out, found


def _named_rows(values: Any, actions: Any, where: str) -> tuple[Any, gym.Space] | None:
    """Flat rows and the space of Dict observations; None if `values` has no dicts.

    `values` is a dict of arrays, a list with one dict per step, or a list with one entry per episode."""
    if isinstance(values, Mapping):
        count, *steps = np.shape(actions)[:2]
        shapes = [np.shape(value) for value in values.values()]
        blocks = steps and all(len(s) > 1 and s[0] == count and s[1] - steps[0] in (0, 1) for s in shapes)
        return _by_names(values, where, lead=2 if blocks else 1)  # (episodes, steps, …) or (steps, …)
    if not isinstance(values, list | tuple) or not values:
        return None
    one_each = isinstance(actions, list | tuple) and len(values) == len(actions) and np.ndim(actions[0]) > 0
    if isinstance(values[0], Mapping) and not one_each:
        return _by_names(values, where)
    each = [found for i, one in enumerate(values) if (found := _by_names(one, f"{where}, episode {i}"))]
    return ([rows for rows, _ in each], each[0][1]) if len(each) == len(values) else None


def _by_names(values: Any, where: str, lead: int = 1) -> tuple[np.ndarray, gym.Space] | None:
    """Flat rows, and the Dict space, of a dict of arrays or a list of dicts; None for anything else.

    Columns are in the order of the sorted names. `lead` is the number of axes before those of an observation: 1 for
    (steps, …), 2 for (episodes, steps, …)."""
    if isinstance(values, Sequence) and len(values) and all(isinstance(one, Mapping) for one in values):
        if odd := [i for i, one in enumerate(values) if set(one) != set(values[0])]:
            names = f"{_names(values[odd[0]])}; the first has {_names(values[0])}"
            raise DatasetError(f"{where}: observation {odd[0]} has names {names}; want the same names in all.")
        values = {key: [one[key] for one in values] for key in values[0]}
    if not isinstance(values, Mapping):
        return None
    parts = {str(key): _numbers(values[key], f"{where}: {key}") for key in sorted(values, key=str)}
    if not parts or len({part.shape[:lead] for part in parts.values()}) != 1:
        shapes = {key: part.shape for key, part in parts.items()}
        raise DatasetError(f"{where}: observations of shapes {shapes}; want the same number for each name.")
    flat = [part.reshape(*part.shape[:lead], -1) for part in parts.values()]
    space: dict[str, gym.Space] = {
        key: gym.spaces.Box(-np.inf, np.inf, part.shape[lead:], np.float32) for key, part in parts.items()
    }
    return np.concatenate(flat, axis=-1), gym.spaces.Dict(space)


def _names(values: Mapping[str, Any]) -> str:
    return ", ".join(sorted(map(str, values)))


def _numbers(values: Any, what: str) -> np.ndarray:
    if (found := real(values, what, finite=False)).ndim == 0:
        raise DatasetError(f"{what}: a single number; want an array with one row per step.")
    return found


# --- layouts ----------------------------------------------------------------------------------------------------------


def split_episodes(arrays: Arrays, name: str, assumed: list[str]) -> list[RawEpisode]:
    """The episodes in arrays of any layout. Assumptions are appended to `assumed`."""
    if any(_is_ragged(arrays[k]) for k in ("observations", "actions")):
        return _split_lists(arrays, name)
    arrays = {k: np.asarray(v) for k, v in arrays.items()}
    lengths = _lengths(arrays.pop("lengths", None), name)
    if _is_block(arrays, lengths):
        return _split_blocks(arrays, lengths, name)
    return split_rows(arrays, lengths, name, assumed)


def _is_ragged(values: Any) -> bool:
    """Whether `values` is a list of episodes of different lengths."""
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
            raise DatasetError(f"{name}: {len(value)} {key} for {count} episodes; want one entry per episode.")
    return [{k: v[i] for k, v in arrays.items()} for i in range(count)]


def _is_block(arrays: Arrays, lengths: np.ndarray | None) -> bool:
    """Whether arrays are (episodes, steps, …). Arrays with two axes are rows if they hold real numbers, and a
    block if they hold integers (discrete states and actions)."""
    obs, actions = arrays["observations"], arrays["actions"]
    if obs.ndim < 2 or actions.ndim < 2 or len(obs) != len(actions):
        return False
    if obs.shape[1] - actions.shape[1] not in (0, 1):
        return False
    if lengths is not None:
        return len(lengths) == len(obs) and (obs.ndim > 2 or int(lengths.sum()) != len(actions))
    return obs.ndim > 2 or (obs.dtype.kind in "iu" and actions.dtype.kind in "iu" and actions.shape[1] > 1)


def _split_blocks(arrays: Arrays, lengths: np.ndarray | None, name: str) -> list[RawEpisode]:
    """Episodes of equal length, or episodes padded to the longest one, with their true lengths in `lengths`."""
    count, steps = arrays["actions"].shape[:2]
    last = arrays["observations"].shape[1] - steps  # 1 if the last observation is included
    arrays = _flags_by_step(arrays, (count, steps))
    for key in arrays.keys() & {*PER_STEP, *PER_EPISODE}:
        wanted = (count, steps) if key in PER_STEP else (count,)
        if arrays[key].shape[: len(wanted)] != wanted:
            raise DatasetError(f"{name}: {key} of shape {arrays[key].shape}; want {wanted}.")
    lengths = np.full(count, steps) if lengths is None else lengths
    if lengths.max(initial=0) > steps:
        raise DatasetError(f"{name}: an episode of {lengths.max()} steps; the arrays have {steps} per episode.")
    extra = {"observations": last} | dict.fromkeys(PER_STEP, 0)  # rows beyond the number of steps
    return [{k: v[i, : n + extra[k]] if k in extra else v[i] for k, v in arrays.items()} for i, n in enumerate(lengths)]


def split_rows(arrays: Arrays, lengths: np.ndarray | None, name: str, assumed: list[str]) -> list[RawEpisode]:
    """Split rows into episodes: by lengths, by flags, or where next_observations differs from the next row."""
    obs, actions = arrays["observations"], arrays["actions"]
    if obs.ndim == 0 or actions.ndim == 0:
        raise DatasetError(f"{name}: observations {obs.shape} and actions {actions.shape}; want rows, one per step.")
    rows = len(actions)
    if lengths is None or len(lengths) != rows:  # else episodes have one step: flags per episode are flags per step
        arrays = _flags_by_step(arrays, (rows,))
    lengths = _infer_lengths(arrays, name, assumed) if lengths is None else lengths
    episodes, steps = len(lengths), int(lengths.sum())
    last = len(obs) - steps
    if last not in (0, episodes):
        raise DatasetError(
            f"{name}: observations of shape {obs.shape}; want {steps + episodes} rows for {episodes} episodes with "
            f"{steps} actions, or {steps} rows without the observation after the last action."
        )
    wanted = dict.fromkeys(PER_STEP, steps) | dict.fromkeys(PER_EPISODE, episodes)
    for key in sorted(wanted.keys() & arrays.keys()):
        flag = key in ("terminated", "truncated")
        if arrays[key].shape[:1] != (wanted[key],) or (flag and arrays[key].ndim > 1):
            raise DatasetError(f"{name}: {key} of shape {arrays[key].shape}; want {wanted[key]} rows.")
    more, ends, split = int(last > 0), np.cumsum(lengths), []
    for i, (a, b) in enumerate(zip(ends - lengths, ends)):
        raw = {k: arrays[k][a:b] for k in arrays.keys() & set(PER_STEP)}
        raw |= {k: arrays[k][i] for k in arrays.keys() & set(PER_EPISODE)}
        split.append(raw | {"observations": obs[a + i * more : b + (i + 1) * more]})
    return split


def _infer_lengths(arrays: Arrays, name: str, assumed: list[str]) -> np.ndarray:
    """The lengths of episodes joined end to end, from their flags and next_observations."""
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
            assumed.append(f"{int(jumps.sum())} episodes end where next_observations differs from the next row")
    elif not flags:
        assumed.append("neither lengths nor flags are given: all rows are read as one episode")
    over[-1:] = True
    return np.diff(np.flatnonzero(over) + 1, prepend=0)


def _flags_by_step(arrays: Arrays, shape: tuple[int, ...]) -> Arrays:
    """`terminated` and `truncated` with one flag per step get D4RL's names, `terminals` and `timeouts`."""
    return {BY_STEP[k] if k in BY_STEP and v.shape[: len(shape)] == shape else k: v for k, v in arrays.items()}


def _lengths(found: Any, name: str) -> np.ndarray | None:
    if found is None:
        return None
    whole = found.dtype.kind in "iuf" and np.all(found == np.floor(found))
    if found.ndim != 1 or not whole or not np.all(found >= 0):
        raise DatasetError(f"{name}: lengths {found.dtype}{found.shape}; want one whole number ≥ 1 per episode.")
    return found.astype(np.int64)


# --- episodes ---------------------------------------------------------------------------------------------------------


def from_raw_episodes(
    raw: list[RawEpisode], name: str, source: str, assumed: list[str], named: gym.Space | None = None
) -> Demonstrations:
    """Demonstrations from the raw episodes of any format. Missing end flags and last observations are filled in, spaces
    are inferred, and all arrays are checked.

    `named` is the Dict space from which the observations were flattened, or None."""
    raw = [
        {k: v if k in PER_EPISODE else _numbers(v, f"{name}, episode {i}: {k}") for k, v in one.items()}
        for i, one in enumerate(raw)
    ]
    if raw and all(e["actions"].shape[1:] == (1,) and e["actions"].dtype.kind in "biu" for e in raw):
        assumed.append("integer actions with one column are read as discrete actions")
        raw = [e | {"actions": e["actions"][:, 0]} for e in raw]
    episodes = tuple(to_episode(one, f"{name}, episode {i}") for i, one in enumerate(raw))
    unended = [e for e in raw if len(e["observations"]) == len(e["actions"])]
    if repeated := sum("next_observations" not in e for e in unended):
        assumed.append(
            f"the last observation of {repeated} of {len(raw)} episodes is not recorded: the one before it is "
            f"repeated; no learner uses the copy as a next state"
        )
    if len(unended) > repeated:
        assumed.append("the last row of next_observations is read as the last observation of its episode")
    if not any({*BY_STEP, *BY_STEP.values()} & e.keys() for e in raw):
        assumed.append(NO_FLAGS)
    spaces: dict[str, Any] = {
        f"{what}_space": guess_space([getattr(e, f"{what}s") for e in episodes], what == "action", f"{name}: {what}s")
        for what in ("observation", "action")
    }
    found = spaces["action_space"]
    bounds = "a Box of the observed range" if isinstance(found, gym.spaces.Box) else f"{found}, from the largest action"
    assumed.append(f"the action space is {bounds}; if an environment is given, its action space replaces this one")
    about = {"source": source, "spaces": READ_OFF, "assumed": assumed}
    return Demonstrations(episodes=episodes, name=name, about=about, flattened_from=named, **spaces)


def to_episode(raw: RawEpisode, where: str) -> Episode:
    """An `Episode`. A missing last observation and missing end flags are filled in."""
    obs, actions = raw["observations"], raw["actions"]
    if len(obs) == len(actions) > 0:
        after = raw.get("next_observations", obs)
        if after.shape != obs.shape:
            raise DatasetError(f"{where}: next_observations of shape {after.shape}; want {obs.shape}.")
        obs = np.concatenate([obs, after[-1:]])
    terminated, truncated = _end_flag(raw, "terminated", where), _end_flag(raw, "truncated", where)
    if terminated is None:
        terminated = truncated is None  # without flags, the episode counts as terminated
    rewards = raw.get("rewards")
    if rewards is not None and rewards.shape == (len(actions), 1):
        rewards = rewards[:, 0]
    end: dict[str, Any] = {"terminated": terminated, "truncated": bool(truncated), "start": raw.get("starts")}
    return Episode(observations=obs, actions=actions, rewards=rewards, **end)


def _end_flag(raw: RawEpisode, name: str, where: str) -> bool | None:
    """The flag `name` of the episode, else the flag of its last step; None if neither is given."""
    if name in raw:
        return bool(np.all(raw[name]))
    if (by_step := BY_STEP[name]) not in raw:
        return None
    flags = np.atleast_1d(raw[by_step].reshape(len(raw[by_step]), -1).any(axis=1))
    if flags[:-1].any():
        step = int(np.argmax(flags))
        raise DatasetError(f"{where}: {by_step} set at step {step} of {len(flags)}; want it at the last step only.")
    return bool(flags.any())
