"""The error family. A message says what was found, what was wanted, and the way out."""

from collections.abc import Iterator
from contextlib import contextmanager


class ScopilError(Exception):
    """Anything scopil refuses on purpose; the command line prints it as one line and exits with code 2."""


class ConfigError(ScopilError):
    """A setting is out of range or two settings contradict each other. `setting` names the one that is wrong, so that
    the command line can speak of its flag."""

    def __init__(self, message: str, setting: str | None = None):
        super().__init__(message)
        self.setting = setting


class EnvError(ScopilError):
    """An environment is unknown, of a kind we cannot train on, or misbehaves."""


class DatasetError(ScopilError):
    """Demonstrations are missing, damaged or do not fit."""


class CheckpointError(ScopilError):
    """A checkpoint or run folder is missing, damaged or belongs to something else."""


class DivergedError(ScopilError):
    """Training produced NaN or infinity."""


@contextmanager
def refused_as(kind: type[ScopilError], what: object) -> Iterator[None]:
    """Around code that reads what others wrote: whatever it raises becomes an error of ours that names the file. NumPy,
    zipfile, h5py and our own arithmetic raise dozens of kinds for content that makes no sense."""
    try:
        yield
    except ScopilError:
        raise
    except Exception as error:
        why = str(error) or "no more is known"
        raise kind(f"{what} cannot be read ({type(error).__name__}: {why}): it is damaged, or not ours.") from error
