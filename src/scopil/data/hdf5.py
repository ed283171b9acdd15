"""Demonstrations from HDF5 files, in robomimic's layout or in D4RL's.

robomimic   `data/demo_0`, `data/demo_1`, …, each with `actions`, `obs/NAME`, and perhaps `next_obs`, `rewards`, `dones`
D4RL        `observations`, `actions` and the other arrays of docs/demonstrations.md at the top of the file
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from scopil.data.arrays import KNOWN, ONLY_DONES, from_mapping, from_trajectories
from scopil.data.csv_tables import natural
from scopil.data.dataset import Demonstrations
from scopil.errors import DatasetError, ScopilError
from scopil.files import unpacks_to_far_more

_DEEPEST = 16  # deepest nesting of groups


def from_hdf5(path: Path) -> Demonstrations:
    """Read a file. Raises `DatasetError`."""
    h5py = import_h5py()
    with h5py.File(path, "r") as file:
        refuse_absurd(file, path.stat().st_size)
        if isinstance(file.get("data"), h5py.Group):
            return _robomimic(file["data"], path)
        if {"observations", "actions"} <= file.keys():
            arrays = {name: file[name][()] for name in file if name in KNOWN and isinstance(file[name], h5py.Dataset)}
            return from_mapping(arrays, path.stem, path.name)
        raise DatasetError(
            f"{path} has {', '.join(sorted(file)) or 'nothing'}; want robomimic's data/demo_0/actions and "
            f"data/demo_0/obs, or D4RL's observations and actions. Or save arrays: np.savez('mine.npz', …)."
        )


def _robomimic(data: Any, path: Path) -> Demonstrations:
    """Images are left out if there are other observations: they would become thousands of columns."""
    demos, left_out = [], set()
    for name in sorted(data, key=natural):
        part = data[name]
        if "actions" not in part or not len(part.get("obs", ())):
            found = ", ".join(sorted(part)) or "nothing"
            raise DatasetError(
                f"{path}: data/{name} has {found}; want actions and obs/NAME. Files without observations are "
                f"completed by robomimic's dataset_states_to_obs.py."
            )
        images = {key for key in part["obs"] if part["obs"][key].ndim > 3}
        skipped = images if images < part["obs"].keys() else set()
        raw: dict[str, Any] = {key: part[key][()] for key in ("actions", "rewards") if key in part}
        for ours, theirs in (("observations", "obs"), ("next_observations", "next_obs")):
            if theirs in part:
                raw[ours] = _seen({key: part[theirs][key][()] for key in part[theirs] if key not in skipped})
        if "dones" in part:  # robomimic sets them at every step in a state of success
            over = bool(part["dones"][()].any())
            raw |= {"terminated": over, "truncated": not over}
        demos.append(raw)
        left_out |= skipped
    found = from_trajectories(demos, path.stem, path.name)
    assumed = [f"images are not used: {', '.join(sorted(left_out))}"] if left_out else []
    assumed += [ONLY_DONES] if any("terminated" in raw for raw in demos) else []
    return replace(found, about=found.about | {"assumed": [*assumed, *found.about["assumed"]]})


def _seen(by_name: dict[str, Any]) -> Any:
    return by_name if len(by_name) > 1 else next(iter(by_name.values()))


def import_h5py() -> Any:
    try:
        return import_module("h5py")
    except ImportError as error:
        raise ScopilError('HDF5 files need h5py: pip install "scopil[data]".') from error


def refuse_absurd(file: Any, held: int) -> None:
    """Raise ValueError if a file of `held` bytes declares far more data than it holds, or links to other files."""
    claimed = sum(_sizes(file, held))
    if unpacks_to_far_more(claimed, held):
        raise ValueError(f"{held:,} bytes claim to hold {claimed:,}")


def _sizes(group: Any, held: int, depth: int = 0) -> Iterator[int]:
    """Sizes of all HDF5 datasets in bytes. Raises for links, which could lead to other files or form cycles, and for
    more chunks than the file has bytes, since even a chunk that is not stored costs time and memory."""
    h5py = import_h5py()
    for name in group:
        part: Any = group[name] if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
        if isinstance(part, h5py.Dataset) and not part.external and not part.is_virtual:
            if math.prod(-(-n // c) for n, c in zip(part.shape or (), part.chunks or part.shape or ()) if c) > held:
                raise ValueError(f"{name} claims {part.shape} in chunks of {part.chunks}")
            yield part.size * part.dtype.itemsize if part.size else 0
        elif isinstance(part, h5py.Group) and depth < _DEEPEST:
            yield from _sizes(part, held, depth + 1)
        else:
            raise ValueError(f"{name} is no plain part of the file")
