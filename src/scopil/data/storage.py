"""Demonstrations on disk, and the formats that `load_demos` reads.

scopil's own format is a `.npz` file that NumPy reads without pickle. The comment of the archive is a seal: a SHA-256 of
all bytes before it, which detects any damage. Arrays: `observations`, `actions`, `rewards` (episodes joined end to
end), `lengths` (actions per episode), `terminated`, `truncated`, `starts`, `info/NAME` (a number of `info` for every
visited state, if all episodes have it), and `header`, a JSON text with names, spaces and provenance.
"""

import io
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from scopil.data.arrays import KNOWN, from_arrays, from_mapping, split_rows, to_episode
from scopil.data.csv_tables import from_tables
from scopil.data.dataset import Demonstrations, Episode
from scopil.data.lerobot import is_lerobot
from scopil.errors import DatasetError, refused_as
from scopil.files import SEAL_BYTES, parse_json, read_npz, seal, unpacks_to_far_more, unsealed, write_atomically

FORMAT = "scopil-demonstrations"
VERSION = 1
INFO = "info/"
UNSEALED = "no checksum: damage may go unnoticed; scopil demos import makes a sealed file"
LIBRARY = Path(__file__).parent / "library"


# --- formats ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Format:
    """One way of storing demonstrations. Another package adds a format by publishing a value of this class under the
    entry-point group `scopil.demo_formats`."""

    name: str
    matches: Callable[[str], bool]  # (source) → whether the source has this format
    read: Callable[[str], Demonstrations]
    about: Callable[[str], str]  # (source) → one line for `scopil demos check`, called after `read`


@cache
def installed() -> tuple[Format, ...]:
    """Formats of other packages."""
    found = tuple(point.load() for point in entry_points(group="scopil.demo_formats"))
    if not all(isinstance(one, Format) for one in found):
        raise DatasetError(f"entry points of scopil.demo_formats: {found}; want values of scopil.data.storage.Format.")
    return found


def load_demos(source: Any, env: Any = None) -> Demonstrations:
    """Load demonstrations.

    Args:
        source: a shipped set (`"marble-maze/simple-v1"`), a `.npz` file, a `.csv` file or a folder of them, a `.hdf5`
            file of robomimic or D4RL, a LeRobot dataset, a Minari dataset (`"minari:ID"`, or the object), arrays (a
            dict, or a pair of observations and actions), a list of trajectories with `obs` and `acts`, or
            `Demonstrations`, which are returned as they are. See docs/demonstrations.md.
        env: an id or an environment. Its spaces are used for arrays, which have none of their own.

    Raises:
        DatasetError: the source is missing, damaged, not supported, or does not fit `env`.
    """
    named, demos = isinstance(source, str | Path), source
    if not isinstance(source, Demonstrations):
        with refused_as(DatasetError, source if named else f"demonstrations of type {type(source).__name__}"):
            demos = format_of(str(source)).read(str(source)) if named else _from_memory(source)
    if env is None:
        return demos
    from scopil.data.fit_to_env import fit_to_env  # imports JAX

    return fit_to_env(demos, env)


def _from_memory(source: Any) -> Demonstrations:
    if not hasattr(source, "iterate_episodes"):
        return from_arrays(source)
    from scopil.data.minari import from_dataset  # the caller has imported Minari

    return from_dataset(source)


def format_of(source: str) -> Format:
    """The first format that matches. Formats of other packages are tried first."""
    if not source:
        raise DatasetError("demonstrations ''; want a file, a folder or a shipped set.")
    for ending, advice in _REFUSED.items():
        if source.lower().endswith(ending) and not any(one.matches(source) for one in installed()):
            raise DatasetError(f"{source}: {advice}")
    for one in (*installed(), *_OURS):
        if one.matches(source):
            return one
    shipped = ", ".join(library()) or "none"
    raise DatasetError(f"no demonstrations {source!r}: no such file, folder or shipped set. Shipped: {shipped}.")


def library() -> dict[str, Path]:
    """The files of the shipped sets by name, for example `marble-maze/simple-v1`."""
    return {f"{p.parent.name}/{p.stem}": p for p in sorted(LIBRARY.glob("*/*.npz"))}


