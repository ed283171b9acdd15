"""A training process killed at any moment and resumed ends in the same bytes as an undisturbed one.

The children inherit the compilation cache of this test run (conftest.py), so that going on costs seconds.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from samples import marble_episodes
from scopil.data import storage
from scopil.errors import ConfigError
from scopil.serialization import read_arrays
from scopil.train.run import Run

TINY = {
    "scopil": "--hidden 8 --batch-size 32 --replay-size 12000 --demo-batch-size 16 --seed 5",
    "ppo-dgd": "--hidden 8 --num-envs 5 --rollout-steps 100 --batch-size 10 --demo-batch-size 16 --seed 5",
    # the tables change in every chunk; test_learners.py has constraints that enter
    "scopil-rho": "--hidden 8 --batch-size 32 --replay-size 12000 --demo-batch-size 16 --clone-steps 20 "
    "--critics-first 6000 --refresh-every 500 --seed 5",
    # a backward phase falls into every second chunk
    "icrl": "--hidden 8 --num-envs 5 --rollout-steps 100 --batch-size 10 --forward-steps 10000 --rollouts 4 "
    "--constraint-hidden 8 --seed 5",
}
EVERY = ["--checkpoint-every", "5000", "--eval-every", "10000"]
STEPS = 20_000  # the replay wraps on the way
PATIENCE = 1800.0  # seconds until a process counts as hanging; a busy machine compiles slowly


class Lab:
    """A folder for the runs of this module."""

    def __init__(self, folder: Path):
        self.folder = folder
        storage.write(marble_episodes(steps=12, episodes=3), folder / "demos.npz")

    def start(
        self, name: str, algorithm: str = "scopil", steps: int = STEPS, before: str = "", **env: str
    ) -> subprocess.Popen:
        """Begin or resume a run. The child runs the code `before` first."""
        run = self.folder / name
        argv = ["--resume", str(run)]
        if not (run / "run.json").exists():
            argv = [algorithm, "--out", str(run), "--demos", str(self.folder / "demos.npz")]
            argv += ["--steps", str(steps), *TINY[algorithm].split(), *EVERY]
        child = f"import sys\n{before}\nfrom scopil.cli import main\nsys.exit(main(sys.argv[1:]))"
        return subprocess.Popen(
            [sys.executable, "-c", child, "train", *argv],
            env=os.environ | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, name: str, algorithm: str = "scopil") -> Run:
        child = self.start(name, algorithm)
        out, err = child.communicate(timeout=PATIENCE)
        assert child.returncode == 0, out + err
        return Run.open(self.folder / name)

    def checkpoints(self, name: str) -> list[str]:
        return sorted(p.name for p in (self.folder / name).glob("checkpoints/*.ckpt"))


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Lab:
    return Lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="module")
def undisturbed(lab) -> Run:
    return lab.finish("undisturbed")


def until(child: subprocess.Popen, happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert child.poll() is None, child.communicate()
        if time.monotonic() > deadline:
            raise TimeoutError("the process hangs")
        time.sleep(0.0005)


def kill(child: subprocess.Popen) -> None:
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert child.returncode == -signal.SIGKILL


def assert_same_end(run: Run, undisturbed: Run) -> None:
    assert run.finished
    assert run.policy_file.read_bytes() == undisturbed.policy_file.read_bytes()
    assert run.metrics.path.read_bytes() == undisturbed.metrics.path.read_bytes()
    assert [f.read_bytes() for f in run.checkpoints.files()] == [
        f.read_bytes() for f in undisturbed.checkpoints.files()
    ]
    assert not list(run.folder.rglob("*.tmp"))


def moments(lab: Lab, name: str) -> Iterator[Callable[[], bool]]:
    """Start-up, half a checkpoint on disk, a chunk's line written with its checkpoint still to come."""
    folder = lab.folder / name
    yield lambda: (folder / ".lock").exists()
    yield lambda: any(folder.glob("checkpoints/.*.tmp")) or len(lab.checkpoints(name)) > 0
    before = len(lab.checkpoints(name))
    lines = folder / "metrics.jsonl"
    yield lambda: lines.read_bytes().count(b"\n") > before + 1


@pytest.mark.slow  # CI kills commands too, in its short attack
@pytest.mark.parametrize("algorithm", TINY)
def test_a_run_killed_three_times_ends_in_the_same_bytes(algorithm, lab, request):
    name = f"killed-{algorithm}"
    for happened in moments(lab, name):
        child = lab.start(name, algorithm)
        until(child, happened)
        kill(child)
        assert not Run.open(lab.folder / name).finished
    if algorithm == "scopil":
        alone = request.getfixturevalue("undisturbed")
    else:
        alone = lab.finish(f"alone-{algorithm}", algorithm)
    assert_same_end(lab.finish(name), alone)
    if algorithm == "icrl":
        assert alone.metrics.rows()[-1]["constraint/phases"] == STEPS // 10_000


