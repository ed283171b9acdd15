"""Names that the page sends, as paths inside the studio's folder; and what lies there."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from scopil.errors import ConfigError

LONGEST_NAME = 300
DEEPEST = 6  # folders below the studio's folder that are looked into
ENDINGS = (".npz", ".safetensors", "run.json", "report.html")
MOST = 2000  # run folders, sets or reports that are listed


def inside(folder: Path, name: str) -> Path:
    """The file or folder `name`, written with slashes from `folder`. Refuses what would lie elsewhere: absolute names,
    `..`, hidden parts, and links that lead out."""
    parts = PurePosixPath(name).parts
    odd = not parts or len(name) > LONGEST_NAME or name.startswith("/") or "\\" in name
    if odd or not name.isprintable() or any(part.startswith(".") for part in parts):
        raise ConfigError(f"{name[:80]!r} is no name of a file or folder here; want one like runs/first.")
    path = folder.joinpath(*parts)
    return refuse_outside(folder, path)


def refuse_outside(folder: Path, *paths: Path) -> Path:
    """The first of the paths, when none of them leads out of the folder through a link."""
    home = folder.resolve()
    for path in paths:
        if not path.resolve().is_relative_to(home):
            raise ConfigError(
                f"{path.name!r} leads out of the studio's folder; put it there, or start the studio where it is."
            )
    return paths[0]


def name_of(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()


def holders(folder: Path, file: str) -> Iterator[Path]:
    """The folders, no links among them, that hold a file of this name."""
    return (path.parent for path in _files(folder) if path.name == file)


def sets(folder: Path) -> Iterator[Path]:
    """Files that may be demonstrations: `.npz`, outside run folders."""
    return (path for path in _files(folder) if path.suffix == ".npz" and not (path.parent / "run.json").exists())


def policies(folder: Path) -> Iterator[Path]:
    """Files made by `agent.save`, outside run folders."""
    wanted = (path for path in _files(folder) if path.suffix == ".safetensors")
    return (path for path in wanted if not (path.parent / "run.json").exists())


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
