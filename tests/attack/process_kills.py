"""Whole commands killed at any moment, gone on with, and compared byte for byte with one that was left alone.

A command is a fork of this process, which has imported everything and computed nothing: JAX has no threads yet, and a
fork of a process with threads may hang. Programs come from a compilation cache, so a life costs a second or two. It is
killed after so many of its file operations, at once or a little later. Then every file must hold what the undisturbed
command wrote under that name at some time, and the next life goes on from there.
"""

import hashlib
import json
import os
import random
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import scopil_bench.cli.study
import scopil_bench.report.study_page  # noqa: F401  (a fork finds them imported)
from scopil.cli import main
from scopil.data import keyboard, storage
from scopil.envs.window import Key
from scopil.errors import ScopilError
from scopil.serialization import read_arrays
from scopil_bench.local import ONE_THREAD

PATIENCE = 300.0  # seconds without a file operation until a command counts as hanging
# What depends on the clock, or is there for the time of a life.
FLEETING = {"timing.jsonl", "timing.json", "log.txt", ".lock", "report.md", "report.html", "README.md"}
GROWS = "metrics.jsonl"
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def environment(cache: Path) -> dict[str, str]:
    """For the process that runs a campaign; JAX reads it when it is imported."""
    return {
        **ONE_THREAD,
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "SDL_VIDEODRIVER": "dummy",
        "MPLBACKEND": "Agg",
    }


@dataclass(frozen=True)
class Victim:
    """Functions that work in the current folder and return an exit code: `go_on` begins, or goes on with what is there;
    `begin` makes what has to be there before, and is not killed."""

    go_on: Callable[[], int]
    begin: Callable[[], int] = lambda: 0
    whom: Sequence[str] = ("all",)  # of a command with children: itself, one of them, or all of them
    retold: bool = False  # files tell of runs: with one that was killed they rightly tell less


@dataclass
class Deaths:
    kills: int = 0
    amid: int = 0  # kills that left a half-written temporary file: they hit a write
    ends: int = 0  # commands that came to their end after kills and were compared
    faults: list[str] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        return {
            "kills": self.kills,
            "amid a write": self.amid,
            "ended and compared": self.ends,
            "lost or damaged": len(self.faults),
        }


def campaign(victim: Victim, place: Path, kills: int, seed: int = 0) -> Deaths:
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads cannot be forked safely"
    rng, score = random.Random(seed), Deaths()
    begun, alone, here = (place / name / "here" for name in ("begun", "alone", "killed"))
    begun.mkdir(parents=True)
    assert _live(Victim(victim.begin), begun).code == 0, (begun.parent / "output.txt").read_text()
    shutil.copytree(begun, alone)
    undisturbed = _live(victim, alone, record=True)
    assert undisturbed.code == 0, (alone.parent / "output.txt").read_text()
    wanted = _files(alone)
    known: dict[str, set[str]] = {}
    for name, data in (*wanted.items(), *_files(begun).items()):
        known.setdefault(name, set()).add(_digest(data))
    for line in (alone.parent / "versions.txt").read_text().splitlines():
        digest, _, name = line.partition(" ")
        known.setdefault(name, set()).add(digest)

    while score.kills < kills and not score.faults:
        shutil.rmtree(here.parent, ignore_errors=True)
        shutil.copytree(begun, here)
        while True:
            last = score.kills >= kills
            moment = None if last else _moment(rng, undisturbed)
            earlier = set(here.rglob("*.tmp"))
            life = _live(victim, here, moment, rng.choice(victim.whom))
            score.kills += life.killed
            score.amid += life.killed and not earlier.issuperset(here.rglob("*.tmp"))
            score.faults += [f"kill {score.kills}: {fault}" for fault in _damage(here, known, wanted, victim.retold)]
            if life.hung or (not life.killed and life.code != 0):
                said = (here.parent / "output.txt").read_text()[-300:]
                score.faults.append(f"kill {score.kills}: ended with {life.code}: {said}")
            if score.faults or not life.killed:
                break
        if not score.faults:
            score.ends += 1
            score.faults += [f"kill {score.kills}: {name} differs" for name in _differing(here, wanted)]
    return score


class Moment(NamedTuple):
    operation: int  # of the life's file operations
    later: float  # seconds


