"""Whole commands killed at random moments and resumed, compared byte for byte with an undisturbed command.

A command is a fork of this process, which has imported everything and started no thread: a fork of a process with
threads may hang. Programs come from a compilation cache, so a command takes a second or two. It is killed after some
number of file operations, at once or a little later. Then every file must hold a version that the undisturbed command
wrote, and the next process resumes from there.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import scopil_bench.cli.render
import scopil_bench.cli.report  # these are imported before the fork
import scopil_bench.cli.study
import scopil_bench.cli.tune
import scopil_bench.report.study_page  # noqa: F401
from attack.kills import Kills
from scopil.cli import main
from scopil.data import storage
from scopil.envs.window import Key
from scopil.errors import ScopilError
from scopil.serialization import read_arrays
from scopil_bench.local import ONE_THREAD
from scopil_studio import keyboard

PATIENCE = 300.0  # seconds without a file operation after which a command counts as hanging
# Files that depend on the clock, or exist only while a process runs.
TRANSIENT = {"timing.jsonl", "timing.json", "log.txt", ".lock", "report.md", "report.html", "README.md"}
GROWS = "metrics.jsonl"
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def environment(cache: Path) -> dict[str, str]:
    """Of the process that runs a campaign; JAX reads it on import."""
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
class Command:
    """`resume` starts or resumes in the current folder and returns an exit code; `prepare` makes the files needed
    before, and is not killed."""

    resume: Callable[[], int]
    prepare: Callable[[], int] = lambda: 0
    whom: Sequence[str] = ("all",)  # processes to kill: the command itself, one child, or all
    summarises: bool = False  # files depend on other runs: after a kill they may hold less


def campaign(command: Command, place: Path, kills: int, seed: int = 0) -> Kills:
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads cannot be forked safely"
    rng, score = random.Random(seed), Kills("ended and compared")
    begun, alone, here = (place / name / "here" for name in ("begun", "alone", "killed"))
    begun.mkdir(parents=True)
    assert _run(Command(command.prepare), begun).code == 0, (begun.parent / "output.txt").read_text()
    shutil.copytree(begun, alone)
    undisturbed = _run(command, alone, record=True)
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
            outcome = _run(command, here, moment, rng.choice(command.whom))
            score.kills += outcome.killed
            score.amid += outcome.killed and not earlier.issuperset(here.rglob("*.tmp"))
            score.faults += [
                f"kill {score.kills}: {fault}" for fault in _damage(here, known, wanted, command.summarises)
            ]
            if outcome.hung or (not outcome.killed and outcome.code != 0):
                output = (here.parent / "output.txt").read_text()[-300:]
                score.faults.append(f"kill {score.kills}: ended with {outcome.code}: {output}")
            if score.faults or not outcome.killed:
                break
        if not score.faults:
            score.done += 1
            score.faults += [f"kill {score.kills}: {name} differs" for name in _differing(here, wanted)]
    return score


class Moment(NamedTuple):
    operation: int  # number of file operations before it
    later: float  # seconds


class Outcome(NamedTuple):
    code: int | None
    killed: bool
    hung: bool
    operations: int
    seconds: float


def _moment(rng: random.Random, undisturbed: Outcome) -> Moment:
    """At a file operation, within the few milliseconds of a write, or any time after it. Early in a process, since it
    resumes where the one before was killed."""
    early = max(undisturbed.operations // 4, min(undisturbed.operations, 6))
    longest = rng.choice([0.0, 0.003, undisturbed.seconds / 4])
    return Moment(rng.randint(0, early), rng.uniform(0.0, longest))


def _run(
    command: Command, folder: Path, moment: Moment | None = None, whom: str = "all", record: bool = False
) -> Outcome:
    begun, (ours, theirs) = time.monotonic(), os.pipe()
    if (child := os.fork()) == 0:
        os.close(ours)
        _child(command, folder, theirs, record)
    os.setpgid(child, child)  # as the child does: either may come first
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
        while os.read(ours, 4096):  # until a command whose child was killed ends
            pass
    os.close(ours)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return Outcome(code, killed and code != 0, hung, operations, time.monotonic() - begun)


def _kill(child: int, whom: str) -> bool:
    """Whether there was a process to kill."""
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


def _child(command: Command, folder: Path, report: int, record: bool) -> None:
    """Never returns. Reports every operation that changes a file of the folder through the pipe."""
    code, busy = 3, False
    try:
        os.setpgid(0, 0)
        output = os.open(folder.parent / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        versions = (folder.parent / "versions.txt").open("a") if record else None

        def audit(event: str, args: tuple[Any, ...]) -> None:
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
            os.write(report, b"x")
            busy = False

        sys.addaudithook(audit)
        code = command.resume()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _files(folder: Path) -> dict[str, bytes]:
    found = {}
    for file in folder.rglob("*"):
        transient = file.name in TRANSIENT or file.suffix in (".tmp", ".lock") or "tensorboard" in file.parts
        if file.is_file() and not transient:
            try:
                found[str(file.relative_to(folder))] = file.read_bytes()
            except FileNotFoundError:  # of a worker that outlives its parent briefly
                continue
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _damage(folder: Path, known: dict[str, set[str]], wanted: dict[str, bytes], summarises: bool) -> list[str]:
    """Files with content that the undisturbed command never wrote."""
    faults = []
    for name, data in _files(folder).items():
        if name.endswith(GROWS):
            if not wanted.get(name, b"").startswith(data):
                faults.append(f"{name} is not the beginning of the undisturbed file")
        elif _digest(data) not in known.get(name, ()) and not _complete(folder / name, summarises):
            faults.append(f"{name} has content that was never written")
    return faults


def _complete(file: Path, summarises: bool) -> bool:
    """Files of child processes, whose writes are not reported, have checksums."""
    try:
        if file.suffix in (".ckpt", ".safetensors"):
            read_arrays(file)
        elif summarises and file.suffix == ".json":
            json.loads(file.read_text())
        else:
            return summarises and file.stat().st_size > 0
    except (ScopilError, ValueError):
        return False
    except FileNotFoundError:  # removed in the meantime
        pass
    return True


def _differing(folder: Path, wanted: dict[str, bytes]) -> list[str]:
    found = _files(folder)
    return sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))


TINY = ["--hidden", "8", "--batch-size", "32", "--replay-size", "1500", "--seed", "5", "--verbosity", "quiet"]
EVERY = ["--log-every", "200", "--checkpoint-every", "200", "--eval-every", "400"]
DEMOS = "marble-maze/simple-v1"
FIRST, ALL = "1200", "2000"  # steps of a run, and of the same one extended


def training() -> Command:
    """`scopil train` to its end, then `scopil resume` with a larger budget; the replay buffer wraps."""

    def resume() -> int:
        code = 0
        if not Path("run/run.json").exists():
            more = ["--demo-batch-size", "16", "--demos", DEMOS, "--steps", FIRST]
            code = main(["train", "scopil", "--out", "run", *more, *TINY, *EVERY])
        elif json.loads(Path("run/run.json").read_text())["steps"] == int(FIRST):
            code = main(["resume", "run", "--verbosity", "quiet"])
        return code or main(["resume", "run", "--steps", ALL, "--verbosity", "quiet"])

    return Command(resume)


def evaluation() -> Command:
    """`scopil evaluate`, greedy and sampled, over the files of an earlier evaluation."""
    kinds = ("greedy", "sampled")

    def prepare() -> int:
        for kind in kinds:
            Path("run").mkdir(exist_ok=True)
            Path(f"run/evaluation-unseen-{kind}-6-episodes.json").write_text("an earlier evaluation")
        return main(["train", "sac", "--out", "run", "--steps", "200", *TINY])

    def resume() -> int:
        codes = [main(["evaluate", "run", "--episodes", "6", "--policy", kind]) for kind in kinds]
        return max(codes)

    return Command(resume, prepare)


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


def study() -> Command:
    """`scopil study`: runs in processes of their own, then evaluation, figures and tables."""

    def resume() -> int:
        return main(["study", "study.toml", "--out", "out", "--workers", "1"])

    def prepare() -> int:
        Path("study.toml").write_text(STUDY)
        return 0

    return Command(resume, prepare, whom=("all", "itself", "a child"), summarises=True)


TUNE = """
[tune]
trials = 2

