"""Evaluations kept in a run folder, so that reports read what was played once.

evaluation.json   which policy was played and how; the measures of every episode by evaluation; the study's extra ones
episodes.npz      the greedy episodes, where the environment can draw them
"""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scopil.data.dataset import Episode
from scopil.errors import CheckpointError, refused_as
from scopil.eval.measures import Measures
from scopil.files import parse_json, read_npz, write_atomically

FORMAT = 2  # of evaluation.json; a file with another number is made again
EVALUATION, EPISODES = "evaluation.json", "episodes.npz"


def write_evaluation(
    folder: Path, made_from: Mapping[str, Any], found: Mapping[str, Any], episodes: Mapping[str, Sequence[Episode]]
) -> dict[str, Any]:
    """`made_from` identifies policy and protocol, `found` has `env_steps`, `measures` and `extra`."""
    body = {"format": FORMAT, "made_from": dict(made_from), **found}
    if episodes:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **_arrays(episodes))  # pyright: ignore[reportArgumentType]
        write_atomically(folder / EPISODES, buffer.getvalue())
    else:
        (folder / EPISODES).unlink(missing_ok=True)
    write_atomically(folder / EVALUATION, json.dumps(body).encode() + b"\n")
    return body


def read_evaluation(folder: Path, made_from: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """What is kept; None when it is missing, damaged, or made from something else."""
    try:
        kept = parse_json((folder / EVALUATION).read_bytes())
        if kept["format"] != FORMAT or (made_from is not None and kept["made_from"] != made_from):
            return None
        return kept if _is_measures(kept["measures"]) and isinstance(kept["extra"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_measures(found: Any) -> bool:
    """Numbers by name, for every episode of every evaluation."""
    lists: list[Any] = list(found.values()) if isinstance(found, dict) else [None]
    if not all(isinstance(each, list) and each and all(isinstance(m, dict) for m in each) for each in lists):
        return False
    return all(isinstance(value, int | float) for each in lists for m in each for value in m.values())


def read_measures(folder: Path) -> dict[str, list[Measures]]:
    kept = read_evaluation(folder)
    if kept is None:
        raise CheckpointError(f"{folder} has no evaluation yet: scopil report {folder} makes one.")
    return kept["measures"]


def read_episodes(folder: Path) -> dict[str, list[Episode]]:
    """By evaluation; empty where the environment cannot draw episodes."""
    if not (folder / EPISODES).exists():
        return {}
    with refused_as(CheckpointError, folder / EPISODES):
        found = read_npz((folder / EPISODES).read_bytes())
        arrays = {name: array for name, array in found.items() if array is not None}
        keys = dict.fromkeys(name.partition(":")[0] for name in arrays)
        return {key: _episodes(key, arrays) for key in keys}


def _arrays(episodes: Mapping[str, Sequence[Episode]]) -> dict[str, np.ndarray]:
    out: dict[str, np.ndarray] = {}
    for key, each in episodes.items():
        out[f"{key}:steps"] = np.array([len(e) for e in each])
        out[f"{key}:terminated"] = np.array([e.terminated for e in each])
        out[f"{key}:truncated"] = np.array([e.truncated for e in each])
        out[f"{key}:observations"] = np.concatenate([e.observations for e in each])
        out[f"{key}:actions"] = np.concatenate([e.actions for e in each])
        out[f"{key}:rewards"] = np.concatenate([_rewards(e) for e in each])
        for name, like in {n: a for e in each for n, a in e.info.items()}.items():
            out[f"{key}:info:{name}"] = np.concatenate([_reported(e, name, like) for e in each])
    return out


def _reported(episode: Episode, name: str, like: np.ndarray) -> np.ndarray:
    """Zeros where an episode has no such number: a rule that it never broke, for example."""
    absent = np.zeros((len(episode) + 1, *like.shape[1:]), like.dtype)
    return episode.info.get(name, absent)


def _rewards(episode: Episode) -> np.ndarray:
    return np.zeros(len(episode), np.float32) if episode.rewards is None else episode.rewards


def _episodes(key: str, arrays: Mapping[str, np.ndarray]) -> list[Episode]:
    steps = arrays[f"{key}:steps"]
    moves, states = np.cumsum(steps)[:-1], np.cumsum(steps + 1)[:-1]
    prefix = f"{key}:info:"
    infos = {n.removeprefix(prefix): np.split(a, states) for n, a in arrays.items() if n.startswith(prefix)}
    parts = {
        n: np.split(arrays[f"{key}:{n}"], at)
        for n, at in [("observations", states), ("actions", moves), ("rewards", moves)]
    }
    return [
        Episode(
            observations=parts["observations"][i],
            actions=parts["actions"][i],
            rewards=parts["rewards"][i],
            terminated=bool(arrays[f"{key}:terminated"][i]),
            truncated=bool(arrays[f"{key}:truncated"][i]),
            info={name: each[i] for name, each in infos.items()},
        )
        for i in range(len(steps))
    ]
