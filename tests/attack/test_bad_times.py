"""Full disks, read-only folders, no home, a clock that goes back, copies during writes, no memory."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import scopil
from runs import untrained_run
from samples import small_set
from scopil.cli import main
from scopil.data import storage
from scopil.errors import CheckpointError, DatasetError, ScopilError
from scopil.serialization import read_arrays, save_tree
from scopil.train.checkpoint import Checkpoints
from scopil.train.logging import JsonLines, tensorboard
from scopil_bench import ray_cluster
from scopil_bench.cache import read_evaluation, write_evaluation
from scopil_studio import listing
from scopil_studio.worker import StudioConfig

COMMANDS = "import sys; from scopil.cli import main; print([main(a.split()) for a in sys.argv[1:]])"
EVALUATED = {"env_steps": 1, "measures": {"greedy/unseen": [{"reward": 1.0}]}, "extra": {}}


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes, as on a disk that is almost full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture(scope="module")
def own_mounts() -> Callable[..., subprocess.CompletedProcess]:
    """Runs Python code in a process with its own file systems, which the shell command `mounts` makes."""

    def run(mounts: str, code: str, *argv: object, **env: str) -> subprocess.CompletedProcess:
        paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "-"]
        return subprocess.run(
            [*command, sys.executable, "-c", code, *map(str, argv)],
            env=os.environ | {"PYTHONPATH": paths} | env,
            capture_output=True,
            text=True,
        )

    try:
        possible = run("mount -t tmpfs none /mnt", "").returncode == 0
    except OSError:
        possible = False
    if not possible:
        pytest.skip("needs unshare and a kernel that lets users mount")
    return run


def test_a_file_size_limit_leaves_every_file_unchanged(tmp_path):
    with files_unchanged(tmp_path), file_size_limit(100):
        write_more(tmp_path)


def test_a_full_disk_leaves_every_file_unchanged(own_mounts, tmp_path):
    """A file system of 200 kilobytes, filled to its last byte."""
    mount = f"mount -t tmpfs -o size=200k none {tmp_path}"
    done = own_mounts(mount, "from attack.test_bad_times import *; on_a_full_disk(sys.argv[1])", tmp_path)
    assert (done.returncode, done.stdout) == (0, "No space left on device\n"), done.stderr


def on_a_full_disk(place: str) -> None:
    with files_unchanged(Path(place)), (Path(place) / "filler").open("wb", buffering=0) as filler:
        try:
            while filler.write(b"x" * 100):
                pass
        except OSError as error:
            print(error.strerror)
        write_more(Path(place))


@contextmanager
def files_unchanged(folder: Path) -> Iterator[None]:
    """Files of several kinds are the same before and after."""
    storage.write(small_set(), folder / "demos.npz")
    save_tree(folder / "p", {"a": np.zeros(10)}, {})
    write_evaluation(folder, {"policy": "x"}, EVALUATED, {})
    before = {p: p.read_bytes() for p in folder.iterdir()}
    yield
    assert {p: p.read_bytes() for p in folder.iterdir() if p.name != "filler"} == before
    assert read_evaluation(folder) is not None


def write_more(folder: Path) -> None:
    with pytest.raises(DatasetError, match="cannot write"):
        storage.write(small_set((3000,)), folder / "demos.npz")
    with pytest.raises(CheckpointError, match="cannot write"):
        save_tree(folder / "p", {"a": np.ones(30_000)}, {})
    with pytest.raises(OSError, match=r"File too large|No space left"):
        write_evaluation(folder, {"policy": "y"}, EVALUATED | {"extra": {"a" * 20_000: {}}}, {})


def test_a_read_only_folder_is_an_error_of_one_line(own_mounts, tmp_path):
    folder = untrained_run(tmp_path / "run").folder
    (folder / "policy.safetensors").unlink()
    before = sorted(p.name for p in folder.iterdir())
    mount = f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}"
    importing = f"demos import marble-maze/simple-v1 --out {folder}/a.npz"
    done = own_mounts(mount, COMMANDS, f"resume {folder}", f"resume {folder} --steps 2000", importing)
    assert done.stdout == "[2, 2, 2]\n", done.stderr
    assert done.stderr.count("\n") == done.stderr.count("error: ") == 3, done.stderr
    assert sorted(p.name for p in folder.iterdir()) == before


def test_the_studio_reads_a_folder_that_it_cannot_write(own_mounts, tmp_path):
    """Each change is refused in one line, and nothing is left behind."""
    untrained_run(tmp_path / "run", "bc", demos="marble-maze/simple-v1")
    storage.write(small_set(), tmp_path / "demos.npz")
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    mount = f"mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path}"
    done = own_mounts(mount, "from attack.test_bad_times import *; in_a_read_only_studio(sys.argv[1])", tmp_path)
    assert done.returncode == 0, done.stderr
    refused = done.stdout.splitlines()
    assert len(refused) == 5, done.stdout
    assert all("cannot write" in line or "Read-only file system" in line for line in refused), done.stdout
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before


def in_a_read_only_studio(place: str) -> None:
    from scopil_studio import recording, watching
    from scopil_studio.recorder import mark_of

    config = StudioConfig(Path(place))
    seen = watching.overview(config)
    assert [run["state"] for run in seen["runs"]] == ["finished"]
    assert [found["episodes"] for found in seen["sets"]] == [3]
    mark = mark_of(small_set().episodes[0])
    pole: Any = {"env": "CartPole-v1", "keys": "a=0,d=1"}
    for change in (
        lambda: watching.drop(config, "demos.npz", mark),
        lambda: watching.start(config, "new", "sac", "CartPole-v1"),
        lambda: watching.resume(config, "run", "demos.npz", 2000),
        lambda: recording.Playing(config, file="new.npz", **pole),
        lambda: recording.Playing(config, file="deep/new.npz", **pole),
    ):
        try:
            change()
        except (ScopilError, OSError) as error:
            print(error)


@pytest.mark.slow
def test_a_run_without_a_home_and_without_shared_memory(own_mounts, tmp_path):
    tiny = "--hidden 8 --batch-size 32 --replay-size 2000 --steps 600 --verbosity quiet"
    run = tmp_path / "run"
    done = own_mounts(
        "mount -t tmpfs -o ro none /dev/shm", COMMANDS, f"train sac --out {run} {tiny}", f"evaluate {run}",
        HOME="/proc/none", XDG_CACHE_HOME="",
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[0, 0]", done.stderr
    assert "no log for TensorBoard: Read-only file system" in " ".join(done.stdout.split())


def test_a_half_written_line_is_ignored_and_the_next_line_does_not_join_it(tmp_path):
    lines = JsonLines(tmp_path / "metrics.jsonl")
    lines.append({"env_steps": 1})
    with file_size_limit(lines.path.stat().st_size + 5), pytest.raises(CheckpointError, match="cannot write"):
        lines.append({"env_steps": 2})
    assert lines.rows() == [{"env_steps": 1}]
    lines.append({"env_steps": 3})
    assert lines.rows() == [{"env_steps": 1}, {"env_steps": 3}]


@pytest.mark.parametrize("where", ["/proc/scopil/run", "/dev/null/run"])
def test_a_place_without_files_is_an_error_of_one_line(where, capsys):
    assert main(["demos", "import", "marble-maze/simple-v1", "--out", f"{where}/a.npz"]) == 2
    assert main(["train", "sac", "--out", where, "--hidden", "8"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 2
    assert err.count("error: ") == 2


def test_no_home_is_needed(monkeypatch):
    """Only Minari datasets are kept there."""
    monkeypatch.setenv("HOME", "/proc/none")
    monkeypatch.delenv("MINARI_DATASETS_PATH", raising=False)
    with pytest.raises(ScopilError):
        scopil.load_demos("minari:a/b-v0")
    command = [sys.executable, "-m", "scopil", "demos", "list"]
    done = subprocess.run(command, env=os.environ | {"XDG_CACHE_HOME": ""}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_semaphores_only_the_tensorboard_log_is_lost(tmp_path, monkeypatch):
    """TensorBoard's writer needs a semaphore, which needs /dev/shm."""
    refuse = Mock(side_effect=OSError(errno.EROFS, "Read-only file system"))
    monkeypatch.setattr("tensorboardX.SummaryWriter", refuse)
    with pytest.warns(UserWarning, match="no log for TensorBoard"), tensorboard(tmp_path, 0) as write:
        write(1, {"a": 1.0})


