"""What the `scopil` command calls first. It is outside of the package, whose own import takes a fifth of a second:
Ctrl-C counts from here on."""

import os
import signal


def main() -> int:
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a shell's way to shield a background job
        signal.signal(signal.SIGINT, _leave)
    from scopil.cli import main as command

    return command()


def _leave(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)  # nothing was begun; an exception might be caught by whatever is being imported
