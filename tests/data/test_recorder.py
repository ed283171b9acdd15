"""Recording from a loop of the caller's."""

from contextlib import suppress

import gymnasium as gym
import numpy as np
import pytest

from hosts import Walk
from scopil import Recorder, load_demos
from scopil.errors import DatasetError


def steps(recorder: Recorder, count: int, value: float = 0.0) -> np.ndarray:
    """Record steps as a loop that reuses its arrays. Returns the observation after the last."""
    obs, action = np.zeros(3), np.zeros(2)
    for i in range(count):
        obs[:], action[:] = value + i, -value - i
        recorder.step(obs, action, reward=1.0)
    obs[:] = value + count
    return obs


def test_a_loop_writes_its_episodes_as_they_end(tmp_path):
    file = tmp_path / "demos.npz"
    with Recorder(file) as recorder:
        recorder.end(steps(recorder, 2), terminated=True)
        assert len(load_demos(file)) == 1  # a crash would leave this
        steps(recorder, 3, 100.0)
        recorder.drop()
        recorder.end(steps(recorder, 3, 10.0), terminated=False, truncated=True)
        steps(recorder, 1, 20.0)
    first, second, third = load_demos(file)
    np.testing.assert_array_equal(first.observations[:, 0], [0, 1, 2])
    np.testing.assert_array_equal(first.actions[:, 0], [0, -1])
    np.testing.assert_array_equal(second.observations[:, 0], [10, 11, 12, 13])
    assert [(e.terminated, e.truncated) for e in (first, second, third)] == [
        (True, False),
        (False, True),
        (False, True),
    ]
    assert [e.total_reward for e in (first, second, third)] == [2, 3, 1]


def test_an_interrupted_loop_keeps_its_open_episode(tmp_path):
    with suppress(KeyboardInterrupt), Recorder(tmp_path / "demos.npz") as recorder:
        steps(recorder, 4)
        raise KeyboardInterrupt
    (episode,) = load_demos(tmp_path / "demos.npz")
    assert (len(episode), episode.truncated) == (4, True)


def test_named_observations_in_the_spaces_of_an_environment():
    space = gym.spaces.Dict(b=gym.spaces.Box(-9, 9, (2,), np.float32), a=gym.spaces.Box(-9, 9, (1,), np.float32))
    with Recorder() as recorder:
        for i in range(3):
            recorder.step({"b": np.array([i, i]), "a": [5.0]}, [0.5])
        recorder.end()
    (episode,) = recorder.demos
    seen = recorder.demos.as_given(episode.observations[2])
    assert {key: value.tolist() for key, value in seen.items()} == {"a": [5.0], "b": [2.0, 2.0]}
    assert set(space.spaces) == set(recorder.demos.flattened_from.spaces)  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]

    env = Walk()
    with Recorder(env=env) as recorder:
        obs, _ = env.reset(seed=0)
        recorder.step(obs, 1)
        recorder.end(env.step(1)[0])
    assert recorder.demos.action_space == env.action_space
    assert recorder.demos.observation_space == env.observation_space


def test_wrong_steps_are_refused_and_leave_the_file_sound(tmp_path):
    file = tmp_path / "demos.npz"
    with Recorder(file) as recorder:
        recorder.end(steps(recorder, 2))
        with pytest.raises(DatasetError, match=r"step 0 of episode 1: .*the first step has"):
            recorder.step(np.zeros(4), np.zeros(2), reward=0.0)
        with pytest.raises(DatasetError, match="observation nan; want finite numbers"):
            recorder.step(np.nan, 1)
        with pytest.raises(DatasetError, match=r"end\(\) before any step\(\)"):
            recorder.end()
        recorder.step(np.zeros(3), np.zeros(2))  # the first episode has rewards
        with pytest.raises(DatasetError, match="episode 1 has no rewards"):
            recorder.end()
    assert len(load_demos(file)) == 1
    with pytest.raises(DatasetError, match="exists; want the name of a new file"):
        Recorder(file)
