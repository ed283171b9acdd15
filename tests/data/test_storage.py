"""Files: the same set gives the same bytes, and every damage is detected."""

import hashlib
import io
import os
import pickle
import zipfile
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from samples import episode, small_set
from scopil import load_demos
from scopil.cli import main
from scopil.data import storage
from scopil.data.dataset import Demonstrations
from scopil.errors import DatasetError


def assert_same(a: Demonstrations, b: Demonstrations) -> None:
    assert (a.name, a.env_id, a.about, a.digest) == (b.name, b.env_id, b.about, b.digest)
    assert (a.observation_space, a.action_space) == (b.observation_space, b.action_space)


BIG = 2**62 + 1  # no float holds it
SETS = {
    "full": small_set(env_id="scopil/MarbleMaze-Simple-v0"),
    "bare": small_set(episodes=(episode(2, rewards=None, start=None),), about={}),
    "one sided box": small_set(observation_space=gym.spaces.Box(-1.0, np.inf, (4,), np.float32)),
    "float64": Demonstrations.from_arrays(
        [np.array([[0.1], [0.2]])], [[0]], observation_space=gym.spaces.Box(-0.3, 0.3, (1,), np.float64)
    ),
    "integers": Demonstrations.from_arrays(
        [np.array([[BIG], [-BIG]])], [[0]], observation_space=gym.spaces.Box(-BIG, BIG, (1,), np.int64)
    ),
    "shifted": small_set(
        action_space=gym.spaces.Discrete(3, start=-2), episodes=(episode(3, actions=np.array([-2, 0, -1])),)
    ),
    "odd words": small_set(name="Ünïcode [x]\n", about={"π": "≈ 3", "list": [1, None, True, {"deep": 0.1}]}),
}


@pytest.mark.parametrize("which", SETS)
def test_round_trip_is_bit_equal(which, tmp_path):
    demos = SETS[which]
    storage.write(demos, tmp_path / "set.npz")
    assert_same(read := storage.read(tmp_path / "set.npz"), demos)
    assert storage.to_bytes(read) == (tmp_path / "set.npz").read_bytes()
    with np.load(tmp_path / "set.npz", allow_pickle=False) as arrays:  # any NumPy reads the file
        np.testing.assert_array_equal(arrays["lengths"], [len(e) for e in demos])
        np.testing.assert_array_equal(arrays["actions"], demos.actions)
        np.testing.assert_array_equal(arrays["observations"], np.concatenate([e.observations for e in demos]))


def test_plain_pictures_are_stored_so_that_they_can_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr("scopil.files.SMALL", 2**10)  # in place of 256 MB
    pictures = np.zeros((4, 64, 64, 3), np.uint8)
    space = gym.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    plain = small_set(episodes=(episode(3, observations=pictures, rewards=None, start=None),), observation_space=space)
    for seen, stored in ((plain, True), (small_set(), False)):
        storage.write(seen, tmp_path / "a.npz")
        assert_same(storage.read(tmp_path / "a.npz"), seen)
        with zipfile.ZipFile(tmp_path / "a.npz") as archive:
            kinds = {member.compress_type for member in archive.infolist()}
        assert kinds == {zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED}
    np.savez_compressed(tmp_path / "b.npz", observations=pictures, actions=np.zeros(3))
    with pytest.raises(DatasetError, match="which no data of this kind does"):
        storage.read(tmp_path / "b.npz")


def test_infos_that_are_no_numbers_are_left_out_of_a_file(tmp_path):
    info = {"cost": np.arange(4.0), "word": np.array(["a"] * 4), "thing": np.array([None] * 4)}
    storage.write(small_set(episodes=(episode(3, info=info),)), tmp_path / "a.npz")
    read = storage.read(tmp_path / "a.npz").episodes[0].info
    assert read.keys() == {"cost"}
    np.testing.assert_array_equal(read["cost"], np.arange(4.0))


def test_same_set_same_bytes_and_another_set_others(monkeypatch):
    first = storage.to_bytes(small_set())
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert storage.to_bytes(small_set()) == first
    assert storage.to_bytes(small_set(about={"by": "tests", "seed": 0})) == first  # the order of keys says nothing
    assert storage.to_bytes(small_set(name="other")) != first


