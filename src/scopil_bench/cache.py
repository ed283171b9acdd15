"""The stored evaluation of a run: episodes are played once, and reports read the stored files.

evaluation.json   the policy and the protocol; measures of every episode, by evaluation; the study's extra measures
episodes.npz      the greedy episodes, if the environment can draw them
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scopil.data import storage
from scopil.data.dataset import Episode
from scopil.errors import CheckpointError, DatasetError, refused_as
from scopil.files import parse_json, write_atomically

FORMAT = 3  # of evaluation.json; if a file has another format, the policy is evaluated again
EVALUATION, EPISODES = "evaluation.json", "episodes.npz"


def write_evaluation(
    folder: Path, made_from: Mapping[str, Any], found: Mapping[str, Any], episodes: Mapping[str, Sequence[Episode]]
) -> dict[str, Any]:
    """Write both files and return the content of evaluation.json. `made_from` identifies policy and protocol. `found`
    has `env_steps`, `measures` and `extra`. `episodes`, by evaluation, is empty if the environment cannot draw."""
    body = {"format": FORMAT, "made_from": dict(made_from), **found}
    if episodes:
        arrays: dict[str, np.ndarray] = {}
        for key, each in ((key, _uniform(each)) for key, each in episodes.items()):
            arrays |= {f"{key}:{name}": a for name, a in storage.episode_arrays(each, each[0].info).items()}
        write_atomically(folder / EPISODES, storage.pack(arrays))
    else:
        (folder / EPISODES).unlink(missing_ok=True)
    write_atomically(folder / EVALUATION, json.dumps(body).encode() + b"\n")
    return body


def read_evaluation(folder: Path) -> dict[str, Any] | None:
    """The content of evaluation.json; None if the file is missing, damaged or of another format."""
    try:
        kept = parse_json((folder / EVALUATION).read_bytes())
        whole = kept["format"] == FORMAT and type(kept["env_steps"]) is int and _is_measures(kept["measures"])
        return kept if whole and isinstance(kept["made_from"], dict) and isinstance(kept["extra"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_measures(found: Any) -> bool:
    """Whether `found` has a dict of numbers for every episode of every evaluation."""
    lists: list[Any] = list(found.values()) if isinstance(found, dict) else [None]
    if not all(isinstance(each, list) and each and all(isinstance(m, dict) for m in each) for each in lists):
        return False
    return all(isinstance(value, int | float) for each in lists for m in each for value in m.values())


def read_episodes(folder: Path) -> dict[str, list[Episode]]:
    """The stored episodes by evaluation; empty if the environment cannot draw episodes."""
    if not (folder / EPISODES).exists():
        return {}
    try:
        with refused_as(DatasetError, folder / EPISODES):
            by_key: dict[str, dict[str, Any]] = {}
            for name, array in storage.unpack(folder / EPISODES)[0].items():
                key, _, part = name.partition(":")
                by_key.setdefault(key, {})[part] = array
            return {key: list(storage.episodes_in(arrays, key)) for key, arrays in by_key.items()}
    except DatasetError as error:
        raise CheckpointError(str(error)) from error


def _uniform(episodes: Sequence[Episode]) -> list[Episode]:
    """Give all episodes rewards and the same `info` keys. Missing values (a rule never violated) become zeros."""
    known = {name: array for e in episodes for name, array in e.info.items()}
    return [
        replace(
            e,
            rewards=np.zeros(len(e), np.float32) if e.rewards is None else e.rewards,
            start=None,
            info={n: np.zeros((len(e) + 1, *a.shape[1:]), a.dtype) for n, a in known.items()} | e.info,
        )
        for e in episodes
    ]
