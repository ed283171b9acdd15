"""LeRobot's datasets, of version 2 (a file per episode) and version 3 (files of several episodes)."""

import json
import sys

import gymnasium as gym
import numpy as np
import pytest

from scopil import load_demos
from scopil.errors import DatasetError, ScopilError


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(ScopilError, match=r"scopil\[lerobot\]"):
        load_demos(tmp_path / "a.parquet")


def rows(episode: int, steps: int, **more):
    pa = pytest.importorskip("pyarrow")
    at = np.arange(steps) + 10.0 * episode
    columns = {
        "observation.state": pa.array([[x, -x] for x in at], pa.list_(pa.float32(), 2)),
        "action": pa.array([[x / 100] * 2 for x in at], pa.list_(pa.float32(), 2)),
        "episode_index": [episode] * steps,
        "frame_index": list(range(steps)),
        "timestamp": [i / 30 for i in range(steps)],
        "next.reward": [0.5] * steps,
        "next.done": [i == steps - 1 for i in range(steps)],
        "observation.images.top": [{"bytes": b"", "path": "x.png"}] * steps,
    }
    return pa.table(columns | {name: [value] * steps for name, value in more.items()})


def dataset(root, *files, name="episode_{:06}.parquet"):
    parquet = pytest.importorskip("pyarrow.parquet")
    (root / "meta").mkdir(parents=True)
    (root / "meta" / "info.json").write_text(json.dumps({"codebase_version": "v2.1", "fps": 30}))
    for i, table in enumerate(files):
        file = root / "data" / "chunk-000" / name.format(i)
        file.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, file)
    return root


def test_a_folder_of_episodes(tmp_path):
    demos = load_demos(dataset(tmp_path / "pusht", rows(0, 3), rows(1, 2)))
    assert (demos.name, [len(e) for e in demos]) == ("pusht", [3, 2])
    np.testing.assert_array_equal(demos.episodes[1].observations[:2], [[10, -10], [11, -11]])
    np.testing.assert_allclose(demos.episodes[1].actions[:, 0], [0.1, 0.11], rtol=1e-6)
    assert [e.total_reward for e in demos] == [1.5, 1.0]
    assert all(e.terminated for e in demos)
    assert demos.flattened_from is None


def test_files_of_several_episodes_and_of_named_observations(tmp_path):
    pa = pytest.importorskip("pyarrow")
    several = [{"observation.effort": 7.0}] * 2
    tables = [pa.concat_tables([rows(2 * i, 3, **more), rows(2 * i + 1, 2, **more)]) for i, more in enumerate(several)]
    demos = load_demos(dataset(tmp_path / "arm", *tables, name="file-{:03}.parquet"))
    assert [len(e) for e in demos] == [3, 2, 3, 2]
    assert isinstance(demos.flattened_from, gym.spaces.Dict)
    seen = demos.as_given(demos.episodes[3].observations[1])
    assert {key: value.ravel().tolist() for key, value in seen.items()} == {"effort": [7.0], "state": [31.0, -31.0]}
    one = load_demos(tmp_path / "arm" / "data" / "chunk-000" / "file-001.parquet")
    assert [len(e) for e in one] == [3, 2]


def test_other_tables_are_refused(tmp_path):
    root = dataset(tmp_path / "bad", rows(0, 2).drop_columns(["action"]))
    with pytest.raises(DatasetError, match=r"want episode_index, action and observation.state"):
        load_demos(root)
    (root / "data" / "chunk-000" / "episode_000000.parquet").write_bytes(b"PAR1 cut short")
    with pytest.raises(DatasetError, match="cannot be read"):
        load_demos(root)
