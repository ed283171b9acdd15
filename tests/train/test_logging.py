"""Logs: rows survive kills and rewrites byte for byte; TensorBoard and Weights & Biases get the same numbers."""

import builtins
import math
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from scopil.errors import CheckpointError, ConfigError
from scopil.train.logging import JsonLines, WandbCallback, parse_row, tensorboard
from scopil.train.trainer import TrainStatus

ROWS = [{"env_steps": n, "loss": 1 / (n + 3), "return": -1e-30 * n, "eval/λ": 7.0} for n in range(0, 50, 10)]


@pytest.fixture
def lines(tmp_path) -> JsonLines:
    lines = JsonLines(tmp_path / "metrics.jsonl")
    for row in ROWS:
        lines.append(row)
    return lines


def test_rows_come_back(lines, tmp_path):
    assert lines.rows() == ROWS
    assert JsonLines(tmp_path / "none.jsonl").rows() == []


def test_nan_and_infinity_are_null(lines):
    lines.append({"a": math.nan, "b": -math.inf, "c": 3})
    assert lines.path.read_text().splitlines()[-1] == '{"a": null, "b": null, "c": 3}'


def test_a_cut_anywhere_and_a_rewrite_give_the_same_file(lines):
    whole = lines.path.read_bytes()
    two = len(b"".join(whole.splitlines(keepends=True)[:2]))
    for length in range(two, len(whole) + 1):
        lines.path.write_bytes(whole[:length])
        lines.keep(lambda row: row["env_steps"] <= 10)
        assert lines.path.read_bytes() == whole[:two]
    for row in ROWS[2:]:
        lines.append(row)
    assert lines.path.read_bytes() == whole


@pytest.mark.parametrize("tail", [b'{"env_steps": 50, "lo', b"\x00\x00\x00", b'{"a": "\xff\n', b'{"env_steps": 5'])
def test_a_broken_last_line_is_dropped(tail, lines):
    with lines.path.open("ab") as file:
        file.write(tail)
    assert lines.rows() == ROWS


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"cannot write .*x\.jsonl: No such file"):
        JsonLines(tmp_path / "nowhere" / "x.jsonl").append({"a": 1})


# --- TensorBoard -------------------------------------------------------------------------------------------------


def events(folder: Path) -> list:
    """The events of the files. A record: length, its checksum, the message, its checksum."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    found = []
    for file in sorted((folder / "tensorboard").iterdir()):
        data, at = file.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            found.append(event_pb2.Event.FromString(data[at + 12 : at + 12 + length]))
            at += 16 + length
    return found


def test_tensorboard_gets_every_finite_number(tmp_path):
    pytest.importorskip("tensorboardX")
    with tensorboard(tmp_path, 10) as write:
        write(20, {"env_steps": 20, "loss": 0.5, "return": math.nan})
        write(30, {"env_steps": 30, "loss": 0.25, "return": -2.0})
    found = events(tmp_path)
    scalars = [(e.step, v.tag, v.simple_value) for e in found for v in e.summary.value]
    assert scalars == [(20, "loss", 0.5), (30, "loss", 0.25), (30, "return", -2.0)]
    assert [e.step for e in found if e.HasField("session_log")] == [11]  # step 10 itself stays


def test_without_tensorboard_nothing_happens(tmp_path, monkeypatch):
    real = builtins.__import__

    def no_tensorboard(name, *args, **kwargs):
        if name.startswith("tensorboardX"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_tensorboard)
    with tensorboard(tmp_path, 0) as write:
        write(1, {"loss": 0.5})
    assert list(tmp_path.iterdir()) == []


def test_weights_and_biases_gets_every_row(monkeypatch):
    began, logged, ended = [], [], []
    run = SimpleNamespace(log=lambda row, step: logged.append((step, row)), finish=lambda: ended.append(True))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **o: began.append(o) or run))
    callback = WandbCallback("mine", "runs/a b", {"seed": 3})
    callback(TrainStatus(500, {"env_steps": 500, "loss": 0.5, "episode/return": math.nan}, None))
    callback.close()
    assert began == [
        {"project": "mine", "name": "runs/a b", "id": "runs-a-b", "resume": "allow", "config": {"seed": 3}}
    ]
    assert (logged, ended) == ([(500, {"loss": 0.5})], [True])


def test_weights_and_biases_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r'pip install "scopil\[wandb\]"'):
        WandbCallback("mine")


def test_a_number_beyond_floats_is_refused():
    assert parse_row(b'{"env_steps": 1, "a": 1%s}' % (b"0" * 300))["a"] == 10**300
    with pytest.raises(ValueError, match="a is"):
        parse_row(b'{"env_steps": 1, "a": 1%s}' % (b"0" * 400))
