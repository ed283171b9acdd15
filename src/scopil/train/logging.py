"""Logs of metrics: JSON lines, TensorBoard if it is installed, and Weights & Biases on request."""

import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from scopil.errors import CheckpointError, ConfigError
from scopil.files import parse_json, write_atomically

LAST_ROW = 4_096  # bytes; larger than the longest row


class JsonLines:
    """A file with one JSON object per line. Readers ignore an incomplete last line, which a killed process leaves."""

    def __init__(self, path: Path):
        self.path = path

    def append(self, row: dict[str, Any]) -> None:
        clean = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        whole = self.path.stat().st_size if self.path.exists() else 0
        try:
            with self.path.open("ab") as file:
                file.write(json.dumps(clean).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())  # rows must reach the disk before the next checkpoint does
        except OSError as error:
            with suppress(OSError):
                os.truncate(self.path, whole)  # remove a partial line: the next row must begin a new line
            raise CheckpointError(f"cannot write {self.path}: {error.strerror}.") from error

    def rows(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        rows, lines = [], self.path.read_bytes().splitlines()
        for number, line in enumerate(lines, start=1):
            try:
                rows.append(parse_row(line))
            except ValueError as error:
                if number == len(lines):
                    break  # incomplete: the writer was killed
                raise CheckpointError(
                    f"{self.path}, line {number}: {error}; want a row of numbers. Correct or remove the line."
                ) from error
        return rows

    def tail(self, offset: int, most: int = 1 << 20) -> tuple[list[dict[str, Any]], int]:
        """The complete rows in the `most` bytes after `offset`, and the offset after the last row. A file shorter than
        `offset` is read from its start: a resumed run may have shortened it."""
        try:
            with self.path.open("rb") as file:
                if not 0 <= offset <= file.seek(0, os.SEEK_END):
                    offset = 0
                file.seek(offset)
                data = file.read(most)
        except FileNotFoundError:
            return [], 0
        whole = data[: data.rfind(b"\n") + 1]
        rows = []
        for line in whole.splitlines():
            with suppress(ValueError):
                rows.append(parse_row(line))
        return rows, offset + len(whole)

    def last(self) -> dict[str, Any]:
        """The last complete row; empty if there is none. Only the end of the file is read."""
        size = self.path.stat().st_size if self.path.exists() else 0
        rows, _ = self.tail(max(0, size - LAST_ROW))
        return rows[-1] if rows else {}

    def keep(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Keep only the `wanted` rows: a resumed run writes the others again."""
        rows = [row for row in self.rows() if wanted(row)]
        write_atomically(self.path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def parse_row(line: bytes) -> dict[str, Any]:
    """One row: `env_steps` and numbers by name; None replaces a non-finite number. Raises ValueError for other data."""
    row = parse_json(line)
    if not isinstance(row, dict) or type(row.get("env_steps")) is not int or row["env_steps"] < 0:
        raise ValueError("no row with env_steps")
    for name, value in row.items():
        if value is not None and (not isinstance(value, int | float) or not abs(value) <= sys.float_info.max):
            raise ValueError(f"{name} is {str(value)[:40]!r}")
    return row


@contextmanager
def tensorboard(folder: Path, from_step: int) -> Iterator[Callable[[int, dict[str, Any]], None]]:
    """A writer of scalars; it does nothing if tensorboardX (extra `tensorboard`) is not installed."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        yield lambda step, row: None
        return
    # TensorBoard hides old points from `purge_step` on, because a resumed run writes them again.
    try:
        writer = SummaryWriter(str(folder / "tensorboard"), purge_step=from_step + 1)
    except OSError as error:  # its queue needs semaphores in /dev/shm, which some containers lack
        warnings.warn(f"no log for TensorBoard: {error.strerror}. All other logs are written.", stacklevel=3)
        yield lambda step, row: None
        return

    def write(step: int, row: dict[str, Any]) -> None:
        for name, value in row.items():
            if isinstance(value, float) and math.isfinite(value):
                writer.add_scalar(name, value, step)

    try:
        yield write
    finally:
        writer.close()


class WandbCallback:
    """A callback for `Agent.learn` and `Run.train` that logs every row to Weights & Biases (extra `wandb`).

    Args:
        project: the project that lists the run.
        name: name and id of the run; the same name continues the same run.
        config: settings to show with the curves.
    """

    def __init__(self, project: str, name: str | None = None, config: Mapping[str, Any] | None = None):
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ConfigError('Weights & Biases needs its package: pip install "scopil[wandb]"') from error
        known = None if name is None else re.sub(r"[^A-Za-z0-9_.-]+", "-", name)
        self._run = wandb.init(project=project, name=name, id=known, resume="allow", config=dict(config or {}))

    def __call__(self, status: Any) -> None:
        numbers = {k: v for k, v in status.metrics.items() if isinstance(v, float) and math.isfinite(v)}
        self._run.log(numbers, step=status.env_steps)

    def close(self) -> None:
        self._run.finish()