def test_a_clock_that_goes_back_hides_no_file_from_a_cluster(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("1\n")
    _, stamps = ray_cluster._news(tmp_path, {})
    (tmp_path / "metrics.jsonl").write_text("2\n")
    os.utime(tmp_path / "metrics.jsonl", (1, 1))  # 1970
    assert ray_cluster._news(tmp_path, stamps)[0] == {"metrics.jsonl": b"2\n"}


def test_a_clock_that_stands_still_hides_no_file_from_the_studio(tmp_path):
    """A file of the same size and time is another file."""
    sizes = set()
    for name in ("a/b-v0", "b/a-v0"):
        storage.write(replace(small_set(), env_id=name), tmp_path / "demos.npz")
        os.utime(tmp_path / "demos.npz", (1, 1))
        sizes.add((tmp_path / "demos.npz").stat().st_size)
        assert listing.set_about(tmp_path / "demos.npz")["env"] == name
    assert len(sizes) == 1


def test_a_folder_copied_while_it_is_written_can_be_opened(tmp_path):
    kept, lines = Checkpoints(tmp_path / "run" / "checkpoints"), JsonLines(tmp_path / "run" / "metrics.jsonl")
    (tmp_path / "run").mkdir()
    stop = threading.Event()

    def write() -> None:
        step = 0
        while not stop.is_set():
            step += 1
            lines.append({"env_steps": step})
            kept.save(step, {"a": np.full(30_000, step)}, {"env_steps": step})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while not kept.files():
            pass
        for i in range(15):
            copy = tmp_path / f"copy-{i}"
            with suppress(shutil.Error):  # an old checkpoint was removed during the copy
                shutil.copytree(tmp_path / "run", copy)
            for file in Checkpoints(copy / "checkpoints").files():
                arrays, note = read_arrays(file)
                assert np.all(arrays["['a']"] == note["env_steps"])
            rows = JsonLines(copy / "metrics.jsonl").rows()
            assert [row["env_steps"] for row in rows] == list(range(1, len(rows) + 1))
    finally:
        stop.set()
        writer.join()


OUT_OF_MEMORY = "RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes"


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError(OUT_OF_MEMORY), ValueError(OUT_OF_MEMORY)])
def test_out_of_memory_is_one_line(error, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("scopil.data.storage.load_demos", Mock(side_effect=error))
    assert main(["demos", "show", "marble-maze/simple-v1"]) == 2
    err = capsys.readouterr().err
    assert "out of memory" in err
    assert err.count("\n") == 1
