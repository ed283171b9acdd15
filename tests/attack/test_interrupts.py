"""Ctrl-C at any moment ends a command with 130 and leaves a whole run folder, or none.

Python's KeyboardInterrupt is lost where somebody else catches it: JAX's callback of the garbage collector does, and so
does many an import. The children below send themselves SIGINT inside code that swallows every exception.
"""

import os
import random
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from scopil.cli.interrupts import raised
from scopil.train.run import Run

SWALLOW = """
import os, signal, sys, time
from scopil.cli import main

def interrupted():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    except BaseException:
        pass
"""
WHILE_IMPORTING = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "tyro":
            interrupted()
sys.meta_path.insert(0, Finder())
"""
WHILE_CREATING = """
from scopil.train import run
write = run.write_atomically
run.write_atomically = lambda path, *pieces: (path.name == "run.json" and interrupted(), write(path, *pieces))
"""
FIRST_OF_ALL = """
import os, signal, sys, time
import scopil_command
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "gymnasium":
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(5)
            except BaseException:
                pass
sys.meta_path.insert(0, Finder())
sys.exit(scopil_command.main())
"""
TINY = ["--steps", "2000", "--hidden", "8", "--batch-size", "32", "--replay-size", "2000"]


@pytest.fixture(autouse=True)
def _children_hear_sigint():
    """A shell starts what runs in its background with SIGINT ignored, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def child(out: Path, before: str) -> subprocess.CompletedProcess:
    code = f"{SWALLOW}{before}\nsys.exit(main(['train', 'sac', '--out', sys.argv[1], *sys.argv[2:]]))"
    return subprocess.run([sys.executable, "-c", code, str(out), *TINY], capture_output=True, text=True)


@pytest.mark.parametrize("before", [WHILE_IMPORTING, WHILE_CREATING], ids=["importing", "creating"])
def test_an_interrupt_that_somebody_swallows_still_counts(before, tmp_path):
    done = child(tmp_path / "run", before)
    assert done.returncode == 130, done.stderr
    assert done.stderr == "interrupted\n"
    assert not (tmp_path / "run" / "run.json").exists()


def test_an_interrupt_counts_before_the_package_is_imported():
    """`import scopil` imports Gymnasium; what is installed as `scopil` calls scopil_command first."""
    done = subprocess.run([sys.executable, "-c", FIRST_OF_ALL], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"scopil": "scopil_command:main"}


def test_what_waits_for_children_gets_an_exception_even_if_it_was_lost():
    swallowed = False
    with pytest.raises(KeyboardInterrupt), raised((signal.SIGINT,)):  # noqa: PT012
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt:
            swallowed = True
    assert swallowed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_interrupts_at_random_moments(seed, tmp_path):
    """Before the first of our lines runs, Python itself ends by the signal, which shells count as 130."""
    rng, folder = random.Random(seed), tmp_path / "run"
    for _ in range(12):
        argv = ["--resume", str(folder)] if (folder / "run.json").exists() else ["sac", "--out", str(folder), *TINY]
        command = [sys.executable, "-m", "scopil", "train", *argv]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            time.sleep(rng.uniform(0.0, 8.0))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
        assert process.returncode in (130, -signal.SIGINT), out + err
        assert not folder.exists() or (folder / "run.json").exists() or not list(folder.glob("*.ckpt"))
        if (folder / "run.json").exists() and Run.open(folder).finished:
            break
