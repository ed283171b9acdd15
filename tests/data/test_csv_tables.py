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


ONE_FILE = {
    "by number": ("episode,x,action,reward,done", ["7,0,1,1,0", "7,1,0,2,1", "9,5,1,3,0", "9,6,1,4,1"]),
    "by done": ("x,action,reward,done", ["0,1,1,0", "1,0,2,1", "5,1,3,0", "6,1,4,1"]),
    "by terminated": ("x,action,reward,terminated,done", ["0,1,1,0,0", "1,0,2,1,1", "5,1,3,0,0", "6,1,4,True,1"]),
}


@pytest.mark.parametrize("kind", ONE_FILE)
def test_one_file_of_several_episodes(kind, tmp_path):
    header, rows = ONE_FILE[kind]
    (tmp_path / "all.csv").write_text("\n".join([header, *rows]))
    demos = load_demos(tmp_path / "all.csv")
    assert [e.observations[:2].ravel().tolist() for e in demos] == [[0, 1], [5, 6]]
    assert [e.actions.tolist() for e in demos] == [[1, 0], [1, 1]]
    assert [e.rewards.tolist() for e in demos if e.rewards is not None] == [[1, 2], [3, 4]]
    assert [(e.terminated, e.truncated) for e in demos] == [(True, False)] * 2
    assert any("dones do not distinguish" in line for line in demos.about["assumed"]) == (kind != "by terminated")


def test_rows_without_an_action_end_the_episodes_of_one_file(tmp_path):
    (tmp_path / "all.csv").write_text("x,action,done\n0,1,0\n1,0,1\n2,,\n5,1,0\n6,,1\n")
    first, second = load_demos(tmp_path / "all.csv")
    assert first.observations.ravel().tolist() == [0, 1, 2]
    assert second.observations.ravel().tolist() == [5, 6]
    assert first.terminated
    assert second.terminated


def test_wrong_rows_of_one_file_are_named(tmp_path):
    file = tmp_path / "all.csv"
    file.write_text("episode,x,action\n0,1,1\n1,2,1\n0,3,1\n")
    with pytest.raises(DatasetError, match=r"row 3: episode 0 goes on after another episode; want all rows"):
        load_demos(file)
    file.write_text("episode,x,action\n0,1,1\n1,2,1\n1,?,1\n")
    with pytest.raises(DatasetError, match=r"row 3: '\?' in column 'x'"):
        load_demos(file)