def test_signals_save_stop_and_print_the_command_to_continue(lab, undisturbed):
    lines = lab.folder / "asked" / "metrics.jsonl"  # a run writes it anew before its first chunk
    for number in (signal.SIGTERM, signal.SIGINT):
        before = lines.stat().st_ino if lines.exists() else None
        child = lab.start("asked")
        until(child, lambda before=before: lines.exists() and lines.stat().st_ino != before)
        child.send_signal(number)
        out, err = child.communicate(timeout=PATIENCE)
        assert child.returncode == 130, out + err
        step = Run.open(lab.folder / "asked").metrics.rows()[-1]["env_steps"]
        assert 5000 <= step < STEPS
        assert f"stopped at step {step:,}, saved; to continue: scopil resume" in " ".join(out.split())
        assert lab.checkpoints("asked")[-1] == f"{step:012d}.ckpt"
    assert_same_end(lab.finish("asked"), undisturbed)


def test_one_process_per_folder_and_a_second_interrupt_stops_it_at_once(lab, undisturbed):
    child = lab.start("impatient", steps=10_000_000)
    until(child, lambda: (lab.folder / "impatient" / "metrics.jsonl").exists())
    with pytest.raises(ConfigError, match="impatient is being trained by another process"):
        Run.open(lab.folder / "impatient").train()
    child.send_signal(signal.SIGINT)
    time.sleep(0.05)  # two signals at the same moment are one
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 130, out + err
    assert "Ctrl-C again stops at once" in out
    assert "stopped; the files saved before are complete" in out


def test_a_full_disk_is_an_error_of_one_line_and_loses_nothing(lab, undisturbed):
    """5 000 transitions fit under the limit, 10 000 do not."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))"
    child = lab.start("full", before=limit)
    out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 2, out + err
    assert err.startswith("error: cannot write ")
    assert "000000010000.ckpt: File too large" in err
    assert err.count("\n") == 1
    assert lab.checkpoints("full") == ["000000005000.ckpt"]
    assert not list((lab.folder / "full").rglob("*.tmp"))
    kept = lab.folder / "full" / "checkpoints" / "000000005000.ckpt"
    assert int(read_arrays(kept)[0][".env_steps"]) == 5000  # its checksum is right


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_killed_at_random_moments(seed, lab, undisturbed):
    """Until it has died ten times or got to the end between two deaths."""
    rng, name = random.Random(seed), f"random-{seed}"
    for _ in range(10):
        child = lab.start(name)
        try:
            child.communicate(timeout=rng.uniform(0.5, 12.0))
        except subprocess.TimeoutExpired:
            kill(child)
        else:
            break
    assert_same_end(lab.finish(name), undisturbed)


@pytest.mark.slow
def test_killed_around_every_checkpoint(lab, undisturbed):
    rng = random.Random(0)
    for _ in range(12):
        child = lab.start("edges")
        before = lab.checkpoints("edges")
        folder = lab.folder / "edges" / "checkpoints"
        while child.poll() is None and lab.checkpoints("edges") == before and not any(folder.glob(".*.tmp")):
            time.sleep(0.0002)
        time.sleep(rng.uniform(0.0, 0.01))
        if child.poll() is not None:
            child.communicate()
            break
        kill(child)
    assert_same_end(lab.finish("edges"), undisturbed)


# A limit on the address space leaves what the process has mapped and not used: that is taken too.
NO_MORE_MEMORY = """
import ctypes, resource
from scopil.train.checkpoint import Checkpoints
save, allocate = Checkpoints.save, ctypes.CDLL(None).malloc
allocate.argtypes, allocate.restype = [ctypes.c_size_t], ctypes.c_void_p
def last(self, *args):
    save(self, *args)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used, used))
    for power in range(30, 15, -1):
        while allocate(2**power):
            pass
Checkpoints.save = last
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux says how much a process has")
def test_out_of_memory_within_an_update_loses_nothing(lab, undisturbed):
    # After the first checkpoint no allocation of 64 KiB or more succeeds. Native code may crash instead of raising.
    child = lab.start("starved", before=NO_MORE_MEMORY, MALLOC_ARENA_MAX="1")
    out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode in (2, -signal.SIGSEGV, -signal.SIGABRT), out + err
    assert "Traceback" not in err
    if child.returncode == 2:
        assert err.splitlines()[-1].startswith("error: out of memory")
    assert lab.checkpoints("starved") == ["000000005000.ckpt"]
    assert_same_end(lab.finish("starved"), undisturbed)
