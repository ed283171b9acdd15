"""Where metrics go: lines of JSON, TensorBoard when it is installed, and Weights & Biases where it is asked for."""

import json
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from scopil.errors import CheckpointError, ConfigError
from scopil.files import parse_json, write_atomically


class JsonLines:
    """A file of JSON objects that grows by lines. A line cut short by a kill is dropped when the file is read."""

    def __init__(self, path: Path):
        self.path = path

    def append(self, row: dict[str, Any]) -> None:
        clean = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        whole = self.path.stat().st_size if self.path.exists() else 0
        try:
            with self.path.open("ab") as file:
                file.write(json.dumps(clean).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())  # a checkpoint must never be ahead of the lines before it
        except OSError as error:
            with suppress(OSError):
                os.truncate(self.path, whole)  # half a line would spoil the next one
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
                    break  # cut short by a kill
                raise CheckpointError(
                    f"{self.path}, line {number}: {error}; want a row of numbers. Correct the line, or remove it."
                ) from error
        return rows

    def tail(self, offset: int, most: int = 1 << 20) -> tuple[list[dict[str, Any]], int]:
        """The whole lines after `offset` bytes, and the offset behind them; at most `most` bytes of them. A file that
        has become shorter, as that of a resumed run does, is read from its beginning."""
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
            try:
                rows.append(parse_row(line))
            except ValueError:
                continue
        return rows, offset + len(whole)

    def keep(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Forget what a resumed run is about to write again."""
        rows = [row for row in self.rows() if wanted(row)]
        write_atomically(self.path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def parse_row(line: bytes) -> dict[str, Any]:
    """One line: `env_steps`, and numbers by name, None where one was not finite. Anything else is a ValueError."""
    row = parse_json(line)
    if not isinstance(row, dict) or type(row.get("env_steps")) is not int or row["env_steps"] < 0:
        raise ValueError("no row that says its env_steps")
    for name, value in row.items():
        if value is not None and (not isinstance(value, int | float) or not abs(value) < math.inf):
            raise ValueError(f"{name} is {str(value)[:40]!r}")
    return row


@contextmanager
def tensorboard(folder: Path, from_step: int) -> Iterator[Callable[[int, dict[str, Any]], None]]:
    """A writer of scalars; does nothing when tensorboardX (extra `tensorboard`) is not installed."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        yield lambda step, row: None
        return
    # TensorBoard hides what an interrupted run wrote from `purge_step` on: it is about to come again.
    try:
        writer = SummaryWriter(str(folder / "tensorboard"), purge_step=from_step + 1)
    except OSError as error:  # its queue wants semaphores, which live in /dev/shm; some containers have none
        warnings.warn(f"no log for TensorBoard: {error.strerror}. Everything else is written.", stacklevel=3)
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
    """Logs every row of metrics to Weights & Biases (extra `wandb`): a callback of `agent.learn` and of `Run.train`.

    Args:
        project: where the run is listed.
        name: of the run there, and its id: called again with the same name it continues.
        config: shown beside its curves.
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