def test_every_flipped_byte_is_refused(tmp_path):
    """One bit at each place of a file; all bits, and the bit of a letter's case, in the archive's end and its seal."""
    whole = storage.to_bytes(small_set((1, 2)))
    path = tmp_path / "set.npz"
    for place in range(len(whole)):
        for mask in (0x01, 0x20, 0xFF) if place >= len(whole) - 300 else (0x01,):
            damaged = bytearray(whole)
            damaged[place] ^= mask
            path.write_bytes(damaged)
            with pytest.raises(DatasetError, match=r"checksum|not a readable"):
                storage.read(path)
    path.write_bytes(whole)
    storage.read(path)


def test_every_truncation_and_extension_is_refused(tmp_path):
    whole = storage.to_bytes(small_set((1, 2)))
    path = tmp_path / "set.npz"
    shorter = [whole[:n] for n in (*range(0, len(whole) - 200, 7), *range(len(whole) - 200, len(whole)))]
    for damaged in (*shorter, whole + b"\0", whole + b"x" * 100, whole + whole[:-1]):
        path.write_bytes(damaged)
        with pytest.raises(DatasetError, match=r"truncated|checksum"):
            storage.read(path)


def resealed(arrays: dict[str, np.ndarray], path: Path) -> None:
    """A file whose checksum is right and whose content is not."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = b"scopil sha256 " + b"0" * 64
    body = buffer.getvalue()[:-78]
    path.write_bytes(body + b"scopil sha256 " + hashlib.sha256(body).hexdigest().encode())


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({}, None),
        ({"observations": None}, "observations"),
        ({"header": np.array("not json")}, "damaged"),
        ({"header": np.array("[]")}, "damaged"),
        ({"header": np.array('{"format": "scopil-demonstrations", "version": 99}')}, "version 99"),
        ({"actions": np.zeros(8, int)}, "want 9 rows"),
        ({"observations": np.zeros((9, 4))}, "want 12 rows"),
        ({"lengths": np.array([3, 1, 6])}, "want 13 rows"),
        ({"lengths": np.array([3.0, 1.0, 5.0])}, "lengths float64"),
        ({"lengths": np.array([10, -6, 5])}, "lengths"),
        ({"lengths": np.array(9)}, "lengths"),
        ({"rewards": np.array(1.0)}, "rewards of shape"),
        ({"terminated": np.ones((3, 2), bool)}, "terminated of shape"),
        ({"info/x": np.zeros(9)}, "want a number for each of 12 states"),
        ({"info/x": np.full(12, "x")}, "info/x is <U1"),
        ({"actions": np.full(9, 3)}, "out of range"),
        ({"observations": np.full((12, 4), np.nan)}, "nan"),
    ],
)
def test_sound_bytes_with_unsound_content_are_refused(change, word, tmp_path):
    path = tmp_path / "set.npz"
    storage.write(small_set((3, 1, 5)), path)
    with np.load(path) as archive:
        arrays = dict(archive.items()) | change
    resealed({k: v for k, v in arrays.items() if v is not None}, path)
    if word is None:  # control: resealing alone does no harm
        assert_same(storage.read(path), small_set((3, 1, 5)))
        return
    with pytest.raises(DatasetError, match=word):
        storage.read(path)


# --- object arrays and pickles ----------------------------------------------------------------------------------------


def test_lists_of_episodes_are_not_called_damaged(tmp_path):
    obs, actions = np.empty(2, object), np.empty(2, object)
    obs[:], actions[:] = [np.zeros((4, 2)), np.zeros((3, 2))], [np.zeros(3, int), np.zeros(2, int)]
    np.savez(tmp_path / "ragged.npz", observations=obs, actions=actions)
    with pytest.raises(DatasetError, match="object arrays") as refused:
        load_demos(tmp_path / "ragged.npz")
    assert "damaged" not in str(refused.value)
    lengths = [len(a) for a in actions]  # as the error advises
    joined = {"observations": np.concatenate(obs), "actions": np.concatenate(actions), "lengths": lengths}
    np.savez(tmp_path / "joined.npz", **joined)
    assert [len(e) for e in load_demos(tmp_path / "joined.npz")] == lengths


class Payload:
    """Unpickled, it leaves a file behind."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return (os.mkdir, (str(self.mark),))