class Life(NamedTuple):
    code: int | None
    killed: bool
    hung: bool
    operations: int
    seconds: float


def _moment(rng: random.Random, undisturbed: Life) -> Moment:
    """Right at a file operation, within the few milliseconds that a write takes, or anywhere after it. Early in its
    life, since it goes on where the one before was killed."""
    early = max(undisturbed.operations // 4, min(undisturbed.operations, 6))
    longest = rng.choice([0.0, 0.003, undisturbed.seconds / 4])
    return Moment(rng.randint(0, early), rng.uniform(0.0, longest))


def _live(victim: Victim, folder: Path, moment: Moment | None = None, whom: str = "all", record: bool = False) -> Life:
    begun, (ours, theirs) = time.monotonic(), os.pipe()
    if (child := os.fork()) == 0:
        os.close(ours)
        _child(victim, folder, theirs, record)
    os.setpgid(child, child)  # it does so too: whoever comes first
    os.close(theirs)
    operations, hung, ended = 0, False, False
    while not ended and (moment is None or operations < moment.operation):
        hung = not select.select([ours], [], [], PATIENCE)[0]
        found = b"" if hung else os.read(ours, 1 if moment else 4096)
        operations, ended = operations + len(found), not found
    killed = False
    if hung or (moment is not None and not ended):
        time.sleep(moment.later if moment else 0.0)
        killed = _kill(child, "all" if hung else whom)
        while os.read(ours, 4096):  # to the end of a command whose child was killed
            pass
    os.close(ours)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return Life(code, killed and code != 0, hung, operations, time.monotonic() - begun)


def _kill(child: int, whom: str) -> bool:
    """Whether anybody was there to be killed."""
    try:
        if whom == "all":
            os.killpg(child, signal.SIGKILL)
        elif whom == "itself":
            os.kill(child, signal.SIGKILL)
        else:
            children = Path(f"/proc/{child}/task/{child}/children").read_text().split()
            os.kill(int(children[0]), signal.SIGKILL)
    except (OSError, IndexError):
        return False
    return True


def _child(victim: Victim, folder: Path, tell: int, record: bool) -> None:
    """Never returns. Says every operation that changes a file of the folder through the pipe."""
    code, busy = 3, False
    try:
        os.setpgid(0, 0)
        output = os.open(folder.parent / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        versions = (folder.parent / "versions.txt").open("a") if record else None

        def heard(event: str, args: tuple[Any, ...]) -> None:
            nonlocal busy
            if busy or event not in ("open", "os.rename", "os.remove", "os.mkdir"):
                return
            if event == "open" and not args[2] & WRITES:
                return
            if not isinstance(args[0], str | os.PathLike) or not os.path.abspath(args[0]).startswith(f"{folder}/"):
                return
            busy = True
            if versions is not None and event == "os.rename":
                name = os.path.relpath(os.path.abspath(args[1]), folder)
                print(_digest(Path(args[0]).read_bytes()), name, file=versions, flush=True)
            os.write(tell, b"x")
            busy = False

        sys.addaudithook(heard)
        code = victim.go_on()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


# --- what is left -----------------------------------------------------------------------------------------------------


def _files(folder: Path) -> dict[str, bytes]:
    found = {}
    for file in folder.rglob("*"):
        fleeting = file.name in FLEETING or file.suffix in (".tmp", ".lock") or "tensorboard" in file.parts
        if file.is_file() and not fleeting:
            try:
                found[str(file.relative_to(folder))] = file.read_bytes()
            except FileNotFoundError:  # a worker that outlives its parent for a moment
                continue
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _damage(folder: Path, known: dict[str, set[str]], wanted: dict[str, bytes], retold: bool) -> list[str]:
    """Files that hold what the undisturbed command never wrote."""
    faults = []
    for name, data in _files(folder).items():
        if name.endswith(GROWS):
            if not wanted.get(name, b"").startswith(data):
                faults.append(f"{name} is not the beginning of what it was to be")
        elif _digest(data) not in known.get(name, ()) and not _whole(folder / name, retold):
            faults.append(f"{name} holds what was never written")
    return faults


def _whole(file: Path, retold: bool) -> bool:
    """Files of a process whose writes nobody heard are sealed."""
    try:
        if file.suffix in (".ckpt", ".safetensors"):
            read_arrays(file)
        elif retold and file.suffix == ".json":
            json.loads(file.read_text())
        else:
            return retold and file.stat().st_size > 0
    except (ScopilError, ValueError):
        return False
    except FileNotFoundError:  # removed meanwhile
        pass
    return True


def _differing(folder: Path, wanted: dict[str, bytes]) -> list[str]:
    found = _files(folder)
    return sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))