_ARRAYS = "np.savez('mine.npz', observations=…, actions=…)"
_OBJECTS = (
    "it holds object arrays, which are never unpickled; join the episodes end to end and give the number of "
    "actions of each: np.savez('mine.npz', observations=np.concatenate(…), actions=np.concatenate(…), lengths=[…])."
)
_PICKLE = f"a pickle runs code when it is opened and is never read; open it yourself and save its arrays: {_ARRAYS}."
# Common kinds of files that are not read, and what to do instead.
_REFUSED = {
    ".npy": f"a .npy file holds one array without a name; save observations and actions together: {_ARRAYS}.",
    **dict.fromkeys((".pkl", ".pickle", ".joblib", ".pt", ".pth"), _PICKLE),
    ".py": "a Python file, not demonstrations; scopil demos record --policy FILE.py:NAME records an expert.",
    **dict.fromkeys((".safetensors", ".ckpt", ".onnx"), "a policy, not demonstrations; scopil.record plays a policy."),
    ".json": f"a .json file is not read; save its numbers as arrays: {_ARRAYS}, or as .csv tables.",
}


def _read_minari(source: str) -> Demonstrations:
    from scopil.data.minari import from_minari  # imports an optional dependency

    return from_minari(source.removeprefix("minari:"))


def _read_hdf5(source: str) -> Demonstrations:
    from scopil.data.hdf5 import from_hdf5

    return from_hdf5(Path(source))


def _read_lerobot(source: str) -> Demonstrations:
    from scopil.data.lerobot import from_lerobot

    return from_lerobot(Path(source))


def _about_npz(source: str) -> str:
    """Checks only whether the file has a seal: `read` has already verified it."""
    with library().get(source, Path(source)).open("rb") as file:
        file.seek(-SEAL_BYTES, io.SEEK_END)
        sealed = file.read().startswith(seal()[:-64])
    return f"{FORMAT} version {VERSION}, checksum matches" if sealed else f"plain .npz, {UNSEALED}"


_OURS = (
    Format(
        name="minari",
        matches=lambda source: source.startswith("minari:"),
        read=_read_minari,
        about=lambda source: f"Minari dataset, {UNSEALED}",
    ),
    Format(
        name="hdf5",
        matches=lambda source: source.endswith((".h5", ".hdf5")) and Path(source).exists(),
        read=_read_hdf5,
        about=lambda source: f"HDF5, {UNSEALED}",
    ),
    Format(name="lerobot", matches=is_lerobot, read=_read_lerobot, about=lambda source: f"LeRobot dataset, {UNSEALED}"),
    Format(
        name="csv",
        matches=lambda source: Path(source).is_dir() or (source.endswith(".csv") and Path(source).exists()),
        read=lambda source: from_tables(Path(source)),
        about=lambda source: f"tables, {UNSEALED}",
    ),
    Format(
        name="npz",
        matches=lambda source: source in library() or Path(source).exists(),
        read=lambda source: read(library().get(source, Path(source))),
        about=_about_npz,
    ),
)


# --- writing ----------------------------------------------------------------------------------------------------------


def refuse_ending(path: str | Path) -> None:
    """Raise if a file of this name would be read as another format, or not at all."""
    others = (*_REFUSED, ".csv", ".h5", ".hdf5", ".parquet")
    if str(path).lower().endswith(others):
        raise DatasetError(f"{path}: demonstrations are written as .npz; want a name such as mine.npz.")


def write(demos: Demonstrations, path: str | Path) -> None:
    """Write a sealed file. An existing file is replaced only once the new one is complete."""
    refuse_ending(path)
    data = to_bytes(demos)
    try:
        write_atomically(Path(path), data)
    except OSError as error:
        raise DatasetError(f"cannot write {path}: {error.strerror}. No file was changed.") from error


