"""Minari in both directions: without loss, without a network, and without partial datasets."""

import sys
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from hosts import Walk
from samples import episode, small_set
from scopil import load_demos
from scopil.data import hdf5, storage
from scopil.data import minari as exchange
from scopil.data.dataset import Demonstrations
from scopil.data.minari import from_minari, to_minari
from scopil.envs.gym_env import HostEnv
from scopil.errors import DatasetError, ScopilError
from scopil.train.demo_data import demo_data

minari = pytest.importorskip("minari")


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def everything_in(root: Path) -> list[str]:
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*"))


PIXELS = gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)
SETS = {
    "marble maze": small_set(
        env_id="scopil/MarbleMaze-Simple-v0",
        observation_space=gym.spaces.Box(-1.0, 1.0, (4,), np.float32),
        about={"seed": 3, "planner": {"beam": 3000, "clearance": 15.1}},
    ),
    "unregistered environment": small_set(env_id="nowhere/Lost-v7"),
    "no environment": small_set(),
    "no rewards, no starts": small_set(episodes=(episode(2, rewards=None, start=None),)),
    "neither ended nor stopped": small_set(episodes=(episode(2, terminated=False, truncated=False),)),
    "ended and stopped": small_set(episodes=(episode(1, terminated=True, truncated=True),)),
    "real actions": Demonstrations.from_arrays([np.zeros((3, 2))], [[[0.1, 0.2], [-0.5, 0.3]]], [[1e-30, -3.3]]),
    "float64": Demonstrations.from_arrays(
        [np.array([[0.1], [1 / 3]])], [[0]], observation_space=gym.spaces.Box(-np.inf, 0.4, (1,), np.float64)
    ),
    "names and infos": small_set(
        episodes=tuple(
            episode(
                n, i, info={"cost": np.arange(n + 1) * 0.5, "odd/%n": np.arange(n + 1) % 2 == 0, ".": np.ones(n + 1)}
            )
            for i, n in enumerate((3, 1))
        ),
        flattened_from=gym.spaces.Dict(
            z=gym.spaces.Box(-1, 1, (2,), np.float32), a=gym.spaces.Box(-1, 1, (2,), np.float32)
        ),
    ),
    "discrete observations": Demonstrations.from_arrays([[3, 4, 5], [5, 3]], [[0, 1], [1]]),
    "pictures": Demonstrations.from_arrays(
        [np.random.default_rng(0).integers(256, size=(4, 8, 8, 3))], [[0, 1, 0]], observation_space=PIXELS
    ),
}


@pytest.mark.parametrize("which", SETS)
def test_file_to_minari_and_back_is_bit_equal(which, tmp_path):
    storage.write(SETS[which], tmp_path / "set.npz")
    to_minari(storage.read(tmp_path / "set.npz"), "tests/set-v0")
    storage.write(from_minari("tests/set-v0"), tmp_path / "back.npz")
    assert (tmp_path / "back.npz").read_bytes() == (tmp_path / "set.npz").read_bytes()


def test_minari_itself_reads_exported_datasets(root):
    episodes = tuple(episode(n, i, info={"cost": np.arange(n + 1) * 0.5}) for i, n in enumerate((3, 1, 5)))
    demos = small_set(episodes=episodes, env_id="scopil/MarbleMaze-Simple-v0")
    assert to_minari(demos, "tests/set-v0") == root / "tests" / "set-v0"
    assert list(minari.list_local_datasets()) == ["tests/set-v0"]
    dataset = minari.load_dataset("tests/set-v0")
    assert (dataset.total_episodes, dataset.total_steps) == (3, 9)
    assert dataset.spec.env_spec.id == demos.env_id
    for ours, theirs in zip(demos, dataset.iterate_episodes()):
        np.testing.assert_array_equal(theirs.observations, ours.observations)
        np.testing.assert_array_equal(theirs.actions, ours.actions)
        np.testing.assert_array_equal(theirs.rewards, ours.rewards)
        np.testing.assert_array_equal(theirs.terminations[:-1], False)
        np.testing.assert_array_equal(theirs.infos["cost"], ours.info["cost"])  # in Minari's own field
        assert (theirs.terminations[-1], theirs.truncations[-1]) == (ours.terminated, ours.truncated)