[tune.settings]
learning_rate = [1e-4, 1e-2, "log"]
"""


def tuning() -> Command:
    """`scopil tune`: both trials are drawn before the first run, so that an undisturbed search has the same."""

    def resume() -> int:
        return main(["tune", "study.toml", "--out", "out", "--workers", "2"])

    def prepare() -> int:
        Path("study.toml").write_text(STUDY + TUNE)
        return 0

    return Command(resume, prepare, whom=("all", "itself", "a child"), summarises=True)


def drawing() -> Command:
    """`scopil report` and `scopil render` of a run, over an earlier film."""

    def prepare() -> int:
        Path("film.gif").write_text("an earlier film")
        return main(["train", "sac", "--out", "run", "--steps", "200", *TINY])

    def resume() -> int:
        codes = [main(["render", "run", "--out", "film.gif"]), main(["report", "run", "--out", "seen"])]
        return max(codes)

    return Command(resume, prepare)


class Robot:
    """Replaces the window: presses keys in turn, and Enter at the end of an episode."""

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


def recording() -> Command:
    """`scopil play` until twelve episodes are kept."""

    def resume() -> int:
        keyboard.Window = Robot  # pyright: ignore[reportAttributeAccessIssue]
        file = Path("shown.npz")
        left = 12 - (len(storage.read(file)) if file.exists() else 0)
        argv = ["play", "--out", str(file), "--env", "CartPole-v1", "--keys", "a=0,d=1"]
        return main([*argv, "--episodes", str(left)]) if left else 0

    return Command(resume)


COMMANDS: dict[str, Callable[[], Command]] = {
    "training": training,
    "evaluation": evaluation,
    "study": study,
    "tuning": tuning,
    "report and film": drawing,
    "recording": recording,
}
