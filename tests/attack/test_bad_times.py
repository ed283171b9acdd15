"""Full disks, folders nobody may write to, no home, a clock that goes back, copies at the wrong moment, no memory."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

import scopil
from samples import small_set
from scopil.cli import main
from scopil.demos import store
from scopil.errors import CheckpointError, DatasetError, ScopilError
from scopil.evaluate.stored import read_evaluation, write_evaluation
from scopil.experiments import cluster
from scopil.train.checkpoint import Checkpoints
from scopil.train.sinks import JsonLines
from scopil.treefile import read_arrays, save_tree


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes, as on a disk that is almost full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_leaves_every_file_as_it_was(tmp_path):
    demos, lines = tmp_path / "demos.npz", JsonLines(tmp_path / "metrics.jsonl")
    found = {"env_steps": 1, "measures": {"greedy/unseen": [{"reward": 1.0}]}, "extra": {}}
    store.write(small_set(), demos)
    save_tree(tmp_path / "p", {"a": np.zeros(10)}, {})
    lines.append({"env_steps": 1})
    write_evaluation(tmp_path, {"policy": "x"}, found, {})
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    with room_for(100):
        with pytest.raises(DatasetError, match=r"cannot write .*Nothing was changed"):
            store.write(small_set((30,)), demos)
        with pytest.raises(CheckpointError, match=r"cannot write .*make room"):
            save_tree(tmp_path / "p", {"a": np.ones(1000)}, {})
        with pytest.raises(OSError, match="File too large"):
            write_evaluation(tmp_path, {"policy": "y"}, found | {"extra": {"a" * 200: {}}}, {})
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before
    with room_for(len(before[lines.path]) + 5), pytest.raises(CheckpointError, match="cannot write"):
        lines.append({"env_steps": 2})
    assert lines.rows() == [{"env_steps": 1}]  # half a line is none
    assert read_evaluation(tmp_path, {"policy": "x"}) is not None


def test_a_line_after_half_a_line_is_no_part_of_it(tmp_path):
    """The disk has room again, in the same process: the next line must not join the half before it."""
    lines = JsonLines(tmp_path / "metrics.jsonl")
    lines.append({"env_steps": 1})
    with room_for(lines.path.stat().st_size + 5), pytest.raises(CheckpointError):
        lines.append({"env_steps": 2})
    lines.append({"env_steps": 3})
    assert lines.rows() == [{"env_steps": 1}, {"env_steps": 3}]


@pytest.mark.parametrize("where", ["/proc/scopil/run", "/dev/null/run"])
def test_where_nobody_can_write_is_said_in_one_line(where, capsys):
    assert main(["demos", "import", "marble-maze/simple-v1", "--out", f"{where}/a.npz"]) == 2
    assert main(["train", "sac", "--out", where, "--hidden", "8"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 2
    assert err.count("error: ") == 2


def test_no_home_is_needed(monkeypatch):
    """Minari keeps its datasets there; asked for one, it is a refusal, and nothing else asks."""
    monkeypatch.setenv("HOME", "/proc/none")
    monkeypatch.delenv("MINARI_DATASETS_PATH", raising=False)
    with pytest.raises(ScopilError):
        scopil.load_demos("minari:a/b-v0")
    bare = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME")}
    command = [sys.executable, "-m", "scopil", "demos", "list"]
    done = subprocess.run(command, env=bare | {"HOME": "/proc/none"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="Linux lists what a process has mapped")
def test_no_shared_memory_is_used():
    """Containers give /dev/shm 64 megabytes, or none."""

    def mapped() -> list[str]:
        return [line for line in Path("/proc/self/maps").read_text().splitlines() if "/dev/shm" in line]

    before = mapped()  # what other tests of this process have left
    agent = scopil.SAC("scopil/MarbleMaze-Simple-v0", hidden=(8,))
    agent.predict(np.zeros(8, np.float32))
    assert mapped() == before


def test_a_clock_that_goes_back_hides_no_file_from_a_cluster(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("1\n")
    _, stamps = cluster._news(tmp_path, {})
    (tmp_path / "metrics.jsonl").write_text("2\n")
    os.utime(tmp_path / "metrics.jsonl", (1, 1))  # 1970
    assert cluster._news(tmp_path, stamps)[0] == {"metrics.jsonl": b"2\n"}


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a second file system")
def test_another_file_system_than_that_of_temporary_files(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        store.write(small_set(), Path(place) / "demos.npz")
        assert store.read(Path(place) / "demos.npz").digest == small_set().digest
        assert os.listdir(place) == ["demos.npz"]


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
            with suppress(shutil.Error):  # an old checkpoint went while it was copied
                shutil.copytree(tmp_path / "run", copy)
            for file in Checkpoints(copy / "checkpoints").files():
                arrays, note = read_arrays(file)
                assert np.all(arrays["['a']"] == note["env_steps"])
            rows = JsonLines(copy / "metrics.jsonl").rows()
            assert [row["env_steps"] for row in rows] == list(range(1, len(rows) + 1))
    finally:
        stop.set()
        writer.join()


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes")]
)
def test_out_of_memory_is_one_line(error, monkeypatch, tmp_path, capsys):
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("scopil.cli.demos.store.load_demos", fail)
    assert main(["demos", "show", "marble-maze/simple-v1"]) == 2
    err = capsys.readouterr().err
    assert "out of memory" in err
    assert "what was saved before is whole" in err
    assert err.count("\n") == 1
