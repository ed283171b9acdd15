"""Start, stop and resume `scopil train` processes. They continue after the page and the server close."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from scopil.config import code_in, settings
from scopil.data import storage
from scopil.errors import ConfigError
from scopil.files import write_atomically
from scopil.registry import find
from scopil.train.run import Run
from scopil.user_code import python
from scopil_studio.listing import plain
from scopil_studio.paths import JOBS, inside, name_of, refuse_outside
from scopil_studio.worker import StudioConfig

MOST_STEPS = 1_000_000_000
LARGEST_NOTE = 2**16  # bytes of the file that describes a run's process
LOG_TAIL = 4000  # the page shows this many bytes of the printed output

_children: list[subprocess.Popen] = []  # polled to remove zombie processes


def start(
    config: StudioConfig,
    name: str,
    algorithm: str,
    env: str,
    demos: str = "",
    steps: int = 100_000,
    seed: int = 0,
    options: dict[str, str] = {},  # noqa: B006 (never modified)
) -> dict[str, Any]:
    """Run `scopil train ALGORITHM …` with the new run folder `name`. `options` are settings of the algorithm."""
    config.refuse_env(env)
    folder = inside(config.folder, name)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{name} exists already; choose another name.")
    if not 1 <= steps <= MOST_STEPS or not 0 <= seed < 2**31:
        raise ConfigError(f"{steps} steps, seed {seed}; want 1 … {MOST_STEPS:,} steps and a seed below 2³¹.")
    found = find(algorithm)
    known = {s.name for s in settings(found.config)}
    if odd := [k for k in options if k not in known]:
        raise ConfigError(f"{found.title} has no setting {odd[0]!r}; it has {', '.join(sorted(known))}.")
    if (own := code_in({"features": options.get("features", "").split()})) is not None:
        raise ConfigError(f"features = {own}: a page may not name code; use scopil train --features {own}.")
    words = [f"--env={env}", f"--steps={steps}", f"--seed={seed}", f"--out={folder}"]
    if demos:
        words.append(f"--demos={demos if demos in storage.library() else inside(config.folder, demos)}")
    words += [f"--rules={config.rules}"] if config.rules and env in config.envs else []
    words += [_option(k.replace("_", "-"), v) for k, v in options.items()]
    _begin(config.folder, folder, [algorithm, *words])
    return {"started": name}


def _option(name: str, value: str) -> str:
    """One command-line option. A switch has no value."""
    return {"true": f"--{name}", "false": f"--no-{name}"}.get(str(value).lower(), f"--{name}={value}")


def resume(config: StudioConfig, name: str, demos: str = "", steps: int = 0) -> dict[str, Any]:
    """Run `scopil train --resume RUN`, which refuses code that this user's key did not sign. With `demos`: learn from
    these demonstrations, until `steps` in all."""
    folder = inside(config.folder, name)
    run, words = Run.open(folder), ["--resume", str(folder)]
    if demos:
        if run.spec.demos is None:
            raise ConfigError(f"{name} was trained without demonstrations; start a run with {demos}.")
        if not run.steps_done < steps <= MOST_STEPS:
            raise ConfigError(f"{steps:,} steps; {name} has {run.steps_done:,}; want more, to learn from {demos}.")
        words += [f"--demos={inside(config.folder, demos)}", f"--steps={steps}"]
    elif run.finished:
        raise ConfigError(f"{name} is finished.")
    _begin(config.folder, folder, words)
    return {"started": name}


def stop(config: StudioConfig, name: str) -> dict[str, Any]:
    """Like Ctrl-C: the run stops after the current chunk of training and is saved."""
    pid = running(config.folder, inside(config.folder, name))
    if pid is None:
        raise ConfigError(f"{name} is not trained by a process of this studio.")
    os.kill(pid, signal.SIGTERM)
    return {"stopping": name}


def running(home: Path, folder: Path) -> int | None:
    """The id of the process that trains this run now, if a studio in `home` started it."""
    _children[:] = [child for child in _children if child.poll() is None]
    try:
        pid = int(json.loads(_note(home, folder).read_text())["pid"])
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if os.path.exists("/proc") else _words(pid)
    except (OSError, ValueError, KeyError, TypeError, ConfigError):
        return None
    # The operating system may have given the id to another process.
    return pid if b"train" in words and any(word.endswith(str(folder).encode()) for word in words) else None


def log(home: Path, folder: Path) -> str:
    """The end of the printed output."""
    try:
        with _note(home, folder).with_suffix(".log").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL))
            return file.read(LOG_TAIL).decode("utf-8", "replace")
    except (OSError, ConfigError):
        return ""


def starting(home: Path) -> list[dict[str, Any]]:
    """Training processes without a run folder. They have just started, or they failed before they created one."""
    jobs = []
    for file in sorted((home / JOBS).glob("*.json")):
        try:
            name = json.loads(plain(file, LARGEST_NOTE).read_text())["name"]
            folder = inside(home, name)
        except (OSError, ValueError, KeyError, TypeError, ConfigError):
            continue
        if not (folder / "run.json").exists():
            jobs.append({"name": name, "alive": running(home, folder) is not None, "log": log(home, folder)})
    return jobs


def _begin(home: Path, folder: Path, words: list[str]) -> None:
    if running(home, folder) is not None:
        raise ConfigError(f"{folder.name} is being trained already.")
    note = _note(home, folder)
    note.parent.mkdir(exist_ok=True)
    with note.with_suffix(".log").open("wb") as file:
        child = subprocess.Popen(
            [*python(), "-m", "scopil", "train", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the studio's terminal does not stop the run
            env=os.environ | {"TERM": "dumb", "COLUMNS": "100"},
        )
    _children.append(child)
    write_atomically(note, json.dumps({"pid": child.pid, "name": name_of(home, folder)}).encode())


def _note(home: Path, folder: Path) -> Path:
    """The path of the file that describes a run's process. Raises ConfigError for links, pipes and large files."""
    note = home / JOBS / f"{name_of(home, folder).replace('/', '__')}.json"
    refuse_outside(home, note, note.with_suffix(".log"))
    plain(note.with_suffix(".log"))
    return plain(note, LARGEST_NOTE)


def _words(pid: int) -> list[bytes]:
    return subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True).stdout.split()
