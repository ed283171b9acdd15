"""Locks have one holder, end with their process and refuse links. Archives: tests/attack/test_damaged_files.py."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from scopil.files import Locked, is_locked, lock

HOLDER = """
import pathlib, sys
from scopil.files import lock
held = lock(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / ".lock"


@pytest.fixture
def holder(path):
    """Another process that holds the lock until its input ends or it is killed."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_lock_has_one_holder_can_be_taken_again_and_keeps_the_content_of_its_file(path):
    assert not is_locked(path)
    assert not path.exists()
    path.write_text("a note")
    with lock(path):
        assert is_locked(path)
        with pytest.raises(Locked):
            lock(path)
    assert not is_locked(path)
    held = lock(path)
    thread = threading.Thread(target=held.close)  # by another thread
    thread.start()
    thread.join()
    held.close()
    assert not is_locked(path)
    with pytest.raises(ZeroDivisionError), lock(path):
        raise ZeroDivisionError
    assert not is_locked(path)
    assert not path.exists() or path.read_text() == "a note"  # Windows removes the file afterwards


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_the_lock_of_another_process_is_seen_and_ends_with_it(path, holder, end):
    assert is_locked(path)
    with pytest.raises(Locked):
        lock(path)
    holder.stdin.close() if end == "exit" else holder.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
    holder.wait()
    assert not is_locked(path)
    lock(path).close()


@pytest.mark.parametrize("dangling", [True, False])
def test_a_symbolic_link_is_refused(path, tmp_path, dangling):
    target = tmp_path / "target"
    if not dangling:
        target.write_text("precious")
    try:
        os.symlink(target, path)
    except OSError:
        pytest.skip("this user may not make symbolic links")
    for ask in (lock, is_locked):
        with pytest.raises(OSError, match="symbolic link"):
            ask(path)
    assert target.exists() != dangling
    assert dangling or target.read_text() == "precious"
