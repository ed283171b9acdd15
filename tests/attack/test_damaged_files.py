"""Every file that scopil reads, damaged and forged: refused with an error of ours, or read as what it says.

A few dozen mutations of each in the daily tests; `make attack` makes ten thousand (tests/attack/campaign.py).
"""

import random
import resource
import zipfile

import numpy as np
import pytest

import scopil
from attack import mutations
from attack.fuzz import attack, judged_bombs
from attack.targets import TARGETS
from samples import small_set
from scopil.errors import DatasetError, ScopilError
from scopil.files import read_npz

DAILY = 40


@pytest.mark.parametrize("name", TARGETS)
def test_no_file_raises_anything_but_our_errors(name, tmp_path):
    score = attack(TARGETS[name](tmp_path), DAILY)
    assert not score.bad, score.faults
    assert score.counts["refused"] > 0
    assert score.counts["mutations"] == DAILY


@pytest.mark.parametrize("kind", ["f4", "u8", "M8[s]", "V4", "U7", "c16", "?", "i1"])
def test_arrays_in_memory_of_any_dtype_and_shape(kind):
    """The arrays of a caller, where nothing was ever a file."""
    rng = random.Random(kind)
    for _ in range(60):
        shapes = [(), (0,), (5,), (5, 2), (0, 3), (2, 3, 4), (5, 0)]
        arrays = {
            name: np.zeros(rng.choice(shapes), kind if rng.random() < 0.5 else "f4")
            for name in ("observations", "actions", "rewards", "terminals", "lengths", "starts")
            if rng.random() < 0.8 or name in ("observations", "actions")
        }
        try:
            scopil.load_demos(arrays).transitions()
        except ScopilError:
            continue


def test_structured_flags_and_whole_numbers_beyond_int64_are_refused():
    rows = {"observations": np.zeros((4, 2)), "actions": np.zeros(3, int)}
    for odd in (np.zeros(3, [("a", "f4")]), np.zeros(3, "M8[s]")):
        with pytest.raises(DatasetError):
            scopil.load_demos(rows | {"terminals": odd})
    with pytest.raises(DatasetError):
        scopil.load_demos(rows | {"actions": np.full(3, 2**64 - 1, np.uint64)})


def test_bombs_are_defused_before_they_are_unpacked(tmp_path):
    """A few kilobytes that unpack to a gigabyte, lengths of terabytes, JSON nested a hundred thousand deep."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert judged_bombs(tmp_path, megabytes=300) == {"refused": 10}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 250 * 1024


def test_a_compressed_set_is_no_bomb(tmp_path):
    """Data that compresses well, as constant columns do, is read."""
    np.savez_compressed(tmp_path / "a.npz", observations=np.zeros((200_001, 8), np.float32), actions=np.zeros(200_000))
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert archive.infolist()[0].file_size > 500 * archive.infolist()[0].compress_size
    found = read_npz((tmp_path / "a.npz").read_bytes())["observations"]
    assert found is not None
    assert found.shape == (200_001, 8)


@pytest.mark.parametrize("source", ["a" * 300, "minari:" + "a" * 300, "a\x00b", "minari:../../x", "", "/"])
def test_names_that_are_no_names(source):
    with pytest.raises(ScopilError):
        scopil.load_demos(source)


def test_damage_is_the_same_for_the_same_seed():
    data = bytes(range(256))
    assert mutations.damaged(data, random.Random(1)) == mutations.damaged(data, random.Random(1))
    assert small_set().digest == small_set().digest != small_set((3, 1, 4)).digest
