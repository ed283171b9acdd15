"""The entry point of the `scopil` command. It handles Ctrl-C while the package is imported, which takes a fifth of a
second. It is therefore outside of the package."""

import os
import signal


def main() -> int:
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a shell ignores SIGINT for a background job
        signal.signal(signal.SIGINT, _leave)
    from scopil.cli import main as command

    return command()


def _leave(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)  # no work has started; a module that is being imported could catch an exception