# --- who is killed ----------------------------------------------------------------------------------------------------

TINY = ["--hidden", "8", "--batch-size", "32", "--replay-size", "1500", "--seed", "5", "--verbosity", "quiet"]
EVERY = ["--log-every", "200", "--checkpoint-every", "200", "--eval-every", "400"]
DEMOS = "marble-maze/simple-v1"
FIRST, ALL = "1200", "2000"  # steps of a run, and of the same one extended


def training() -> Victim:
    """`scopil train` to its end, then `scopil resume` with a larger budget; the replay wraps on the way."""

    def go_on() -> int:
        code = 0
        if not Path("run/run.json").exists():
            more = ["--demo-batch-size", "16", "--demos", DEMOS, "--steps", FIRST]
            code = main(["train", "scopil", "--out", "run", *more, *TINY, *EVERY])
        elif json.loads(Path("run/run.json").read_text())["steps"] == int(FIRST):
            code = main(["resume", "run", "--verbosity", "quiet"])
        return code or main(["resume", "run", "--steps", ALL, "--verbosity", "quiet"])

    return Victim(go_on)


def evaluation() -> Victim:
    """`scopil evaluate`, greedy and sampled, over the files of an earlier evaluation."""
    kinds = ("greedy", "sampled")

    def begin() -> int:
        for kind in kinds:
            Path("run").mkdir(exist_ok=True)
            Path(f"run/evaluation-unseen-{kind}-6-episodes.json").write_text("of an earlier evaluation")
        return main(["train", "sac", "--out", "run", "--steps", "200", *TINY])

    def go_on() -> int:
        codes = [main(["evaluate", "run", "--episodes", "6", "--policy", kind]) for kind in kinds]
        return max(codes)

    return Victim(go_on, begin)


STUDY = """
seeds = 1
steps = 600
checkpoint_every = 200
eval_every = 400
env = "scopil/MarbleMaze-Simple-v0"
demos = "marble-maze/simple-v1"
methods = ["bc"]
episodes = 4

[overrides]
hidden = [8]
"""


def study() -> Victim:
    """`scopil study`: runs in processes of their own, then evaluation, figures and tables."""

    def go_on() -> int:
        return main(["study", "study.toml", "--out", "out", "--workers", "1"])

    def begin() -> int:
        Path("study.toml").write_text(STUDY)
        return 0

    return Victim(go_on, begin, whom=("all", "itself", "a child"), retold=True)


class Robot:
    """In the place of the window: presses keys in turn, and Enter at the end of an episode."""

    closed = False

    def __init__(self, *_: object):
        self.over, self.presses = False, 0

    def events(self) -> list[Key]:
        name = "return" if self.over else "ad"[self.presses % 2]
        self.presses = 0 if self.over else self.presses + 1
        return [Key(name, True), Key(name, False)]

    def now(self) -> float:
        return time.monotonic()

    def draw(self, image: object, text: Sequence[tuple[str, object]]) -> None:
        self.over = any("Enter: keep" in line for line, _ in text)

    def wait(self) -> None:
        pass

    def close(self) -> None:
        pass


def recording() -> Victim:
    """`scopil play` until twelve episodes are kept."""

    def go_on() -> int:
        keyboard.Window = Robot  # pyright: ignore[reportAttributeAccessIssue]
        file = Path("shown.npz")
        left = 12 - (len(storage.read(file)) if file.exists() else 0)
        argv = ["play", "--out", str(file), "--env", "CartPole-v1", "--keys", "a=0,d=1"]
        return main([*argv, "--episodes", str(left)]) if left else 0

    return Victim(go_on)


VICTIMS: dict[str, Callable[[], Victim]] = {
    "training": training,
    "evaluation": evaluation,
    "study": study,
    "recording": recording,
}
