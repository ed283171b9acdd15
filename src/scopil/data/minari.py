"""Lossless conversion between demonstrations and local Minari datasets, without a network connection.

Minari's own fields hold observations, actions, rewards, ends, spaces, the environment's spec, the start (in the
episode's reset options) and the numbers in `info`. All other data is in the dataset's metadata under `scopil`.
"""

import math
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import batch_space

from scopil.data.dataset import Demonstrations, Episode
from scopil.data.hdf5 import import_h5py, refuse_absurd
from scopil.data.storage import numbers_in, space_from_json, space_to_json
from scopil.envs.spaces import Spaces
from scopil.errors import DatasetError, EnvError, ScopilError, refused_as
from scopil.files import parse_json

_OURS = "scopil"
_ROOT = "MINARI_DATASETS_PATH"
_LARGEST = 2**24  # most numbers in one observation or action
_PROVENANCE = ("description", "algorithm_name", "author", "author_email", "code_permalink")  # metadata fields of Minari


def to_minari(demos: Demonstrations, dataset_id: str, *, overwrite: bool = False) -> Path:
    """Write the local dataset `dataset_id`, (namespace/)name-v0, and return its folder. Raises `DatasetError`.

    The dataset is written to a hidden folder beside the target and renamed when it is complete.
    """
    minari = _minari()
    try:
        namespace, _, _ = minari.dataset.minari_dataset.parse_dataset_id(dataset_id)
    except (ValueError, TypeError) as error:
        raise DatasetError(f"Minari refuses the id {dataset_id!r}; want (namespace/)name-v0.") from error
    root = minari.storage.get_dataset_path()
    target = root / dataset_id
    if target.exists() and not overwrite:
        raise DatasetError(f"Minari dataset {dataset_id} exists in {root}; take another version, or overwrite it.")
    try:
        with tempfile.TemporaryDirectory(dir=root, prefix=".scopil-") as staging:
            with _root(staging):
                _create(minari, demos, dataset_id)
            if namespace is not None and namespace not in minari.namespace.list_local_namespaces():
                minari.namespace.create_namespace(namespace)
            _swap(Path(staging, dataset_id), target, aside=Path(staging, "old"))
    except OSError as error:
        raise DatasetError(f"cannot write Minari dataset {dataset_id} in {root}: {error}.") from error
    return target


def from_minari(dataset_id: str) -> Demonstrations:
    """Read a local dataset. Action spaces are Box, Discrete, or joint choices, which become single numbers. Dict and
    Tuple observations become flat rows. Raises `DatasetError`."""
    minari = _minari()
    root = minari.storage.get_dataset_path()
    if not (root / dataset_id / "data").is_dir():
        local = sorted(p.parent.relative_to(root).as_posix() for p in root.glob("**/[!.]*/data") if p.is_dir())
        raise DatasetError(f"no Minari dataset {dataset_id!r} in {root}. There: {', '.join(local) or 'none'}.")
    with refused_as(DatasetError, f"Minari dataset {dataset_id}"):
        _refuse_absurd(root / dataset_id / "data")
        return from_dataset(minari.load_dataset(dataset_id))


def from_dataset(dataset: Any) -> Demonstrations:
    """Demonstrations from a `minari.MinariDataset`, or from a part of one (`filter_episodes`, `split_dataset`)."""
    dataset_id, seen = dataset.id, dataset.observation_space
    space_to_json(seen)  # raises if the space cannot be stored
    try:
        spaces = Spaces(f"Minari dataset {dataset_id}", seen, dataset.action_space)
    except EnvError as error:
        raise DatasetError(str(error)) from error
    metadata, spec = dataset.storage.metadata, dataset.spec.env_spec
    ours = metadata.get(_OURS, {})
    about = {k: sorted(v) if isinstance(v, set) else v for k, v in metadata.items() if k in _PROVENANCE}
    named = space_from_json(ours["flattened_from"]) if "flattened_from" in ours else spaces.flattened_from
    options = [m.get("options") for m in dataset.storage.get_episode_metadata(dataset.episode_indices)]
    starts = [o.get("start") if isinstance(o, dict) else None for o in options]
    known_starts = all(start is not None for start in starts)

    def episode(e: Any, start: Any) -> Episode:
        flat, states = spaces.flattened_from is not None, len(e.rewards) + 1
        return Episode(
            observations=spaces.rows(e.observations, batch_space(seen, states), states) if flat else e.observations,
            actions=spaces.to_learner(e.actions),
            rewards=e.rewards if ours.get("rewards", True) else None,
            terminated=bool(np.any(e.terminations)),
            truncated=bool(np.any(e.truncations)),
            start=np.asarray(start) if known_starts else None,
            info=_info(e) if ours else {},
        )

    return Demonstrations(
        episodes=tuple(episode(e, start) for e, start in zip(dataset.iterate_episodes(), starts)),
        observation_space=spaces.stored,  # pyright: ignore[reportArgumentType]
        action_space=spaces.action,  # pyright: ignore[reportArgumentType]
        flattened_from=named,
        name=ours.get("name", dataset_id),
        env_id=ours.get("env_id", None if spec is None else spec.id),
        about=ours.get("about", {"source": f"minari:{dataset_id}"} | about),
    )


