"""Lists, curves, notes, reports and training jobs, answered in this process."""

import io
import json
import os
import shutil
import zipfile
from typing import Any

import numpy as np
import pytest

from runs import ENV, untrained_run
from samples import small_set
from scopil.data import storage
from scopil.errors import CheckpointError, ConfigError, DatasetError, EnvError
from scopil.registry import find
from scopil.train.logging import JsonLines
from scopil.user_code import python
from scopil_studio import listing, training_jobs, watching
from scopil_studio.recorder import mark_of
from scopil_studio.worker import StudioConfig, checked_call

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    rows = [{"env_steps": 5000 * i, "eval/reward": -float(i), "eval/violations": 0.5} for i in (1, 2)]
    untrained_run(folder / "runs" / "one", "scopil-rho", demos="marble-maze/simple-v1", rows=rows)
    (folder / "runs" / "damaged").mkdir()
    (folder / "runs" / "damaged" / "run.json").write_text(json.dumps({"title": HOSTILE}))
    (folder / "plain.npz").write_bytes(b"not an archive")
    shutil.copy(folder / "runs" / "one" / "policy.safetensors", folder / "mine.safetensors")
    (folder / "other.safetensors").write_bytes(b"no policy")
    (folder / "study").mkdir()
    (folder / "study" / "report.html").write_text("<h1>report</h1>")
    return folder


def test_an_overview_lists_files_and_their_faults(home):
    found = watching.overview(StudioConfig(home, envs=("my:Env-v0",)))
    runs = {run["name"]: run for run in found["runs"]}
    assert list(runs) == ["runs/damaged", "runs/one"]
    assert runs["runs/damaged"]["state"] == "damaged"
    one = runs["runs/one"]
    assert (one["state"], one["done"], one["reward"], one["playable"]) == ("finished", 10_000, -2.0, True)
    (plain,) = found["sets"]
    assert "not a readable .npz" in plain["problem"]
    assert found["reports"] == ["study"]
    mine, other = found["policies"]
    assert (mine["name"], mine["env"], mine["title"]) == ("mine.safetensors", ENV, find("scopil-rho").title)
    assert other["env"] is None
    assert found["envs"][0] == "my:Env-v0"
    assert "CartPole-v1" in found["envs"]
    json.dumps(found, allow_nan=False)


