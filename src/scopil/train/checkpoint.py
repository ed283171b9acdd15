"""Checkpoints: whole training states on disk."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from scopil.errors import CheckpointError
from scopil.serialization import read_arrays, save_tree

KEEP = 2  # the newest, and the one before in case the newest is damaged


class Checkpoints:
    """A folder of checkpoints, named by environment step."""

    def __init__(self, folder: Path):
        self.folder = folder

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.ckpt"))

    def save(self, step: int, tree: Any, note: dict[str, Any]) -> Path:
        path = self.folder / f"{step:012d}.ckpt"
        save_tree(path, tree, note)
        for old in self.files()[:-KEEP]:
            old.unlink()
        return path

    def read_newest(self) -> tuple[Path, dict[str, np.ndarray], dict[str, Any]] | None:
        """The newest undamaged checkpoint: file, arrays by name, note; None if there are no checkpoints. Damaged files
        are skipped with a warning. Raises `CheckpointError` if all are damaged."""
        files = self.files()
        for path in reversed(files):
            try:
                return (path, *read_arrays(path))
            except CheckpointError as error:
                warnings.warn(f"{error} Falling back to the checkpoint before it.", stacklevel=3)
        if files:
            raise CheckpointError(f"{self.folder}: no checkpoint is whole; remove the run and train again.")
        return None
