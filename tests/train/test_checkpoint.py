"""Checkpoints: exact round trip, damage is detected, nothing is executed, the one before it survives."""

import errno
import os
import pickle
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load as load_safetensors

from scopil.buffers.replay import Replay
from scopil.errors import CheckpointError
from scopil.files import SEAL_BYTES, seal
from scopil.serialization import as_tree, load_tree, read_arrays, read_note, save_tree
from scopil.train.checkpoint import Checkpoints


class State(NamedTuple):
    learner: dict
    replay: Replay
    key: jax.Array
    flag: jax.Array
    steps: jax.Array


def state(added: int = 3, seed: int = 0, capacity: int = 10) -> State:
    rows = np.zeros((capacity, 4), np.float32)
    rows[: min(added, capacity)] = np.random.default_rng(seed).normal(size=(min(added, capacity), 4))
    return State(
        learner={"w": jnp.arange(6.0).reshape(2, 3) + seed, "b": (jnp.zeros(3), jnp.float32(-0.0))},
        replay=Replay(jnp.asarray(rows), jnp.int32(added)),
        key=jax.random.key(seed),
        flag=jnp.array([True, False]),
        steps=jnp.int32(seed),
    )


def plain(tree) -> list[np.ndarray]:
    is_key = lambda leaf: jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)  # noqa: E731
    leaves = jax.tree.leaves(tree)
    return [np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf) for leaf in leaves]


def assert_same(a, b) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(plain(a), plain(b)):
        assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())


@pytest.mark.parametrize("added", [0, 3, 10, 27])
def test_every_bit_comes_back(added, tmp_path):
    save_tree(tmp_path / "a.ckpt", state(added), {"seed": 1, "hidden": [8]})
    tree, note = load_tree(tmp_path / "a.ckpt", jax.eval_shape(lambda: state(0)))
    assert_same(tree, state(added))
    assert note == read_note(tmp_path / "a.ckpt") == {"seed": 1, "hidden": [8]}


def test_equal_states_give_equal_bytes_that_safetensors_reads(tmp_path):
    for name in ("a", "b"):
        save_tree(tmp_path / name, state(), {"x": 1})
    data = (tmp_path / "a").read_bytes()
    assert data == (tmp_path / "b").read_bytes()
    theirs = load_safetensors(data[:-SEAL_BYTES])
    ours = read_arrays(tmp_path / "a")[0]
    assert theirs.keys() == ours.keys()
    np.testing.assert_array_equal(theirs[".learner['w']"], state().learner["w"])
    assert theirs[".replay.rows"].shape == (3, 4)  # the empty part of the ring is not written


def test_a_branch_is_found_in_a_policy_and_in_a_checkpoint(tmp_path):
    save_tree(tmp_path / "whole", state(), {})
    save_tree(tmp_path / "policy", {"learner": state().learner}, {})
    for name in ("whole", "policy"):
        assert_same(load_tree(tmp_path / name, state().learner, within="learner")[0], state().learner)


def test_other_shapes_and_structures_are_refused(tmp_path):
    save_tree(tmp_path / "a", state(), {})
    wider = state()._replace(learner=state().learner | {"w": jnp.zeros((4, 3))})  # only a ring may be short
    with pytest.raises(CheckpointError, match=r"'w'.* is float32\(2, 3\); want float32\(4, 3\)"):
        load_tree(tmp_path / "a", wider)
    with pytest.raises(CheckpointError, match="another kind of state"):
        load_tree(tmp_path / "a", state()._replace(learner={"w": jnp.zeros((2, 3))}))
    save_tree(tmp_path / "full", state(10), {})
    with pytest.raises(CheckpointError, match=r"rows is float32\(10, 4\); want float32\(5, 4\)"):
        load_tree(tmp_path / "full", state(0, capacity=5))


def test_every_damage_is_detected(tmp_path):
    path = tmp_path / "a.ckpt"
    save_tree(path, state(), {"x": 1})
    data = path.read_bytes()
    for at in range(0, len(data), 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(CheckpointError):
            read_arrays(path)
    for length in [*range(0, len(data), 31), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(CheckpointError):
            read_arrays(path)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*No such file"):
        read_arrays(path)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


def test_nothing_in_a_file_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bomb = pickle.dumps(Bomb())
    np.save("bomb.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    for body in (bomb, (tmp_path / "bomb.npy").read_bytes()):
        for data in (body, body + seal(body)):
            (tmp_path / "a.ckpt").write_bytes(data)
            with pytest.raises(CheckpointError):
                load_tree(tmp_path / "a.ckpt", state())
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    "header", [b"[]", b"{}", b'{"__metadata__": 3}', b'{"__metadata__": {"scopil": "[]"}}', b"\xff"]
)
def test_sealed_nonsense_is_refused(header, tmp_path):
    body = len(header).to_bytes(8, "little") + header
    (tmp_path / "a").write_bytes(body + seal(body))
    with pytest.raises(CheckpointError, match="not readable"):
        read_arrays(tmp_path / "a")


# --- a folder of them ----------------------------------------------------------------------------------------------


@pytest.fixture
def three(tmp_path) -> Checkpoints:
    checkpoints = Checkpoints(tmp_path)
    for step in (5, 1000, 200):  # numbered by step, whatever the order of writing
        checkpoints.save(step, state(seed=step), {})
    return checkpoints


def newest(checkpoints: Checkpoints, like: Any) -> Any:
    found = checkpoints.read_newest()
    return None if found is None else as_tree(found[1], like, found[0])


def test_the_newest_two_are_kept(three):
    assert [int(f.stem) for f in three.files()] == [200, 1000]
    assert_same(newest(three, state()), state(seed=1000))
    assert newest(Checkpoints(three.folder / "none"), state()) is None


@pytest.mark.parametrize("spoil", [lambda d: d[:-1], lambda d: d[:100] + b"\x00" + d[101:], lambda d: b""])
def test_a_damaged_newest_falls_back_with_a_warning(spoil, three):
    file = three.files()[-1]
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.warns(UserWarning, match=r"000000001000\.ckpt.*Falling back"):
        assert_same(newest(three, state()), state(seed=200))


def test_damage_of_all_checkpoints_is_refused(three):
    for file in three.files():
        file.write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="Falling back"),
        pytest.raises(CheckpointError, match="no checkpoint is whole"),
    ):
        newest(three, state())


def test_a_whole_checkpoint_of_another_structure_is_refused(three):
    with pytest.raises(CheckpointError, match=r"000000001000\.ckpt: holds another kind of state"):
        newest(three, {"other": jnp.zeros(3)})


def test_a_full_disk_leaves_what_was_there(three, monkeypatch):
    before = {f.name: f.read_bytes() for f in three.folder.iterdir()}

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"cannot write .*2000\.ckpt: No space left"):
        three.save(2000, state(seed=2000), {})
    assert {f.name: f.read_bytes() for f in three.folder.iterdir()} == before