def archive(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in members.items():
            made.writestr(f"{name}.npy", data)


def header(**fields):
    text = io.BytesIO()
    np.save(text, np.array(json.dumps(fields)))
    return text.getvalue()


def test_hostile_files_are_listed_as_bad_unread_and_the_others_as_ever(tmp_path):
    storage.write(small_set(), tmp_path / "a.npz")
    (tmp_path / ".studio").mkdir()
    (tmp_path / "run").mkdir()
    for pipe in ("p.npz", "p.safetensors", "run/run.json", ".studio/x.json", ".studio/x.log"):
        os.mkfifo(tmp_path / pipe)
    for name in ("sparse.npz", "sparse.safetensors"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(3 * 2**30)
    zeros = bytes(listing.LARGEST_PART + 1)
    archive(tmp_path / "bomb.npz", header=zeros, lengths=b"")
    archive(tmp_path / "deep.npz", header=header()[:-2] + b"[" * 9, lengths=b"")
    archive(tmp_path / "other.npz", header=header(env_id=3), lengths=header())
    archive(tmp_path / "claims.npz", header=header(env_id="x"), lengths=header().replace(b"()", b"(9,)"))
    (tmp_path / "long.safetensors").write_bytes(b"\xff" * 100)
    (tmp_path / "directory.npz").write_bytes(b"PK\5\6" + bytes(8) + b"\xff" * 10)
    (tmp_path / "locator.npz").write_bytes(b"PK\6\7" + bytes(16) + b"PK\5\6" + bytes(18))
    found = watching.overview(StudioConfig(tmp_path))
    assert [s["name"] for s in found["sets"] if "problem" not in s] == ["a.npz"]
    assert len(found["sets"]) == 9
    assert (found["sets"][0]["episodes"], found["sets"][0]["steps"]) == (len(small_set()), small_set().pairs)
    assert [r["state"] for r in found["runs"]] == ["damaged"]
    assert all(p["problem"] and p["env"] is None for p in found["policies"])
    for name in ("p.npz", "sparse.npz"):
        reads: list[tuple[Any, tuple[str, ...]]] = [(watching.episodes, ()), (watching.drop, ("x",))]
        for read, args in reads:
            with pytest.raises(ConfigError):
                read(StudioConfig(tmp_path), name, *args)


def test_a_set_that_unpacks_to_too_much_is_not_opened(tmp_path, monkeypatch):
    storage.write(small_set(), tmp_path / "a.npz")
    monkeypatch.setattr(listing, "MOST_UNPACKED", 100)
    with pytest.raises(DatasetError, match="unpacks to"):
        watching.episodes(StudioConfig(tmp_path), "a.npz")


def test_a_file_has_a_time_limit_and_is_not_read_again(tmp_path, monkeypatch):
    ours, _theirs = os.pipe()
    calls = []

    def blocked(path):
        calls.append(path)
        try:
            return {"read": os.read(ours, 1)}
        except OSError as error:  # as an import does
            raise RuntimeError from error

    monkeypatch.setattr(listing, "SECONDS", 0.05)
    monkeypatch.setattr(listing, "_set_about", blocked)
    (tmp_path / "a.npz").write_bytes(b"x")
    assert "not read yet" in listing.set_about(tmp_path / "a.npz", until=0.0)["problem"]
    for _ in range(2):
        assert "not read within" in listing.set_about(tmp_path / "a.npz")["problem"]
    assert len(calls) == 1


def test_algorithms_are_imported_before_the_time_limit_of_a_run(home, monkeypatch):
    order = []
    monkeypatch.setattr(watching, "registered", lambda: order.append("algorithms") or {})
    monkeypatch.setattr(watching, "_summary", lambda *_: order.append("run"))
    watching.overview(StudioConfig(home))
    assert order[:2] == ["algorithms", "run"]


def test_a_run_has_the_curves_of_its_algorithm_and_rows_from_the_given_offset(home):
    config = StudioConfig(home)
    first = watching.run(config, "runs/one")
    assert [row["env_steps"] for row in first["rows"]] == [5000, 10_000]
    assert first["settings"]["algorithm"] == "scopil-rho"
    curves = [curve.metric for curve in find("scopil-rho").curves]
    assert [curve["metric"] for curve in first["curves"]] == ["eval/reward", "eval/violations", *curves]
    later = watching.run(config, "runs/one", first["offset"])
    assert (later["rows"], later["again"]) == ([], False)
    assert watching.run(config, "runs/one", 10**9)["again"]


def test_the_tail_of_metrics_waits_for_whole_lines_and_notices_a_shorter_file(tmp_path):
    lines = JsonLines(tmp_path / "m.jsonl")
    assert lines.tail(0) == ([], 0)
    lines.append({"env_steps": 1})
    rows, offset = lines.tail(0)
    with lines.path.open("ab") as file:
        file.write(b'{"env_steps": 2')
    assert (rows, lines.tail(offset)) == ([{"env_steps": 1}], ([], offset))
    with lines.path.open("ab") as file:
        file.write(b'}\nnonsense\n[1]\n{"env_steps": 3}\n')
    assert lines.tail(offset)[0] == [{"env_steps": 2}, {"env_steps": 3}]
    lines.path.write_text('{"env_steps": 1}\n')
    assert lines.tail(999)[0] == [{"env_steps": 1}]
    assert lines.tail(0, most=3) == ([], 0)  # not even one line


@pytest.mark.parametrize("name", ["..", "runs/../../x", "/etc", "runs/none", "runs", "study"])
def test_a_name_that_is_not_a_run_is_refused(home, name):
    with pytest.raises((ConfigError, CheckpointError)):
        watching.run(StudioConfig(home), name)


def test_links_out_of_the_folder_are_not_followed(home, tmp_path):
    here = shutil.copytree(home, tmp_path / "home")
    config = StudioConfig(here)
    assert watching.report(config, "study")[1] == b"<h1>report</h1>"
    (tmp_path / "secret").write_text('{"env_steps": 1, "password": 2}\n')
    (here / "runs" / "one" / "metrics.jsonl").unlink()
    (here / "runs" / "one" / "metrics.jsonl").symlink_to(tmp_path / "secret")
    (here / "report.html").symlink_to(tmp_path / "secret")
    with pytest.raises((ConfigError, CheckpointError)):
        watching.run(config, "runs/one")
    assert watching.overview(config)["runs"][1]["state"] == "damaged"
    assert "password" not in json.dumps(watching.overview(config))
    for name in ("..", ".", "runs", "study/report.html"):
        with pytest.raises((ConfigError, OSError)):
            watching.report(config, name)


def test_episodes_are_listed_and_dropped(tmp_path):
    storage.write(small_set(), tmp_path / "a.npz")
    config = StudioConfig(tmp_path)
    assert watching.episodes(config, "new.npz") == {"name": "new.npz", "episodes": []}
    found = watching.episodes(config, "a.npz")["episodes"]
    assert [e["mark"] for e in found] == [mark_of(e) for e in small_set()]
    assert len(watching.drop(config, "a.npz", found[0]["mark"])["episodes"]) == len(found) - 1
    with pytest.raises(DatasetError):
        watching.drop(config, "a.npz", "no such mark")
    with pytest.raises(ConfigError):
        watching.drop(config, "marble-maze/../../x.npz", found[0]["mark"])
    shipped = watching.episodes(config, "marble-maze/simple-v1")["episodes"]
    with pytest.raises(DatasetError):  # of the folder, not of the package
        watching.drop(config, "marble-maze/simple-v1", shipped[0]["mark"])


@pytest.fixture
def commands(monkeypatch):
    """The commands that would be started."""
    begun = []

    class Process:
        pid = os.getpid()

        def __init__(self, words, **options):
            begun.append(words)
            self.options = options

        def poll(self):
            return None

    monkeypatch.setattr(training_jobs.subprocess, "Popen", Process)
    monkeypatch.setattr(training_jobs, "_children", [])
    return begun


WANTED = {"name": "runs/new", "algorithm": "sac", "env": "CartPole-v1"}


def test_a_run_is_started_by_the_command_line(tmp_path, commands):
    storage.write(small_set(), tmp_path / "a.npz")
    options = {"hidden": "8,8", "batch_size": "64"}
    args = WANTED | {"demos": "a.npz", "steps": 500, "seed": 3, "options": options}
    checked_call(training_jobs.start, args, StudioConfig(tmp_path, ("CartPole-v1",), "my_rules.py"))
    (words,) = commands
    assert words[: len(python()) + 4] == [*python(), "-m", "scopil", "train", "sac"]
    assert {"--env=CartPole-v1", "--steps=500", "--seed=3", "--hidden=8,8", "--rules=my_rules.py"} <= set(words)
    assert f"--out={tmp_path / 'runs' / 'new'}" in words
    assert f"--demos={tmp_path / 'a.npz'}" in words
    (job,) = training_jobs.starting(tmp_path)
    assert job["name"] == "runs/new"
    assert not job["alive"]  # the process is this one, which trains nothing
    with pytest.raises(ConfigError, match="not trained"):
        training_jobs.stop(StudioConfig(tmp_path), "runs/new")


REFUSED = [{"name": "../x"}, {"env": "os:x-v0"}, {"env": "--out=/tmp/x"}, {"algorithm": "nothing"}, {"steps": 0}]
REFUSED += [{"algorithm": "--help"}, {"demos": "/etc/passwd"}, {"steps": 10**12}, {"options": {"hidden": 3}}]


@pytest.mark.parametrize("args", [*REFUSED, {"options": {"out": "/tmp/x"}}])
def test_no_argument_becomes_another_option_of_the_command(tmp_path, commands, args):
    with pytest.raises((ConfigError, EnvError)):
        checked_call(training_jobs.start, WANTED | args, StudioConfig(tmp_path))
    assert not commands
    checked_call(training_jobs.start, WANTED | {"name": "--help"}, StudioConfig(tmp_path))
    assert f"--out={tmp_path / '--help'}" in commands[0]


def test_notes_of_jobs_follow_no_link_and_name_only_training_processes(tmp_path, commands):
    (tmp_path / ".studio").mkdir()
    victim = tmp_path.with_suffix(".victim")
    victim.write_text("precious")
    (tmp_path / ".studio" / "runs__new.log").symlink_to(victim)
    with pytest.raises(ConfigError):
        checked_call(training_jobs.start, WANTED, StudioConfig(tmp_path))
    assert victim.read_text() == "precious"
    assert not commands
    for content in ('{"pid": 1}', f'{{"pid": {os.getpid()}}}', "[]", '{"pid": "x"}', "nonsense", '{"pid": -1}'):
        (tmp_path / ".studio" / "run.json").write_text(content)
        assert training_jobs.running(tmp_path, tmp_path / "run") is None


def test_settings_are_those_of_the_command_line(tmp_path):
    names = [s["name"] for s in watching.settings(StudioConfig(tmp_path), "scopil")["settings"]]
    assert {"discount", "hidden", "slack"} <= set(names)
    with pytest.raises(ConfigError):
        watching.settings(StudioConfig(tmp_path), "nothing")
    assert np.unique(names).size == len(names)
