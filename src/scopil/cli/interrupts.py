"""Signal handling of the command line.

Python raises KeyboardInterrupt at any point of the main thread. Inside an import or a callback of compiled code, other
packages may catch the exception, and the command would continue. Therefore a separate thread handles the signals.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130  # exit code by shell convention: 128 + SIGINT
PARENT = "SCOPIL_PARENT"  # process id of the `scopil study` that started this process
PR_SET_PDEATHSIG = 1  # see prctl(2)


def leave(number: int) -> None:
    """End this process now. Files are written atomically, so only the current computation is lost."""
    print("interrupted", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)


@contextmanager
def heard(numbers: Sequence[int], act: Callable[[int], None]) -> Iterator[None]:
    """Call `act(number)` in a thread for every signal.

    Python runs a signal handler only between two bytecode instructions, and compiled code may run for seconds.
    Therefore the thread reads the signal numbers from a pipe.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)

    def listen() -> None:
        while number := os.read(ours, 1):
            if number[0] in numbers:
                act(number[0])

    before = {n: signal.signal(n, lambda number, frame: None) for n in numbers}
    waker = signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
    reader = threading.Thread(target=listen, daemon=True)
    reader.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(waker)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(theirs)
        reader.join()
        os.close(ours)


@contextmanager
def raised(numbers: Sequence[int]) -> Iterator[None]:
    """Raise KeyboardInterrupt on a signal, for commands that must wait for child processes. If other code
    catches the exception, it is raised again at the end. A second signal ends the process."""
    seen: list[int] = []

    def raise_once(number: int, frame: FrameType | None) -> None:
        if seen:
            leave(number)
        seen.append(number)
        raise KeyboardInterrupt

    waker = signal.set_wakeup_fd(-1)
    before = {n: signal.signal(n, raise_once) for n in numbers}
    try:
        yield
        if seen:
            raise KeyboardInterrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(waker)


def stop_with_parent() -> None:
    """In a child process of `scopil study`: save and stop (SIGTERM) when the parent dies.

    Linux only. On other systems a run continues after its parent is killed, and the next `scopil study` waits for it.
    """
    if (parent := os.environ.get(PARENT)) and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(parent):  # the parent died before the call
            sys.exit(1)