def to_bytes(demos: Demonstrations) -> bytes:
    """The content of a file. The same set always gives the same bytes: the archive has no time stamps."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "name": demos.name,
        "env_id": demos.env_id,
        "observation_space": space_to_json(demos.observation_space),
        "action_space": space_to_json(demos.action_space),
        "about": demos.about,
    }
    if demos.flattened_from is not None:
        header["flattened_from"] = space_to_json(demos.flattened_from)
    text = np.array(json.dumps(header, sort_keys=True))
    return pack({"header": text} | episode_arrays(demos.episodes, numbers_in(demos.episodes)))


def episode_arrays(episodes: Sequence[Episode], info: Iterable[str]) -> dict[str, np.ndarray]:
    """Episodes joined end to end: one array per field, and one per entry of `Episode.info` that is named in `info`.

    Rewards are left out unless all episodes have them; starts likewise. `episodes_in` is the inverse."""
    arrays = {
        "observations": np.concatenate([e.observations for e in episodes]),
        "actions": np.concatenate([e.actions for e in episodes]),
        "lengths": np.array([len(e) for e in episodes], dtype=np.int64),
        "terminated": np.array([e.terminated for e in episodes]),
        "truncated": np.array([e.truncated for e in episodes]),
    }
    for name, values in (("rewards", [e.rewards for e in episodes]), ("starts", [e.start for e in episodes])):
        given = [value for value in values if value is not None]
        if len(given) == len(episodes):
            arrays[name] = np.concatenate(given) if name == "rewards" else np.stack(given)
    for name in info:
        arrays[INFO + name] = np.concatenate([e.info[name] for e in episodes])
    return arrays


def pack(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A sealed `.npz` archive of arrays by name; `unpack` reads it."""
    members = {}
    for name, array in arrays.items():
        entry = io.BytesIO()
        np.lib.format.write_array(entry, np.asarray(array, order="C"), allow_pickle=False)
        members[f"{name}.npy"] = entry.getvalue()
    packed = _archive(members, zipfile.ZIP_DEFLATED)
    if unpacks_to_far_more(sum(map(len, members.values())), len(packed)):
        packed = _archive(members, zipfile.ZIP_STORED)  # `unpack` refuses very high compression ratios
    body = packed[:-SEAL_BYTES]
    return body + seal(body)


