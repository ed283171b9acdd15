"""The lock: one holder at a time, given up by a killed process, never taken through a link."""

import io
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from scopil.files import MOST_UNPACKED, SMALL, Locked, is_locked, lock, read_npz, unpacks_to_far_more

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


def test_a_lock_has_one_holder_and_can_be_taken_again(path):
    with lock(path):
        assert is_locked(path)
        with pytest.raises(Locked, match="locked by another process"):
            lock(path)
    assert not is_locked(path)
    held = lock(path)
    held.release()
    held.release()
    assert not is_locked(path)


def test_an_exception_in_the_block_gives_the_lock_up(path):
    with pytest.raises(ValueError, match="mine"), lock(path):
        raise ValueError("mine")
    assert not is_locked(path)


def test_another_thread_may_release(path):
    held = lock(path)
    thread = threading.Thread(target=held.release)
    thread.start()
    thread.join()
    assert not is_locked(path)


def test_another_process_is_seen_and_its_end_too(path, holder):
    assert is_locked(path)
    with pytest.raises(Locked):
        lock(path)
    holder.stdin.close()
    holder.wait()
    assert not is_locked(path)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="SIGKILL is Unix's")
def test_a_killed_holder_holds_nothing(path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert not is_locked(path)
    lock(path).release()


def test_asking_creates_nothing_and_locking_changes_nothing(path):
    assert not is_locked(path)
    assert not path.exists()
    path.write_text("a note")
    with lock(path):
        pass
    assert not path.exists() or path.read_text() == "a note"  # Windows removes the file afterwards


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


def test_an_archive_that_unpacks_to_far_more_than_it_is_is_refused(monkeypatch):
    assert unpacks_to_far_more(SMALL + MOST_UNPACKED * 10 + 1, 10)
    assert not unpacks_to_far_more(SMALL + MOST_UNPACKED * 10, 10)
    monkeypatch.setattr("scopil.files.SMALL", 0)
    for save, refused in ((np.savez, False), (np.savez_compressed, True)):
        save(archive := io.BytesIO(), zeros=np.zeros(10_000))
        if refused:
            with pytest.raises(ValueError, match=r"unpack to 80,\d+"):
                read_npz(archive.getvalue())
        else:
            assert read_npz(archive.getvalue()).keys() == {"zeros"}