def _refuse_absurd(data: Path) -> None:
    """Raise if the file declares far more data than it holds, before Minari allocates memory for it, or if the file
    links to other files."""
    metadata = parse_json((data / "metadata.json").read_bytes())
    held = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    if not 0 < metadata["total_episodes"] <= held:
        raise ValueError(f"{metadata['total_episodes']} episodes in {held:,} bytes")
    for space in (metadata["observation_space"], metadata["action_space"]):
        shape = (parse_json(space) if isinstance(space, str) else space).get("shape") or ()
        if math.prod(shape) > _LARGEST:
            raise ValueError(f"a space of shape {shape}")
    file = data / "main_data.hdf5"
    if file.exists():
        with import_h5py().File(file, "r") as opened:
            refuse_absurd(opened, held)


def _create(minari: Any, demos: Demonstrations, dataset_id: str) -> None:
    infos = [name for name in numbers_in(demos.episodes) if name]  # HDF5 allows no empty names
    buffers = [_buffer(minari, e, infos) for e in demos]
    registered = demos.env_id in gym.registry
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about missing authors and e-mails
        dataset = minari.create_dataset_from_buffers(
            dataset_id,
            buffers,
            env=gym.spec(demos.env_id) if registered else None,  # type: ignore[arg-type]
            observation_space=demos.observation_space,
            action_space=demos.action_space,
            description=f"{demos.name}: {len(demos)} demonstrated episodes, {demos.pairs} pairs.",
            data_format="hdf5",
            jpeg_encoding=False,  # JPEG would change the observations
        )
    rewarded = demos.episodes[0].rewards is not None
    ours = {"name": demos.name, "env_id": demos.env_id, "about": demos.about, "rewards": rewarded}
    if demos.flattened_from is not None:
        ours["flattened_from"] = space_to_json(demos.flattened_from)
    dataset.storage.update_metadata({_OURS: ours})


def _swap(new: Path, target: Path, aside: Path) -> None:
    """Replace a folder by two renames. If the second fails, the old folder is restored."""
    if not target.exists():
        new.rename(target)
        return
    target.rename(aside)
    try:
        new.rename(target)
    except OSError:
        aside.rename(target)
        raise


def _buffer(minari: Any, episode: Episode, infos: list[str]) -> Any:
    """An episode for Minari. Missing rewards become NaN, since Minari has no missing values and 0 is a valid reward."""
    last = np.arange(len(episode)) == len(episode) - 1
    rewards = np.full(len(episode), np.nan) if episode.rewards is None else episode.rewards.astype(np.float64)
    return minari.data_collector.EpisodeBuffer(
        options=None if episode.start is None else {"start": episode.start},
        observations=episode.observations,
        actions=episode.actions,
        rewards=rewards,
        terminations=last & episode.terminated,
        truncations=last & episode.truncated,
        infos={_key(name): episode.info[name] for name in infos} or None,
    )


def _key(name: str) -> str:
    """A name escaped for HDF5, where "/" and "." have a meaning. `_info` reverses the escaping."""
    return "%2E" if name == "." else quote(name, safe=" ")


def _info(episode: Any) -> dict[str, np.ndarray]:
    """The entries of `info` that have one number per visited state."""
    found = {unquote(name): np.asarray(values) for name, values in (episode.infos or {}).items()}
    states = (len(episode.rewards) + 1,)
    return {k: values for k, values in found.items() if values.shape == states and values.dtype.kind in "biuf"}


@contextmanager
def _root(path: str) -> Iterator[None]:
    """Set Minari's root folder. Minari reads it from an environment variable only."""
    before = os.environ.get(_ROOT)
    os.environ[_ROOT] = path
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ROOT]
        else:
            os.environ[_ROOT] = before


def _minari() -> Any:
    try:
        for part in ("data_collector", "dataset.minari_dataset", "namespace", "storage"):
            import_module(f"minari.{part}")
        import_module("h5py")
        return import_module("minari")
    except ImportError as error:
        raise ScopilError(f'Minari datasets need another package ({error}): pip install "scopil[data]".') from error
