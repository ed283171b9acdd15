"""Convert names sent by the page to paths inside the studio's folder, and find files in this folder."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from scopil.errors import ConfigError

JOBS = ".studio"  # subfolder with the studio's own files: process id and printed output of each run
LONGEST_NAME = 300
DEEPEST = 6  # maximum depth of the search for files
ENDINGS = (".npz", ".safetensors", "run.json", "report.html")
MOST = 2000  # maximum number of files found


def inside(folder: Path, name: str) -> Path:
    """The path of `name`, which is relative to `folder` and written with slashes.

    Raises ConfigError for a path outside the folder (absolute, `..`, a link that leads out) and for hidden parts.
    """
    parts = PurePosixPath(name).parts
    odd = not parts or len(name) > LONGEST_NAME or name.startswith("/") or "\\" in name
    if odd or not name.isprintable() or any(part.startswith(".") for part in parts):
        raise ConfigError(f"{name[:80]!r} is not a valid name of a file or folder; want one like runs/first.")
    return refuse_outside(folder, folder.joinpath(*parts))


def refuse_outside(folder: Path, *paths: Path) -> Path:
    """The first of the paths. Raises ConfigError if a link leads any of them out of the folder."""
    home = folder.resolve()
    for path in paths:
        if not path.resolve().is_relative_to(home):
            raise ConfigError(f"{path.name!r} leads out of the studio's folder; want a file inside it.")
    return paths[0]


def name_of(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()


def folders_with(folder: Path, file: str) -> Iterator[Path]:
    """The folders, links excluded, that contain a file of this name."""
    return (path.parent for path in _files(folder) if path.name == file)


def outside_runs(folder: Path, ending: str) -> Iterator[Path]:
    """Files with this ending that lie in no run folder: demonstrations (`.npz`), saved policies (`.safetensors`)."""
    return (path for path in _files(folder) if path.suffix == ending and not (path.parent / "run.json").exists())


def _files(folder: Path) -> Iterator[Path]:
    found = 0
    for here, below, files in os.walk(folder, followlinks=False):
        depth = len(Path(here).relative_to(folder).parts)
        below[:] = [] if depth >= DEEPEST else sorted(b for b in below if not b.startswith(".") and b != "checkpoints")
        for file in sorted(files):
            path = Path(here, file)
            if not file.startswith(".") and file.endswith(ENDINGS) and not path.is_symlink():
                found += 1
                if found > MOST:
                    return
                yield path
