"""Episodes from CSV tables: a folder of `.csv` files with one episode each, or a single file.

The header names the columns. Actions are `action` or `action_…`, rewards are `reward`, and `terminated` and `truncated`
are flags. Observations are `obs…` or, without such columns, all others except `step`, `t` and `time`. If the last row
has no action, it is the state in which the episode ended, and its flags say how the episode ended.
"""

import csv
import re
from pathlib import Path

import numpy as np

from scopil.data.arrays import RawEpisode, from_raw_episodes
from scopil.data.dataset import Demonstrations
from scopil.errors import DatasetError

CLOCKS = {"step", "t", "time"}
FLAGS = {"terminated", "truncated"}
SINGLE = {"reward": "rewards", "terminated": "terminals", "truncated": "timeouts"}


def from_tables(path: Path) -> Demonstrations:
    """Read the demonstrations in a `.csv` file or folder. Raises `DatasetError`, with file and row."""
    files = [path] if path.is_file() else sorted(path.glob("*.csv"), key=_natural)
    if not files:
        raise DatasetError(f"{path} holds no .csv files; want one per episode, with a header.")
    tables = [_read(file) for file in files]
    seen, acted, unused = _columns(tables[0][0], files[0])
    for file, (header, _) in zip(files, tables):
        if set(header) != set(tables[0][0]):
            odd = sorted(set(header) ^ set(tables[0][0]))
            raise DatasetError(f"{file}: other columns than {files[0].name} ({', '.join(odd)}); want the same in all.")
    assumed = [f"observations are the columns {', '.join(seen)}"]
    if unused:
        assumed.append(f"not used: {', '.join(unused)}")
    cells = [dict(zip(header, zip(*rows))) for header, rows in tables]
    episodes = [_episode(one, seen, acted, file) for one, file in zip(cells, files)]
    actions = np.concatenate([e["actions"] for e in episodes])
    if actions.shape[1] == 1 and np.all((actions == np.floor(actions)) & (actions >= 0)):
        assumed.append("actions are whole numbers: read as discrete actions")
        episodes = [e | {"actions": e["actions"].astype(np.int64)[:, 0]} for e in episodes]
    return from_raw_episodes(episodes, path.stem, path.name, assumed)


def _read(file: Path) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of one file."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as text:
            lines = [line for line in csv.reader(text) if any(cell.strip() for cell in line)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"cannot read {file}: {error}.") from error
    if len(lines) < 2:
        raise DatasetError(f"{file}: {len(lines)} lines; want a header and at least one row.")
    header = [cell.strip() for cell in lines[0]]
    if len(set(header)) != len(header) or "" in header:
        raise DatasetError(f"{file}: header {header}; want a different name for every column.")
    for i, line in enumerate(lines[1:], start=1):
        if len(line) != len(header):
            raise DatasetError(f"{file}, row {i}: {len(line)} cells for {len(header)} columns.")
    return header, lines[1:]


def _columns(header: list[str], file: Path) -> tuple[list[str], list[str], list[str]]:
    """The observation columns, the action columns, and the unused columns."""
    actions = [c for c in header if re.fullmatch(r"action([_\d\[].*)?", c)]
    rest = [c for c in header if c not in actions and c not in SINGLE]
    observations = [c for c in rest if c.startswith("obs")] or [c for c in rest if c not in CLOCKS]
    if not actions or not observations:
        raise DatasetError(f"{file}: columns {', '.join(header)}; want action or action_…, and obs_… or others.")
    return observations, actions, [c for c in rest if c not in observations]


def _episode(cells: dict[str, tuple[str, ...]], seen: list[str], acted: list[str], file: Path) -> RawEpisode:
    steps = len(cells[acted[0]])
    if not any(cells[c][-1].strip() for c in acted):
        steps -= 1  # the last row is the state in which the episode ended
    if steps == 0:
        raise DatasetError(f"{file}: no actions; want at least one row with an action.")
    raw: RawEpisode = {
        "observations": np.stack([_numbers(cells[c], c, file) for c in seen], axis=1),
        "actions": np.stack([_numbers(cells[c][:steps], c, file) for c in acted], axis=1),
    }
    for column in (c for c in SINGLE if c in cells):
        raw[SINGLE[column]] = _numbers(cells[column][:steps], column, file)
        if column in FLAGS and any(cell.strip() for cell in cells[column][steps:]):
            flags = raw[SINGLE[column]]
            flags[-1] = flags[-1] or _numbers(cells[column], column, file)[-1]
    return raw


def _numbers(cells: tuple[str, ...], column: str, file: Path) -> np.ndarray:
    numbers = []
    for i, cell in enumerate(cells, start=1):
        try:
            numbers.append(float({"true": "1", "false": "0"}.get(cell.strip().lower(), cell)))
        except ValueError:
            found = repr(cell.strip()) if cell.strip() else "nothing"
            raise DatasetError(f"{file}, row {i}: {found} in column {column!r}; want a number.") from None
    return np.array(numbers)


def _natural(file: Path) -> list[tuple[bool, int, str]]:
    """A sort key: episode_2 comes before episode_10."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", file.stem)]
