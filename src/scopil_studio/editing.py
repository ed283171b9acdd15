"""Changes to a file of demonstrations that other processes may be changing too: each change locks the file, reads it,
and writes it again."""

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

WAIT = 10.0  # seconds to wait for the lock
LONGEST_NOTE = 500  # characters


@contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """Hold the file's lock, which every writer of demonstrations in this package takes. Raises `DatasetError`."""
    try:
        held = lock(path.with_name(f".{path.name}.lock"), WAIT)
    except Locked as error:
        raise DatasetError(f"{path} is being written by another process; try again.") from error
    except OSError as error:
        raise DatasetError(f"cannot write {path}: {error.strerror or error}.") from error
    with held:
        yield


def mark_of(episode: Episode) -> str:
    """A name for an episode that does not depend on its place: a digest of its observations and actions."""
    digest = hashlib.sha256(episode.observations.tobytes())
    digest.update(episode.actions.tobytes())
    return digest.hexdigest()[:16]


def drop(path: Path, mark: str) -> Demonstrations | None:
    """Remove an episode from the file. Returns the remaining set; None if it was the last one and the file is gone."""
    with sole_writer(path):
        demos, index = _find(path, mark)
        if len(demos) == 1:
            path.unlink()
            return None
        about = dict(demos.about)
        recorded = list(about.get("recorded", []))
        at = index - (len(demos) - len(recorded))  # recorded episodes come last
        if at >= 0:
            del recorded[at]
            about["recorded"] = recorded
        about["notes"] = {m: note for m, note in notes_of(demos).items() if m != mark}
        left = tuple(e for i, e in enumerate(demos.episodes) if i != index)
        storage.write(demos := replace(demos, episodes=left, about=about), path)
        return demos


def annotate(path: Path, mark: str, note: str) -> Demonstrations:
    """Set the note of an episode; an empty note removes it. Returns the set."""
    if len(note) > LONGEST_NOTE:
        raise DatasetError(f"a note of {len(note)} characters; want at most {LONGEST_NOTE}.")
    with sole_writer(path):
        demos, _ = _find(path, mark)
        notes = {m: text for m, text in (notes_of(demos) | {mark: note}).items() if text}
        storage.write(demos := replace(demos, about=demos.about | {"notes": notes}), path)
        return demos


def notes_of(demos: Demonstrations) -> dict[str, Any]:
    """Notes by the mark of their episode."""
    notes = demos.about.get("notes")
    return notes if isinstance(notes, dict) else {}


def _find(path: Path, mark: str) -> tuple[Demonstrations, int]:
    demos = storage.read(path)
    for index, episode in enumerate(demos):
        if mark_of(episode) == mark:
            return demos, index
    raise DatasetError(f"{path} has no episode {mark}; it may have been dropped already.")