def _archive(members: dict[str, bytes], packing: int) -> bytes:
    """A zip archive whose comment is a placeholder of the seal's length."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = packing
            info.create_system = 3  # the default depends on the operating system
            archive.writestr(info, data)
        archive.comment = seal()
    return buffer.getvalue()


def numbers_in(episodes: Sequence[Episode]) -> list[str]:
    """The entries of `info` that are one number for every visited state, in all episodes."""
    names = [
        {k for k, values in e.info.items() if values.shape == (len(e) + 1,) and values.dtype.kind in "biuf"}
        for e in episodes
    ]
    return sorted(set.intersection(*names))


# --- reading ----------------------------------------------------------------------------------------------------------


def read(path: str | Path) -> Demonstrations:
    """Read a sealed file, or a plain `.npz` with at least `observations` and `actions`. Arrays with unknown names
    are not opened."""
    path = Path(path)
    arrays, sealed = unpack(path, lambda name: name in KNOWN or name == "header" or name.startswith(INFO))
    if "header" not in arrays:
        return from_mapping(arrays, path.stem, path.name)
    if not sealed:
        raise DatasetError(f"{path}: the checksum at its end is missing: the file was truncated or rewritten.")
    return _from_sealed({name: array for name, array in arrays.items() if array is not None}, path)


def unpack(path: Path, wanted: Callable[[str], bool] = lambda name: True) -> tuple[dict[str, np.ndarray | None], bool]:
    """The arrays of a `.npz` by name, None for those that are not wanted; and whether the archive is sealed.

    Raises `DatasetError` if the file cannot be read, or does not match its seal."""
    try:
        data = path.read_bytes()
        sealed = unsealed(data) is not None
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise DatasetError(f"{path}: checksum does not match: the file was damaged or changed.") from error
    try:
        if not zipfile.is_zipfile(io.BytesIO(data)):  # NumPy's own error would advise unpickling the file
            raise ValueError("not a zip archive")
        return read_npz(data, wanted), sealed
    except Exception as error:  # NumPy and zipfile raise many exception types for damaged input
        sound = "Object arrays" in str(error)  # NumPy's message for a sound file that would have to be unpickled
        why = _OBJECTS if sound else f"not a readable .npz, probably truncated or damaged ({error})."
        raise DatasetError(f"{path}: {why}") from error


def _from_sealed(arrays: dict[str, np.ndarray], path: Path) -> Demonstrations:
    with refused_as(DatasetError, path):
        header = parse_json(str(arrays["header"]))
        form, version = header["format"], header["version"]
        if (form, version) != (FORMAT, VERSION):
            raise DatasetError(f"{path}: {form} version {version}; this scopil reads {FORMAT} version {VERSION}.")
        return Demonstrations(
            episodes=episodes_in(arrays, str(path)),
            observation_space=space_from_json(header["observation_space"]),
            action_space=space_from_json(header["action_space"]),
            name=header["name"],
            env_id=header["env_id"],
            about=header["about"],
            flattened_from=space_from_json(header["flattened_from"]) if "flattened_from" in header else None,
        )


def episodes_in(arrays: Mapping[str, np.ndarray], where: str) -> tuple[Episode, ...]:
    """The episodes that `episode_arrays` joined. Raises `DatasetError` if the arrays do not fit together."""
    lengths = arrays["lengths"]
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not np.all(lengths >= 0):
        raise DatasetError(f"{where}: lengths {lengths.dtype}{lengths.shape}; want one whole number ≥ 1 per episode.")
    episodes, pairs = len(lengths), int(lengths.sum())
    states = pairs + episodes
    found = arrays["observations"].shape
    if found[:1] != (states,):
        raise DatasetError(f"{where}: observations {found}; want {states} rows: {pairs} steps and {episodes} ends.")
    infos = {name.removeprefix(INFO): array for name, array in arrays.items() if name.startswith(INFO)}
    for name, array in infos.items():
        if array.shape[:1] != (states,) or array.dtype.kind not in "biuf":
            found = f"{INFO}{name} is {array.dtype}{array.shape}"
            raise DatasetError(f"{where}: {found}; want a number for each of {states} states.")
    raw = split_rows({k: v for k, v in arrays.items() if k in KNOWN}, lengths.astype(np.int64), where, [])
    found = []
    for i, (one, n, end) in enumerate(zip(raw, lengths, np.cumsum(lengths + 1))):
        info = {name: array[end - n - 1 : end] for name, array in infos.items()}
        found.append(replace(to_episode(one, f"{where}, episode {i}"), info=info))
    return tuple(found)


# --- spaces -----------------------------------------------------------------------------------------------------------


def space_to_json(space: gym.Space) -> dict[str, Any]:
    """A space as JSON values; bounds are stored as text, which is exact for every dtype."""
    if isinstance(space, gym.spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gym.spaces.Dict):
        return {"type": "Dict", "spaces": [[key, space_to_json(one)] for key, one in space.items()]}
    if isinstance(space, gym.spaces.Tuple):
        return {"type": "Tuple", "spaces": [space_to_json(one) for one in space.spaces]}
    if isinstance(space, gym.spaces.MultiBinary):
        return {"type": "MultiBinary", "n": int(space.n) if isinstance(space.n, int) else list(space.shape)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if not isinstance(space, gym.spaces.Box):
        raise DatasetError(f"observation space {space} cannot be stored in a file; flatten the observations first.")
    return {
        "type": "Box",
        "shape": list(space.shape),
        "dtype": str(space.dtype),
        "low": [str(x) for x in space.low.ravel().tolist()],
        "high": [str(x) for x in space.high.ravel().tolist()],
    }


def space_from_json(spec: dict[str, Any]) -> Any:
    """The inverse of `space_to_json`."""
    if spec["type"] == "Discrete":
        return gym.spaces.Discrete(spec["n"], start=spec["start"])
    if spec["type"] == "Dict":
        return gym.spaces.Dict([(str(key), space_from_json(one)) for key, one in spec["spaces"]])
    if spec["type"] == "Tuple":
        return gym.spaces.Tuple([space_from_json(one) for one in spec["spaces"]])
    if spec["type"] == "MultiBinary":
        return gym.spaces.MultiBinary(spec["n"])
    if spec["type"] == "MultiDiscrete":
        return gym.spaces.MultiDiscrete(np.array(spec["nvec"]), start=np.array(spec["start"]))
    shape, dtype = tuple(spec["shape"]), np.dtype(spec["dtype"])
    number = float if dtype.kind == "f" else int  # a float cannot represent every int64
    low, high = (np.array([number(x) for x in spec[k]], dtype).reshape(shape) for k in ("low", "high"))
    return gym.spaces.Box(low, high, shape, dtype.type)