def make_dataset(dataset_id: str, observation_space: gym.Space, observations, action_space=None, actions=None) -> None:
    """A dataset of two steps made without scopil."""
    buffer = minari.data_collector.EpisodeBuffer(
        observations=observations,
        actions=np.array([0, 1]) if actions is None else actions,
        rewards=[0.5, 1.5],
        terminations=[False, False],
        truncations=[False, True],
    )
    spaces = {"observation_space": observation_space, "action_space": action_space or gym.spaces.Discrete(2)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers(dataset_id, [buffer], **spaces, author="Somebody")


def test_names_and_joint_choices():
    space = gym.spaces.Dict(b=gym.spaces.Box(-9, 9, (2,), np.float32), a=gym.spaces.Discrete(3))
    seen = {"a": np.array([2, 0, 1]), "b": np.arange(6, dtype=np.float32).reshape(3, 2)}
    done, choices = np.array([[1, 0], [1, 1]]), gym.spaces.MultiDiscrete([2, 2])
    make_dataset("own/named-v0", space, seen, choices, done)
    demos = from_minari("own/named-v0")
    assert demos.flattened_from == space  # Minari sorts its names
    for t in range(3):
        want = gym.spaces.flatten(demos.flattened_from, {"a": seen["a"][t], "b": seen["b"][t]})
        np.testing.assert_array_equal(demos.episodes[0].observations[t], np.asarray(want))
    np.testing.assert_array_equal(demos.actions, 2 * done[:, 0] + done[:, 1])
    Here = type("Here", (Walk,), {"observation_space": space, "action_space": choices})
    given = [gym.spaces.flatten(space, {"a": seen["a"][t], "b": seen["b"][t]}) for t in range(2)]
    np.testing.assert_array_equal(demo_data(demos, HostEnv(Here())).transitions.obs, np.asarray(given))
    to_minari(demos, "own/flat-v0")  # and back, as rows
    np.testing.assert_array_equal(from_minari("own/flat-v0").observations, demos.observations)


def test_a_dataset_made_without_scopil_is_read():
    make_dataset("others/walk-v2", gym.spaces.Box(-1, 1, (2,), np.float64), np.array([[0.1, 0.2], [0, 0], [1, 1]]))
    demos = load_demos("minari:others/walk-v2")
    assert demos.name == "others/walk-v2"
    assert demos.about == {"source": "minari:others/walk-v2", "author": ["Somebody"]}
    assert demos.observation_space == gym.spaces.Box(-1, 1, (2,), np.float64)
    (e,) = demos.episodes
    assert (e.terminated, e.truncated, e.start) == (False, True, None)
    np.testing.assert_array_equal(e.rewards, np.array([0.5, 1.5], np.float32))
    assert e.observations[0, 0] == 0.1  # not rounded to float32


def test_unsupported_spaces_and_values_outside_are_refused():
    inner = gym.spaces.Box(-1, 1, (1,), np.float32)
    make_dataset("text-v0", gym.spaces.Text(3), ["a", "b", "c"])
    both = gym.spaces.Tuple([gym.spaces.Discrete(2)])
    make_dataset("tuple-v0", inner, np.zeros((3, 1), np.float32), both, (np.zeros(2, np.int64),))
    make_dataset("wild-v0", inner, np.array([[0], [2], [0]], np.float32))
    for name, word in (("text", "observation space Text"), ("tuple", "action space Tuple"), ("wild", "2.0 at index")):
        with pytest.raises(DatasetError, match=word):
            from_minari(f"{name}-v0")


def test_an_existing_dataset_stays_unless_overwriting_is_asked_for(root):
    to_minari(small_set(), "tests/set-v0")
    before = everything_in(root)
    with pytest.raises(DatasetError, match="exists"):
        to_minari(small_set(name="new"), "tests/set-v0")
    assert from_minari("tests/set-v0").name == "small"
    to_minari(small_set(name="new"), "tests/set-v0", overwrite=True)
    assert from_minari("tests/set-v0").name == "new"
    assert everything_in(root) == before


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("created", [False, True])
def test_failure_half_way_leaves_nothing_behind(root, monkeypatch, there, created):
    if there:
        to_minari(small_set(), "set-v0")
    root.mkdir(exist_ok=True)
    before = everything_in(root)
    whole, rename, full = exchange._create, Path.rename, OSError(28, "No space left on device")

    def made_then_full(*args):
        whole(*args)
        raise full

    def not_into_place(self, target):
        if Path(target) == root / "set-v0" and self.name != "old":
            raise full
        return rename(self, target)

    owner, name, faulty = (exchange, "_create", made_then_full) if created else (Path, "rename", not_into_place)
    monkeypatch.setattr(owner, name, faulty)
    with pytest.raises(DatasetError, match="cannot write"):
        to_minari(small_set(name="new"), "set-v0", overwrite=True)
    monkeypatch.undo()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    assert everything_in(root) == before
    if there:
        assert from_minari("set-v0").name == "small"


def test_malformed_and_unknown_ids_are_refused(root):
    for bad in ("no version", "set", "a/b/", "../out-v0", ""):
        with pytest.raises(DatasetError, match="name-v0"):
            to_minari(small_set(), bad)
    assert everything_in(root) == []
    with pytest.raises(DatasetError, match="none"):
        from_minari("x-v0")
    to_minari(small_set(), "tests/one-v0")
    with pytest.raises(DatasetError, match=r"There: tests/one-v0"):
        from_minari("x-v0")


def test_a_damaged_dataset_is_refused(root):
    for name, damage in (
        ("main_data.hdf5", lambda b: b[:700]),
        ("metadata.json", lambda b: b.replace(b"Dict", b"Dreck")),
    ):
        to_minari(SETS["names and infos"], "set-v0", overwrite=True)
        file = root / "set-v0" / "data" / name
        file.write_bytes(damage(file.read_bytes()))
        with pytest.raises(DatasetError, match="damaged"):
            from_minari("set-v0")


def test_without_minari_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    monkeypatch.delitem(sys.modules, "minari.data_collector")
    with pytest.raises(ScopilError, match=r'pip install "scopil\[data\]"'):
        load_demos("minari:set-v0")


def test_more_chunks_than_a_file_can_hold_are_refused(tmp_path):
    """Reading 16 million chunks of one number, none of them stored, takes seconds and gigabytes."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "main_data.hdf5", "w") as file:
        actions = file.create_dataset("actions", (5,), chunks=(1,), maxshape=(None,), dtype="i8")
        assert sum(hdf5._sizes(file, held=1_000)) == 40
        actions.resize((16_711_681,))
        with pytest.raises(ValueError, match="chunks"):
            list(hdf5._sizes(file, held=1_000))


def test_a_dataset_object_is_read_like_its_id():
    to_minari(small_set(), "mine-v0")
    dataset = minari.load_dataset("mine-v0")
    assert load_demos(dataset).digest == load_demos("minari:mine-v0").digest
    part = load_demos(dataset.filter_episodes(lambda e: e.id == 0))
    assert len(part) == 1 < len(load_demos(dataset))
