"""Demonstrations from datasets in LeRobot's format: a folder with `meta/info.json` and `data/**/*.parquet`, or one
`.parquet` file.

A row is a step: `episode_index`, `action`, the columns `observation.…`, and perhaps `next.reward` and `next.done`.
Videos and images are not read.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from scopil.data.arrays import from_mapping
from scopil.data.dataset import Demonstrations
from scopil.errors import DatasetError, ScopilError
from scopil.files import unpacks_to_far_more

_SEEN, _EPISODE = "observation.", "episode_index"
_OTHERS = {"action": "actions", "next.reward": "rewards", "next.done": "dones"}


def is_lerobot(source: str) -> bool:
    return (source.endswith(".parquet") and Path(source).is_file()) or Path(source, "meta", "info.json").is_file()


def from_lerobot(path: Path) -> Demonstrations:
    """Read the steps of all episodes. Raises `DatasetError`."""
    try:
        parquet, types = import_module("pyarrow.parquet"), import_module("pyarrow.types")
    except ImportError as error:
        raise ScopilError('LeRobot datasets need pyarrow: pip install "scopil[lerobot]".') from error
    files = [path] if path.is_file() else sorted(path.glob("data/**/*.parquet"))
    if not files:
        raise DatasetError(f"{path} holds no data/**/*.parquet; want a LeRobot dataset with its data.")
    tables = [_columns(parquet, types, file) for file in files]
    names = list(tables[0])
    for file, table in zip(files, tables):
        if odd := sorted(set(table) ^ set(names)):
            raise DatasetError(f"{file}: other columns than {files[0].name} ({', '.join(odd)}); want the same in all.")
    joined = {name: np.concatenate([table[name] for table in tables]) for name in names}
    number = joined[_EPISODE]
    seen = {name.removeprefix(_SEEN): joined[name] for name in names if name.startswith(_SEEN)}
    arrays: dict[str, Any] = {_OTHERS[name]: joined[name] for name in names if name in _OTHERS}
    arrays["observations"] = seen if len(seen) > 1 else next(iter(seen.values()))
    arrays["lengths"] = np.diff(np.flatnonzero(np.diff(number, prepend=number[0] - 1, append=number[-1] + 1)))
    return from_mapping(arrays, path.stem, path.name)


def _columns(parquet: Any, types: Any, file: Path) -> dict[str, np.ndarray]:
    """The wanted columns of one file, with one row per step."""
    opened = parquet.ParquetFile(file)
    claimed = sum(opened.metadata.row_group(i).total_byte_size for i in range(opened.metadata.num_row_groups))
    if unpacks_to_far_more(claimed, file.stat().st_size):
        raise ValueError(f"{file.stat().st_size:,} bytes claim to hold {claimed:,}")

    def numeric(kind: Any) -> bool:
        while types.is_list(kind) or types.is_fixed_size_list(kind) or types.is_large_list(kind):
            kind = kind.value_type
        return types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind)

    wanted = {
        field.name
        for field in opened.schema_arrow
        if field.name in {_EPISODE, *_OTHERS} or (field.name.startswith(_SEEN) and numeric(field.type))
    }
    if not {_EPISODE, "action"} <= wanted or not any(name.startswith(_SEEN) for name in wanted) or not claimed:
        found = ", ".join(opened.schema_arrow.names)
        raise DatasetError(f"{file}: columns {found}; want episode_index, action and observation.state, with rows.")
    table = opened.read(columns=sorted(wanted))
    return {name: np.asarray(table.column(name).to_pylist()) for name in table.column_names}
