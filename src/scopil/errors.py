"""The error family. A message says what was found, what was wanted, and the way out."""


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
