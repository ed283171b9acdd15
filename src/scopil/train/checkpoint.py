"""A folder of numbered checkpoints: whole training states."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from scopil.errors import CheckpointError
from scopil.serialization import as_tree, read_arrays, save_tree

KEEP = 2  # the newest, and one to fall back to


class Checkpoints:
    """A folder of numbered checkpoints, newest last."""

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

    def newest(self) -> Path | None:
        """The newest checkpoint that is whole."""
        found = self._newest()
        return None if found is None else found[0]

    def load_newest(self, like: Any) -> Any:
        """The state in the newest checkpoint that is whole; None when there are no checkpoints. One that is whole
        but of another structure is an error: to train over it would be to lose it."""
        found = self._newest()
        return None if found is None else as_tree(found[1], like, found[0])

    def _newest(self) -> tuple[Path, dict[str, np.ndarray]] | None:
        """A damaged file is passed over with a warning."""
        files = self.files()
        for path in reversed(files):
            try:
                return path, read_arrays(path)[0]
            except CheckpointError as error:
                warnings.warn(f"{error} Falling back to the checkpoint before it.", stacklevel=3)
        if files:
            raise CheckpointError(f"{self.folder}: no checkpoint is whole; remove the run and begin it again.")
        return None
