"""The Ray engine: the files that are sent, and (slow) two real Ray nodes of which one is killed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scopil.cli import main
from scopil.errors import ConfigError
from scopil.train.run import last_output
from scopil_bench import local, ray_cluster

WRITES = """
import pathlib, sys
run = pathlib.Path(sys.argv[1])
assert (run / "run.json").read_text() == "{}", "the run's files came first"
(run / "metrics.jsonl").write_text("1\\n2\\n")
(run / "checkpoints" / "2.ckpt").write_bytes(b"two")
(run / "checkpoints" / "1.ckpt").unlink()
(run / "policy.safetensors").write_bytes(b"done")
(run / ".lock").write_bytes(b"mine")
"""


@pytest.fixture
def pretend(monkeypatch):
    def use(code: str) -> None:
        real = subprocess.Popen
        monkeypatch.setattr(
            local.subprocess,
            "Popen",
            lambda command, **options: real([sys.executable, "-S", "-c", code, command[-1]], **options),
        )

    monkeypatch.setattr(ray_cluster, "CHECK", 0.01)
    return use


def created(folder: Path) -> Path:
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    (folder / "metrics.jsonl").write_text("1\n")
    (folder / "checkpoints" / "1.ckpt").write_bytes(b"one")
    return folder


def train(folder: Path) -> int | None:
    """Train as a node does, and write the returned files. Returns the exit code."""
    codes = []
    for files, there, code in ray_cluster._train("scopil-0", ray_cluster._news(folder, {})[0], False):
        ray_cluster._write(folder, files, there)
        codes.append(code)
    assert set(codes[:-1]) <= {None}
    return codes[-1]


def test_a_run_is_returned_as_its_node_wrote_it(pretend, tmp_path):
    pretend(WRITES)
    folder = created(tmp_path / "scopil-0")
    assert train(folder) == 0
    assert (folder / "metrics.jsonl").read_text() == "1\n2\n"
    assert [p.name for p in (folder / "checkpoints").iterdir()] == ["2.ckpt"]
    assert (folder / "policy.safetensors").read_bytes() == b"done"
    assert not (folder / ".lock").exists()


def test_a_failing_run_returns_its_log(pretend, tmp_path):
    pretend("import sys; print('error: out of luck'); sys.exit(2)")
    folder = created(tmp_path / "scopil-0")
    assert train(folder) == 2
    assert last_output(folder) == "error: out of luck"


def test_a_checkpoint_is_never_newer_than_its_lines(tmp_path, monkeypatch):
    """It is read before its log lines and written after them; so is a policy, which marks a finished run."""
    folder = created(tmp_path / "run")
    (folder / "policy.safetensors").write_bytes(b"done")
    files, stamps = ray_cluster._news(folder, {})
    assert list(files)[:2] == ["policy.safetensors", "checkpoints/1.ckpt"]
    assert len(files) == 4
    written = []
    monkeypatch.setattr(ray_cluster, "write_atomically", lambda path, data: written.append(path.name))
    ray_cluster._write(tmp_path / "other", files, list(stamps))
    assert written[-2:] == ["1.ckpt", "policy.safetensors"]
    assert ray_cluster._news(folder, stamps)[0] == {}


def test_rays_options_without_ray_are_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    argv = ["reproduce", "--budget", "short", "--only", "multiple", "--out", str(tmp_path)]
    for options, message in ((["--address", "here:1"], "add --engine ray"), (["--engine", "ray"], "scopil[ray]")):
        assert main([*argv, *options]) == 2
        assert message in capsys.readouterr().err


class PretendRay:
    """Records the environment at `init`, and reports a given address."""

    def __init__(self, listens: str):
        self.listens, self.running = listens, False
        self.seen: dict[str, str] = {}

    def init(self, address, **options):
        self.seen, self.running = dict(os.environ), True

    def nodes(self):
        return [{"NodeManagerAddress": self.listens}]

    def shutdown(self):
        self.running = False

    def remote(self, function):
        return self

    def options(self, **options):
        return self


@pytest.fixture
def pretend_ray(monkeypatch) -> PretendRay:
    for name in (ray_cluster.LOOPBACK, "RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, "")  # restored afterwards
        monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "ray", ray := PretendRay("192.0.2.2"))
    return ray


def test_ray_on_this_machine_listens_on_loopback(pretend_ray):
    pretend_ray.listens = "127.0.0.1"
    ray_cluster.Cluster()
    assert pretend_ray.running
    assert (pretend_ray.seen[ray_cluster.LOOPBACK], pretend_ray.seen["RAY_AUTH_MODE"]) == ("0", "token")


def test_ray_on_an_external_address_is_stopped(pretend_ray):
    """An earlier import of Ray, or another version, may ignore the settings."""
    with pytest.raises(ConfigError, match="192"):
        ray_cluster.Cluster()
    assert not pretend_ray.running


def test_a_shared_cluster_keeps_the_settings_of_its_owner(pretend_ray):
    ray_cluster.Cluster("192.0.2.2:6379")
    assert pretend_ray.running
    assert "RAY_AUTH_MODE" not in pretend_ray.seen


@pytest.mark.slow
def test_a_real_ray_listens_on_loopback_alone(tmp_path):
    """In a separate process: Ray reads its settings when it is imported."""
    pytest.importorskip("ray")
    code = "from scopil_bench.ray_cluster import Cluster; c = Cluster(); print('up', flush=True); input(); c.close()"
    before = listening()
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"HOME": str(tmp_path)},
    ) as child:
        assert child.stdout is not None
        assert any(line == "up\n" for line in child.stdout)
        found = listening() - before
        child.communicate("\n")
    assert child.returncode == 0
    assert found
    assert {address for address in found if not _loopback(address)} == set()


def listening() -> set[str]:
    """Listening addresses and ports of this machine, as Linux lists them."""
    tables = (Path("/proc/net", name).read_text() for name in ("tcp", "tcp6"))
    lines = [line.split() for table in tables for line in table.splitlines()]
    return {line[1] for line in lines if line[3] == "0A"}


def _loopback(address: str) -> bool:
    host = address.partition(":")[0]
    return host in ("0100007F", "0000000000000000FFFF00000100007F", "0" * 24 + "01000000")


@pytest.mark.slow
def test_a_node_dies_and_the_tables_are_the_same(tmp_path):
    """Two nodes of one core each; the one that trains seed 0 is killed once a checkpoint has been returned."""
    argv = ["reproduce", "--budget", "short", "--only", "two-modes", "--seeds", "2"]
    run = tmp_path / "ray" / "runs" / "two-modes" / "scopil-0"
    tables_after_a_death(tmp_path, argv, run, lambda: list(run.glob("checkpoints/*.ckpt")))
    steps = [json.loads(line)["env_steps"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps))


def tables_after_a_death(folder: Path, argv: list[str], run: Path, returned: Callable[[], Any]) -> str:
    """Run a command in `folder` on this machine and on Ray, where the node of `run` is killed once something has been
    `returned`. Returns the tables, which must be the same."""
    pytest.importorskip("ray")
    start = lambda name, *more: subprocess.Popen(  # noqa: E731
        [sys.executable, "-m", "scopil", *argv, "--out", name, *more], cwd=folder
    )
    assert start("local").wait(900) == 0
    with ray_nodes() as (address, kill_node_of):
        remote = start("ray", "--engine", "ray", "--address", address)
        while not returned():
            assert remote.poll() is None
            time.sleep(0.1)
        assert not (run / "policy.safetensors").exists()
        kill_node_of(run.name)
        assert remote.wait(900) == 0
    for name in ("results.json", "results.csv", "tables.md"):
        assert (folder / "local" / name).read_bytes() == (folder / "ray" / name).read_bytes()
    return (folder / "ray" / "tables.md").read_text()


MY_ENV = """
import gymnasium as gym, numpy as np

