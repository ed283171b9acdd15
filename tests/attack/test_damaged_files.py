"""Damaged and forged files of every kind are refused with a ScopilError, or read.

A few dozen mutations of each kind; `make attack` makes ten thousand (tests/attack/campaign.py).
"""

import random
import resource
import zipfile

import numpy as np
import pytest

import scopil
from attack.fuzz import attack, judged_bombs
from attack.targets import TARGETS
from scopil.errors import DatasetError, ScopilError
from scopil.files import read_npz

DAILY = 40


@pytest.mark.parametrize("name", TARGETS)
def test_a_mutated_file_raises_nothing_but_scopil_errors(name, tmp_path):
    score = attack(TARGETS[name](tmp_path), DAILY)
    assert not score.bad, score.faults
    assert score.counts["refused"] > 0
    assert score.counts["mutations"] == DAILY


@pytest.mark.parametrize("kind", ["f4", "u8", "M8[s]", "V4", "U7", "c16", "?", "i1"])
def test_arrays_in_memory_of_any_dtype_and_shape(kind):
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


def test_archive_bombs_are_refused_before_they_are_unpacked(tmp_path):
    """A few kilobytes that unpack to a gigabyte, lengths of terabytes, JSON nested a hundred thousand deep."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert judged_bombs(tmp_path, megabytes=300) == {"refused": 9}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 250 * 1024


def test_a_well_compressed_set_is_read(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", observations=np.zeros((200_001, 8), np.float32), actions=np.zeros(200_000))
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert archive.infolist()[0].file_size > 500 * archive.infolist()[0].compress_size
    assert read_npz((tmp_path / "a.npz").read_bytes()).keys() == {"observations", "actions"}


@pytest.mark.parametrize("source", ["a" * 300, "minari:" + "a" * 300, "a\x00b", "minari:../../x", "", "/"])
def test_invalid_names_of_sources_are_refused(source):
    with pytest.raises(ScopilError):
        scopil.load_demos(source)