def test_pickles_are_refused_unopened(tmp_path):
    mark = tmp_path / "ran"
    trap = np.array([Payload(mark)], dtype=object)
    np.savez(tmp_path / "trap.npz", observations=trap, actions=trap)
    np.save(tmp_path / "trap.npy", trap, allow_pickle=True)
    for name in ("trap.pkl", "trap.x"):
        (tmp_path / name).write_bytes(pickle.dumps(Payload(mark)))
    for ending in ("npz", "npy", "pkl", "x", "json"):
        (tmp_path / f"trap.{ending}").touch()
        with pytest.raises(DatasetError, match="not a readable" if ending == "x" else r"np\.savez"):  # as advice
            load_demos(tmp_path / f"trap.{ending}")
        assert not mark.exists()
    np.savez(tmp_path / "infos.npz", observations=np.zeros((2, 1)), actions=np.zeros(1, int), infos=trap)
    assert load_demos(tmp_path / "infos.npz").about["assumed"][0] == "not used: infos"  # and not opened
    assert not mark.exists()
    np.load(tmp_path / "trap.npz", allow_pickle=True)["actions"]  # control: opened as a pickle, the trap works
    assert mark.exists()


# --- finding and writing ----------------------------------------------------------------------------------------------


def test_an_unknown_name_gets_the_names_there_are(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "LIBRARY", tmp_path)
    storage.write(small_set(), tmp_path / "maze" / "one-v1.npz")
    assert list(storage.library()) == ["maze/one-v1"]
    assert_same(load_demos("maze/one-v1"), small_set())
    with pytest.raises(DatasetError, match=r"'maze/two-v1'.*Shipped: maze/one-v1"):
        load_demos("maze/two-v1")
    assert load_demos(given := small_set()) is given


def test_a_check_reads_and_hashes_a_file_once(tmp_path, monkeypatch):
    small_set().save(tmp_path / "a.npz")
    hashed, unsealed = [], storage.unsealed
    monkeypatch.setattr(storage, "unsealed", lambda data: hashed.append(len(data)) or unsealed(data))
    assert main(["demos", "check", str(tmp_path / "a.npz")]) == 0
    assert len(hashed) == 1


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(DatasetError, match="csv"):
        load_demos(tmp_path)
    with pytest.raises(DatasetError, match="cannot write"):
        storage.write(small_set(), tmp_path)
    assert list(tmp_path.iterdir()) == []


FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("call", "error", "raised"), [("replace", FULL, DatasetError), ("fsync", KeyboardInterrupt(), KeyboardInterrupt)]
)
def test_a_failed_or_interrupted_write_leaves_the_old_file_and_nothing_else(call, error, raised, tmp_path, monkeypatch):
    path = tmp_path / "set.npz"
    storage.write(small_set(), path)
    before = path.read_bytes()

    def fail(*_):
        raise error

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(raised):
        storage.write(small_set(name="new"), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["set.npz"]


# --- formats of other packages ----------------------------------------------------------------------------------------


@pytest.fixture
def publish(monkeypatch):
    """Publish an object under the entry-point group, as another package would."""

    def give(thing) -> None:
        points = [SimpleNamespace(load=lambda: thing)]
        monkeypatch.setattr(storage, "entry_points", lambda group: points * (group == "scopil.demo_formats"))
        storage.installed.cache_clear()

    yield give
    storage.installed.cache_clear()


def test_a_format_of_another_package_is_read_and_checked(publish, capsys):
    made, ours = small_set(), "dream:"
    dream = {"name": "dream", "matches": lambda source: source.startswith(ours), "read": lambda source: made}
    publish(storage.Format(**dream, about=lambda source: f"dreamt at {source.removeprefix(ours)}"))
    assert load_demos("dream:noon") is made
    assert main(["demos", "check", "dream:noon"]) == 0
    assert "dreamt at noon" in capsys.readouterr().out
    with pytest.raises(DatasetError, match="nowhere"):
        load_demos("nowhere.npz")
    publish(print)  # no format
    with pytest.raises(DatasetError, match="demo_formats"):
        load_demos("marble-maze/simple-v1")
