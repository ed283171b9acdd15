"""HDF5 files of robomimic and of D4RL."""

import gymnasium as gym
import numpy as np
import pytest

from scopil import load_demos
from scopil.errors import DatasetError

h5py = pytest.importorskip("h5py")


def robomimic(path, lengths=(3, 2), image=False, **left_out):
    """Demonstration i holds the number 10 i + step."""
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = '{"env_name": "Lift"}'
        for name, i in (("demo_0", 0), ("demo_10", 2), ("demo_2", 1)):
            if i >= len(lengths):
                continue
            steps, demo = lengths[i], data.create_group(name)
            rows = np.arange(steps + 1) + 10.0 * i
            for group, part in (("obs", rows[:-1]), ("next_obs", rows[1:])):
                demo[f"{group}/robot0_eef_pos"] = np.stack([part] * 3, axis=1)
                demo[f"{group}/object"] = part[:, None]
                if image:
                    demo[f"{group}/agentview_image"] = np.zeros((steps, 4, 4, 3), np.uint8)
            demo["actions"] = np.full((steps, 7), 0.5)
            demo["rewards"], demo["dones"] = np.ones(steps), np.arange(steps) >= steps - 2
            demo["states"] = np.zeros((steps, 32))
            for key in left_out:
                del demo[key]
    return path


def test_robomimics_layout(tmp_path):
    demos = load_demos(robomimic(tmp_path / "low_dim.hdf5", (3, 2, 4), image=True))
    assert [len(e) for e in demos] == [3, 2, 4]  # demo_2 before demo_10
    assert isinstance(demos.flattened_from, gym.spaces.Dict)
    seen = demos.as_given(demos.episodes[1].observations[-1])  # from next_obs
    assert (seen["object"].tolist(), seen["robot0_eef_pos"].tolist()) == ([12.0], [12.0] * 3)
    assert demos.action_space.shape == (7,)
    assert all(e.terminated and not e.truncated and e.total_reward == len(e) for e in demos)
    assert "images are not used: agentview_image" in demos.about["assumed"]


def test_robomimics_files_without_ends_or_observations(tmp_path):
    demos = load_demos(robomimic(tmp_path / "a.h5", dones=None, rewards=None, next_obs=None))
    assert [e.rewards for e in demos] == [None, None]
    assert len(demos.episodes[0].observations) == 4
    with pytest.raises(DatasetError, match=r"data/demo_0 has actions, .*want actions and obs/NAME"):
        load_demos(robomimic(tmp_path / "b.h5", obs=None))


def test_d4rls_layout(tmp_path):
    with h5py.File(tmp_path / "d.hdf5", "w") as file:
        file["observations"], file["actions"] = np.arange(12.0).reshape(6, 2), np.zeros((6, 1))
        file["terminals"], file["infos/qpos"] = np.arange(6) % 3 == 2, np.zeros(6)
    assert [len(e) for e in load_demos(tmp_path / "d.hdf5")] == [3, 3]


def test_other_and_hostile_files_are_refused(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = np.zeros(3)
    with pytest.raises(DatasetError, match="has x; want robomimic's data/demo_0/actions"):
        load_demos(tmp_path / "other.h5")
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["observations"] = h5py.ExternalLink("other.h5", "/x")
        file["actions"] = np.zeros(3)
    with pytest.raises(DatasetError, match="no plain part of the file"):
        load_demos(tmp_path / "link.h5")
    with h5py.File(tmp_path / "bomb.h5", "w") as file:
        file.create_dataset("observations", (10**6, 10**4), np.float64, chunks=(10**4, 10**4))
        file["actions"] = np.zeros(3)
    with pytest.raises(DatasetError, match="claim"):
        load_demos(tmp_path / "bomb.h5")
    (tmp_path / "text.hdf5").write_text("no HDF5")
    with pytest.raises(DatasetError, match="cannot be read"):
        load_demos(tmp_path / "text.hdf5")
