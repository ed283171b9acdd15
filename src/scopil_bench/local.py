"""The local engine: every run is one process, `scopil resume FOLDER`, on one core."""

import os
import subprocess
from pathlib import Path

from scopil.cli.interrupts import PARENT
from scopil.train.run import LOG
from scopil.user_code import python
from scopil.xla_flags import XLA_FLAGS

# One thread per run: the operations are too small to be split between threads.
ONE_THREAD = {"XLA_FLAGS": XLA_FLAGS, "NPROC": "1", "OMP_NUM_THREADS": "1"}


class Local:
    """Starts runs as processes on this machine."""

    def start(self, folder: Path, trust_env: bool) -> "Process":
        return Process(folder, trust_env)


class Process:
    """One run in progress."""

    def __init__(self, folder: Path, trust_env: bool, here: str | None = None):
        with (folder / LOG).open("ab") as log:
            self._popen = subprocess.Popen(
                [*python(), "-m", "scopil", "resume", *["--trust-env"] * trust_env, str(folder)],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=here,
                env=os.environ | ONE_THREAD | {PARENT: str(os.getpid())},
            )

    def poll(self) -> int | None:
        """The exit code, or None while the process is running."""
        return self._popen.poll()

    def stop(self) -> None:
        """Ask the process to save a checkpoint and stop. `wait` waits until it has stopped."""
        self._popen.terminate()

    def wait(self) -> None:
        self._popen.wait()
