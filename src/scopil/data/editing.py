"""Changes to a file of demonstrations that others may be changing too: each reads the newest file, under a lock."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from scopil.data import storage
from scopil.data.dataset import Demonstrations, Episode
from scopil.errors import DatasetError
from scopil.files import Locked, lock

WAIT = 10.0  # seconds for another writer, who holds the lock while the file is written
LONGEST_NOTE = 500  # characters


@contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """Nobody else who asks here changes the file meanwhile."""
    try:
        held = lock(path.with_name(f".{path.name}.lock"), WAIT)
    except Locked as error:
        raise DatasetError(f"{path} is being written by another process; try again.") from error
    except OSError as error:
        raise DatasetError(f"cannot write {path}: {error.strerror or error}.") from error
    with held:
        yield


def mark_of(episode: Episode) -> str:
    """A name for an episode that stays the same when others are dropped: a digest of what was seen and done."""
    digest = hashlib.sha256(episode.observations.tobytes())
    digest.update(episode.actions.tobytes())
    return digest.hexdigest()[:16]


def drop(path: Path, mark: str) -> Demonstrations | None:
    """The file without an episode. None when it was the last one, and the file is gone."""
    with sole_writer(path):
        demos, index = _find(path, mark)
        if len(demos) == 1:
            path.unlink()
            return None
        about = dict(demos.about)
        recorded = list(about.get("recorded", []))
        at = index - (len(demos) - len(recorded))  # recorded episodes come after those that were there before
        if at >= 0:
            del recorded[at]
            about["recorded"] = recorded
        about["notes"] = {m: note for m, note in notes_of(demos).items() if m != mark}
        left = tuple(e for i, e in enumerate(demos.episodes) if i != index)
        return _written(replace(demos, episodes=left, about=about), path)


def annotate(path: Path, mark: str, note: str) -> Demonstrations:
    """The file with a note on an episode; an empty one removes it."""
    if len(note) > LONGEST_NOTE:
        raise DatasetError(f"a note of {len(note)} characters; want at most {LONGEST_NOTE}.")
    with sole_writer(path):
        demos, _ = _find(path, mark)
        notes = {m: text for m, text in (notes_of(demos) | {mark: note}).items() if text}
        return _written(replace(demos, about=demos.about | {"notes": notes}), path)


def notes_of(demos: Demonstrations) -> dict[str, Any]:
    notes = demos.about.get("notes")
    return notes if isinstance(notes, dict) else {}


def _find(path: Path, mark: str) -> tuple[Demonstrations, int]:
    demos = storage.read(path)
    for index, episode in enumerate(demos):
        if mark_of(episode) == mark:
            return demos, index
    raise DatasetError(f"{path} has no episode {mark}; it may have been dropped already.")


def _written(demos: Demonstrations, path: Path) -> Demonstrations:
    storage.write(demos, path)
    return demos
