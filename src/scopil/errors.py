"""Errors. A message says what was found, what was wanted, and what to do."""

from collections.abc import Iterator
from contextlib import contextmanager


class ScopilError(Exception):
    """Base class. The command line prints such an error as one line and exits with code 2."""


class ConfigError(ScopilError):
    """A setting is out of range, or two settings contradict each other. `setting` is the name of the wrong one, from
    which the command line derives the flag."""

    def __init__(self, message: str, setting: str | None = None):
        super().__init__(message)
        self.setting = setting


class EnvError(ScopilError):
    """An environment is unknown, cannot be trained on, or breaks the Gymnasium interface."""


class DatasetError(ScopilError):
    """Demonstrations are missing, damaged, or do not fit the environment."""


class CheckpointError(ScopilError):
    """A checkpoint or run folder is missing, damaged, or of another run."""


class DivergedError(ScopilError):
    """Training produced NaN or infinity."""


@contextmanager
def refused_as(kind: type[ScopilError], what: object) -> Iterator[None]:
    """For code that reads untrusted files: any exception becomes a `kind` that names the file `what`. NumPy, zipfile
    and h5py raise many kinds of exceptions for damaged content."""
    try:
        yield
    except ScopilError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise kind(f"{what} cannot be read ({why}): it is damaged, or not a file of scopil.") from error