class Walk(gym.Env):
    observation_space = gym.spaces.Dict(x=gym.spaces.Box(-9.0, 9.0, (1,), np.float32))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.clock = self.np_random.uniform(-1, 1), 0
        return {"x": np.array([self.x], np.float32)}, {}

    def step(self, action):
        self.x, self.clock = self.x + 0.3 * (2 * int(action) - 1), self.clock + 1
        return {"x": np.array([self.x], np.float32)}, self.x, self.clock == 20, False, {}
"""
MY_STUDY = """
env = "my_env.py:Walk"
rules = "my_rules.py"
methods = ["sac"]
seeds = 2
steps = 15_000
episodes = 5
checkpoint_every = 100_000
[overrides]
hidden = [8]
batch_size = 32
"""


@pytest.mark.slow
def test_a_node_dies_in_a_study_from_a_file(tmp_path):
    """An environment and rules in files. The run of the dead node has no checkpoint yet: it starts again on the other
    node, with the same result."""
    (tmp_path / "my_env.py").write_text(MY_ENV)
    (tmp_path / "my_rules.py").write_text('def right(obs, action, next_obs): return next_obs["x"][0] > 2\n')
    (tmp_path / "mine.toml").write_text(MY_STUDY)
    run = tmp_path / "ray" / "runs" / "mine" / "sac-0"
    log = run / "metrics.jsonl"
    tables = tables_after_a_death(tmp_path, ["study", "mine.toml"], run, lambda: log.exists() and log.read_text())
    assert "Violations (right)" in tables


@contextmanager
def ray_nodes():
    """A head without cores and two nodes with one each, as real processes."""
    from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports] (an extra)

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    both = [made.add_node(num_cpus=1) for _ in range(2)]
    made.wait_for_nodes()

    def kill_node_of(run: str) -> None:
        """The node above the process whose command line ends with the run's folder."""
        for node in both:
            raylet = node.all_processes["raylet"][0].process.pid
            if any(run in command for command in _below(raylet)):
                made.remove_node(node, allow_graceful=False)
                return
        raise AssertionError(f"no node trains {run}")

    try:
        yield made.address, kill_node_of
    finally:
        made.shutdown()


def _below(pid: int) -> list[str]:
    """Command lines of all processes below one."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = (int(stat[1]), (entry / "cmdline").read_text())
            except (OSError, ProcessLookupError):
                continue
    found, todo = [], [pid]
    while todo:
        above = todo.pop()
        for child, (parent, command) in parents.items():
            if parent == above:
                todo.append(child)
                found.append(command)
    return found
