"""Episodes as tables: one .csv per episode."""

import gymnasium as gym
import numpy as np
import pytest

from scopil import load_demos
from scopil.errors import DatasetError


def write(folder, files: dict[str, str]):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_a_folder_of_episodes(tmp_path):
    folder = write(
        tmp_path / "episodes",
        {
            "episode_10.csv": "t,obs_x,obs_y,action,reward,terminated\n0,1,2,1,-1,0\n1,3,4,0,-0.5,True\n2,5,6,,,\n\n",
            "episode_2.csv": "t,obs_y,obs_x,action,reward,terminated\n0,8,7,2,0,false\n1,10,9,,,\n",
            "notes.txt": "not an episode",
        },
    )
    demos = load_demos(folder)
    assert demos.name == "episodes"
    assert demos.action_space == gym.spaces.Discrete(3)
    first, second = demos  # episode_2 before episode_10, its columns by name
    np.testing.assert_array_equal(second.observations, [[2, 1], [4, 3], [6, 5]])
    np.testing.assert_array_equal(first.observations, [[8, 7], [10, 9]])
    assert (first.actions.tolist(), second.actions.tolist()) == ([2], [1, 0])
    np.testing.assert_array_equal(second.rewards, [-1, -0.5])
    assert (first.terminated, second.terminated) == (False, True)
    assert demos.about["assumed"][:2] == ["observations are the columns obs_y, obs_x", "not used: t"]


@pytest.mark.parametrize(
    ("last_rows", "ends"),
    [
        (("1,1,0,0", "2,,1,"), (True, False)),  # terminated, in the row where the episode ended
        (("1,1,0,0", "2,,0,True"), (False, True)),
        (("1,1,1,0", "2,,0,"), (True, False)),  # or in the row of the last action
        (("1,1,0,0", "2,,,"), (False, False)),
    ],
)
def test_the_last_row_may_say_how_the_episode_ended(last_rows, ends, tmp_path):
    text = "\n".join(["x,action,terminated,truncated", "0,1,0,0", *last_rows])
    (episode,) = load_demos(write(tmp_path / "episodes", {"a.csv": text}))
    assert (len(episode), episode.terminated, episode.truncated) == (2, *ends)


def test_columns_of_other_names_and_several_actions(tmp_path):
    folder = write(tmp_path / "g", {"a.csv": "speed,height,action_0,action_1,step\n0.1,0.2,-1,1,0\n0.3,0.4,0.5,0,1\n"})
    demos = load_demos(folder)
    assert demos.observation_space.shape == (2,)
    assert demos.action_space.shape == (2,)
    np.testing.assert_allclose(demos.observations, [[0.1, 0.2], [0.3, 0.4]])
    assert "the last observation of 1 of 1 episodes is not recorded" in " ".join(demos.about["assumed"])
    assert load_demos(folder / "a.csv").pairs == 2
    folder = write(tmp_path / "whole", {"a.csv": "a,b,c,action\n1,0,0,1\n0,1,0,2\n"})
    assert load_demos(folder).action_space == gym.spaces.Discrete(3)
    demos = load_demos(folder, "Pendulum-v1")  # the environment decides what whole numbers are
    np.testing.assert_array_equal(demos.actions, [[1.0], [2.0]])
    assert demos.action_space == gym.spaces.Box(-2.0, 2.0, (1,))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "0 lines"),
        ("x,action\n", "1 lines"),
        ("1,2\n3,4\n", "columns 1, 2"),
        ("action,reward\n1,2\n", "obs_"),
        ("x,x,action\n1,2,3\n", "different name"),
        ("x,action\n1,2,3\n", "row 1: 3 cells"),
        ("x,action\n1,2\nfast,2\n", "row 2: 'fast' in column 'x'"),
        ("x,action\n1,\n2,1\n", "row 1: nothing in column 'action'"),
        ("x,action\n1,\n", "no actions"),
        ("x,action\nnan,1\n", "nan at index"),
        ("x,action,terminated\n1,1,1\n2,1,0\n", "step 0 of 2"),
        ("x,action,terminated\n1,1,0\n2,,yes\n", "row 2: 'yes'"),
    ],
)
def test_faulty_tables_are_refused_by_file_and_row(text, word, tmp_path):
    folder = write(tmp_path / "episodes", {"bad.csv": text})
    with pytest.raises(DatasetError, match=word) as refusal:
        load_demos(folder)
    assert "\n" not in str(refusal.value)


def test_files_with_other_columns_or_bytes_are_refused(tmp_path):
    folder = write(tmp_path / "episodes", {"a.csv": "x,action\n1,1\n", "b.csv": "y,action\n1,1\n"})
    with pytest.raises(DatasetError, match=r"b.csv.*a.csv \(x, y\)"):
        load_demos(folder)
    (folder / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DatasetError, match="cannot read"):
        load_demos(folder)
