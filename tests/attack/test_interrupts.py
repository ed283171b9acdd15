"""Ctrl-C at any moment ends a command with exit code 130 and leaves a complete run folder, or none.

KeyboardInterrupt is lost if other code catches it, as JAX's callback of the garbage collector and many imports do. The
processes below send themselves SIGINT inside code that catches every exception.
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
BEFORE_SCOPIL = f"""
{WHILE_IMPORTING.replace("tyro", "gymnasium")}
import scopil_command
sys.exit(scopil_command.main())
"""
TINY = ["--steps", "2000", "--hidden", "8", "--batch-size", "32", "--replay-size", "2000"]


@pytest.fixture(autouse=True)
def _sigint_in_children():
    """Background processes of a shell ignore SIGINT, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def child(out: Path, before: str) -> subprocess.CompletedProcess:
    train = "sys.exit(main(['train', 'sac', '--out', sys.argv[1], *sys.argv[2:]]))"
    code = f"{SWALLOW}\nfrom scopil.cli import main\n{before}\n{train}"
    return subprocess.run([sys.executable, "-c", code, str(out), *TINY], capture_output=True, text=True)


@pytest.mark.parametrize("before", [WHILE_IMPORTING, WHILE_CREATING], ids=["importing", "creating"])
def test_a_caught_interrupt_still_ends_the_command(before, tmp_path):
    done = child(tmp_path / "run", before)
    assert done.returncode == 130, done.stderr
    assert done.stderr == "interrupted\n"
    assert not (tmp_path / "run" / "run.json").exists()


def test_an_interrupt_before_the_package_is_imported():
    """`import scopil` imports Gymnasium; the installed command `scopil` calls scopil_command first."""
    done = subprocess.run([sys.executable, "-c", SWALLOW + BEFORE_SCOPIL], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"scopil": "scopil_command:main"}


def test_a_lost_interrupt_is_raised_again():
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
    """Before scopil runs, Python itself ends by the signal, which shells show as 130."""
    rng, folder = random.Random(seed), tmp_path / "run"
    for _ in range(12):
        argv = ["--resume", str(folder)] if (folder / "run.json").exists() else ["sac", "--out", str(folder), *TINY]
        command = [sys.executable, "-m", "scopil", "train", *argv]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            time.sleep(rng.uniform(0.0, 8.0))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
        ended = process.returncode == 0 and Run.open(folder).finished  # before the signal came
        assert ended or process.returncode in (130, -signal.SIGINT), out + err
        assert not folder.exists() or (folder / "run.json").exists() or not list(folder.glob("*.ckpt"))
        if (folder / "run.json").exists() and Run.open(folder).finished:
            break
