"""Episodes from CSV tables: a `.csv` file, or a folder of them.

The header names the columns. Actions are `action` or `action_…`, rewards are `reward`; `terminated`, `truncated` and
`done` are flags. Observations are `obs…` or, without such columns, all others except `step`, `t` and `time`. A row
without an action is the state in which an episode ended, and its flags say how the episode ended. A file of a folder
is one episode unless it has a column `episode`. In a single file, flags separate episodes as well.
"""

import csv
import re
from pathlib import Path

import numpy as np

from scopil.data.arrays import ONLY_DONES, RawEpisode, from_raw_episodes
from scopil.data.dataset import Demonstrations
from scopil.errors import DatasetError

CLOCKS = {"step", "t", "time"}
EPISODE = ("episode", "episode_id", "episode_index")  # names or numbers a row's episode
FLAGS = {"terminated", "truncated", "done"}
SINGLE = {"reward": "rewards", "terminated": "terminals", "truncated": "timeouts", "done": "terminals"}
UNSET = {"", "0", "0.0", "false"}

Cells = dict[str, tuple[str, ...]]  # column → one cell per row


def from_tables(path: Path) -> Demonstrations:
    """Read the demonstrations in a `.csv` file or folder. Raises `DatasetError`, with file and row."""
    files = [path] if path.is_file() else sorted(path.glob("*.csv"), key=lambda file: natural(file.stem))
    if not files:
        raise DatasetError(f"{path} holds no .csv files; want one or more, each with a header.")
    tables = [_read(file) for file in files]
    seen, acted, unused = _columns(tables[0][0], files[0])
    for file, (header, _) in zip(files, tables):
        if set(header) != set(tables[0][0]):
            odd = sorted(set(header) ^ set(tables[0][0]))
            raise DatasetError(f"{file}: other columns than {files[0].name} ({', '.join(odd)}); want the same in all.")
    assumed = [f"observations are the columns {', '.join(seen)}"]
    if unused:
        assumed.append(f"not used: {', '.join(unused)}")
    if "done" in tables[0][0] and not {"terminated", "truncated"} & set(tables[0][0]):
        assumed.append(ONLY_DONES)
    episodes = []
    for file, (header, rows) in zip(files, tables):
        cells = dict(zip(header, zip(*rows)))
        episodes += [_episode(cells, a, b, seen, acted, file) for a, b in _bounds(cells, acted, file, path.is_file())]
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
    rest = [c for c in header if c not in actions and c not in SINGLE and c not in EPISODE]
    observations = [c for c in rest if c.startswith("obs")] or [c for c in rest if c not in CLOCKS]
    if not actions or not observations:
        raise DatasetError(f"{file}: columns {', '.join(header)}; want action or action_…, and obs_… or others.")
    return observations, actions, [c for c in rest if c not in observations]


def _bounds(cells: Cells, acted: list[str], file: Path, by_flags: bool) -> list[tuple[int, int]]:
    """The first row of each episode, and the row after its last."""
    rows = len(cells[acted[0]])
    if (column := next((c for c in EPISODE if c in cells), None)) is not None:
        names = [cell.strip() for cell in cells[column]]
        firsts = [i for i in range(rows) if i == 0 or names[i] != names[i - 1]]
        if again := [i for n, i in enumerate(firsts) if names[i] in {names[k] for k in firsts[:n]}]:
            found = f"{column} {names[again[0]]} goes on after another episode"
            raise DatasetError(f"{file}, row {again[0] + 1}: {found}; want all rows of an episode together.")
    else:
        flags = FLAGS & cells.keys() if by_flags else set()
        over = [any(cells[c][i].strip().lower() not in UNSET for c in flags) for i in range(rows)]
        last = [not any(cells[c][i].strip() for c in acted) for i in range(rows)]  # rows without an action
        ended = [over[i] or (last[i] and i > 0 and over[i - 1]) for i in range(rows)]
        firsts = [0, *(i for i in range(1, rows) if ended[i - 1] and not last[i])]
    return list(zip(firsts, [*firsts[1:], rows]))


def _episode(cells: Cells, first: int, end: int, seen: list[str], acted: list[str], file: Path) -> RawEpisode:
    """The episode in the rows from `first` to `end`."""
    steps = end if any(cells[c][end - 1].strip() for c in acted) else end - 1  # else: the state after the last action
    if steps == first:
        raise DatasetError(f"{file}, row {end}: an episode with no actions; want at least one row with an action.")

    def numbers(column: str, to: int) -> np.ndarray:
        return _numbers(cells[column][first:to], column, file, first)

    raw: RawEpisode = {
        "observations": np.stack([numbers(c, end) for c in seen], axis=1),
        "actions": np.stack([numbers(c, steps) for c in acted], axis=1),
    }
    for column in (c for c in SINGLE if c in cells and (c != "done" or "terminated" not in cells)):
        values = raw[SINGLE[column]] = numbers(column, steps)
        if column in FLAGS and any(cell.strip() for cell in cells[column][steps:end]):
            values[-1] = values[-1] or numbers(column, end)[-1]
    return raw


def _numbers(cells: tuple[str, ...], column: str, file: Path, first: int = 0) -> np.ndarray:
    """The cells as numbers; `first` is the number of rows before them."""
    numbers = []
    for i, cell in enumerate(cells, start=first + 1):
        try:
            numbers.append(float({"true": "1", "false": "0"}.get(cell.strip().lower(), cell)))
        except ValueError:
            found = repr(cell.strip()) if cell.strip() else "nothing"
            raise DatasetError(f"{file}, row {i}: {found} in column {column!r}; want a number.") from None
    return np.array(numbers)


def natural(name: str) -> list[tuple[bool, int, str]]:
    """A sort key: episode_2 comes before episode_10."""
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", name)]
