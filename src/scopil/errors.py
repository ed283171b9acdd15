"""The exceptions of scopil. Each message states the value found, the value expected, and a remedy."""

from collections.abc import Iterator
from contextlib import contextmanager


class ScopilError(Exception):
    """Base class of all exceptions of scopil. The command line prints its message on one line and exits with code 2."""


class ConfigError(ScopilError):
    """A setting is out of range, or two settings contradict each other. `setting` is the name of the invalid
    setting; the command line derives the flag from this name."""

    def __init__(self, message: str, setting: str | None = None):
        super().__init__(message)
        self.setting = setting


class EnvError(ScopilError):
    """An environment is unknown, cannot be trained on, or breaks the Gymnasium interface."""


class DatasetError(ScopilError):
    """Demonstrations are missing, damaged, or do not fit the environment."""


class CheckpointError(ScopilError):
    """A checkpoint or run folder is missing, damaged, or belongs to another run."""


class DivergedError(ScopilError):
    """Training produced NaN or infinity."""


@contextmanager
def refused_as(kind: type[ScopilError], what: object) -> Iterator[None]:
    """Turn every exception except a `ScopilError` into a `kind` exception. The message names the source `what`.

    It serves code that reads untrusted files: NumPy, zipfile and h5py raise many exception types for damaged files."""
    try:
        yield
    except ScopilError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise kind(f"{what} cannot be read ({why}): damaged content or an unknown format.") from error
