"""The Ray engine. Nodes share no disk: a run's files are sent to a node and returned as they are written.

A task is one run, trained by the same process as on the local engine. If its node dies, the run continues on another
node from the files that were returned. scopil must be installed on every node.
"""

import ipaddress
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scopil.errors import CheckpointError, ConfigError
from scopil.files import lock, write_atomically
from scopil_bench.local import LOG, Process

POLICY = "policy.safetensors"
# If this variable is 0, Ray binds to 127.0.0.1 on Linux too. Ray reads it at import. Ray's option _node_ip_address does
# not help: Ray replaces 127.0.0.1 by the external address.
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
CHECK = 1.0  # seconds between two checks of a run's files
LOSSES = 5  # maximum number of consecutive losses of a run's task without a new file
Files = dict[str, bytes]  # path within the run's folder → content
Stamps = dict[str, tuple[int, int]]  # path → modification time in ns, size


class Cluster:
    """The cluster at `address` (`auto`: this machine's cluster); without an address, Ray on this machine only."""

    def __init__(self, address: str | None = None, gpus: float = 0.0):
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options: dict[str, Any] = {"log_to_driver": False}
        if address is None:  # a cluster's ports run code: no other user or machine may reach them
            os.environ |= {LOOPBACK: "0", "RAY_AUTH_MODE": "token"}  # Ray generates the token
            options["include_dashboard"] = False
        ray = _ray()
        try:
            ray.init(address=address, **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            where = f"at {address}" if address else "on this machine"
            raise ConfigError(f"no Ray cluster {where}: {error}") from error
        if address is None:
            _refuse_reachable(ray)
        self._train = ray.remote(_train).options(
            num_cpus=1, num_gpus=gpus, max_retries=0, num_returns="streaming", scheduling_strategy="SPREAD"
        )

    def start(self, folder: Path, trust_env: bool) -> "Task":
        return Task(folder, self._train, trust_env)

    def close(self) -> None:
        _ray().shutdown()


class Task:
    """One run on a node."""

    def __init__(self, folder: Path, train: Any, trust_env: bool):
        self._folder, self._train, self._trust_env = folder, train, trust_env
        self._lock = lock(folder / ".lock")
        self._losses = 0
        self._submit()

    def _submit(self) -> None:
        files = _news(self._folder, {})[0]
        self._stream = self._train.remote(self._folder.name, files, self._trust_env, os.getcwd())

    def poll(self) -> int | None:
        """Write the returned files. Returns the exit code of the run's process, or None while it is running."""
        ray = _ray()
        while ray.wait([self._stream], timeout=0)[0]:
            try:
                files, there, code = ray.get(next(self._stream))
            except ray.exceptions.RayTaskError as error:
                return self._end(1, str(error.cause))
            except (ray.exceptions.RayError, StopIteration) as error:  # the node or the worker died
                self._losses += 1
                if self._losses > LOSSES:
                    return self._end(1, f"lost {self._losses} times in a row: {error}")
                self._submit()
                return None
            if files:
                self._losses = 0
                _write(self._folder, files, there)
            if code is not None:
                return self._end(code)
        return None

    def _end(self, code: int, message: str = "") -> int:
        if message:
            with (self._folder / LOG).open("a") as log:
                print(message, file=log)
        self._lock.close()
        return code

    def stop(self) -> None:
        """Cancel the task. Returned files stay; a later call continues from the newest checkpoint."""
        _ray().cancel(self._stream, force=False, recursive=True)

    def wait(self) -> None:
        self._lock.close()


def _train(  # runs on a node
    name: str, files: Files, trust_env: bool, here: str | None = None
) -> Iterator[tuple[Files, list[str], int | None]]:
    """Yield new files, the names of all files, and the exit code (None while running). The process runs in `here`, the
    command's folder, if it exists on the node, because a run may refer to code by file name."""
    with tempfile.TemporaryDirectory(prefix="scopil-") as place:
        folder = Path(place, name)
        _write(folder, files, list(files))
        _, seen = _news(folder, {})
        process = Process(folder, trust_env, here if here is not None and Path(here).is_dir() else None)
        try:
            while True:
                code = process.poll()
                news, seen = _news(folder, seen)
                yield news, list(seen), code
                if code is not None:
                    return
                time.sleep(CHECK)
        finally:
            process.stop()
            process.wait()


def _rank(path: str) -> int:
    """Order of writing: logs, then checkpoints, which refer to log lines, then the policy, which marks the end."""
    return 2 if path == POLICY else 1 if path.startswith("checkpoints/") else 0


def _news(folder: Path, seen: Stamps) -> tuple[Files, Stamps]:
    """New and changed files, and the stamps of all files. Policies and checkpoints are read before logs, so that the
    logs are at least as new."""
    news: Files = {}
    stamps: Stamps = {}
    paths = [p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")]
    for path in sorted(paths, key=lambda p: -_rank(p.relative_to(folder).as_posix())):
        name = path.relative_to(folder).as_posix()
        try:
            stat = path.stat()
            if seen.get(name) != (stat.st_mtime_ns, stat.st_size):
                news[name] = path.read_bytes()
        except FileNotFoundError:  # an old checkpoint, removed in the meantime
            continue
        stamps[name] = (stat.st_mtime_ns, stat.st_size)
    return news, stamps


def _write(folder: Path, files: Files, there: list[str]) -> None:
    """Write files in the order of `_rank`, then delete checkpoints that are not in `there`."""
    for path in sorted(files, key=_rank):
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise CheckpointError(f"a node sent a file named {path!r}, outside of the run's folder {folder}.")
        write_atomically(folder / path, files[path])
    for old in (folder / "checkpoints").glob("*"):
        if old.relative_to(folder).as_posix() not in there and not old.name.startswith("."):
            old.unlink()


def _refuse_reachable(ray: Any) -> None:
    found = [node["NodeManagerAddress"] for node in ray.nodes()]
    if not all(ipaddress.ip_address(one).is_loopback for one in found):
        ray.shutdown()
        raise ConfigError(
            f"Ray listens on {', '.join(found)}; want 127.0.0.1. Set {LOOPBACK}=0 before ray is imported."
        )


def _ray() -> Any:
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ConfigError('--engine ray needs Ray: pip install "scopil[ray]"') from error
    return ray
