"""Ctrl-C, from the first import to the last line.

Python raises KeyboardInterrupt wherever the main thread happens to be. Inside an import or a callback of compiled code
somebody else catches it and the command goes on. So signals go to a thread, and what they do is said here.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130  # as shells count it: 128 + SIGINT
PARENT = "SCOPIL_PARENT"  # process id of the `scopil study` that started this process
PR_SET_PDEATHSIG = 1  # of prctl(2)


def leave(number: int) -> None:
    """End this process now. Files are written whole or not at all, so nothing is lost but what was being computed."""
    print("interrupted", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)


@contextmanager
def heard(numbers: Sequence[int], act: Callable[[int], None]) -> Iterator[None]:
    """`act(number)` is called in a thread for every signal as it comes.

    Python runs a signal's own handler only between two of its instructions, and the main thread sits in compiled code
    for seconds; so the numbers come down a pipe.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
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
    """KeyboardInterrupt after all, for a command that has children to wait for. One that was lost is raised again at
    the end; a second signal ends the process."""
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
    """In a child process of `scopil study`: when the parent dies, save and stop (SIGTERM).

    Only Linux offers this. Elsewhere a run outlives a killed parent, and the next one waits for it.
    """
    if (parent := os.environ.get(PARENT)) and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(parent):  # it died before we asked
            sys.exit(1)
