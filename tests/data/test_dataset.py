"""Demonstrations are checked by their constructor: every fault is refused and named."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import samples
from samples import ACTIONS, episode, small_set, with_episode
from scopil import load_demos
from scopil.data.dataset import NO_FLAGS, Demonstrations, guess_space
from scopil.errors import DatasetError


def observations(steps=4, **at):
    array = episode(steps, 1).observations.copy()
    for index, value in at.items():
        array[int(index[1:]), 2] = value
    return array


FAULTS = {  # and a word of the refusal
    "NaN": ({"observations": observations(i1=np.nan)}, r"episode 1: observations: nan at index \(1, 2\)"),
    "infinity": ({"observations": observations(i4=np.inf)}, "inf at index"),
    "observation out of range": ({"observations": observations(i0=1.5)}, "1.5 at index"),
    "action out of range": ({"actions": np.array([0, 1, 3, 0])}, "3 at index"),
    "negative action": ({"actions": np.array([0, -1, 2, 0])}, "-1 at index"),
    "half an action": ({"actions": np.array([0.0, 0.5, 1.0, 2.0])}, "fractions"),
    "last state dropped": ({"observations": observations(3)}, "4 observations for 4 actions"),
    "flat observations": ({"observations": np.zeros(5)}, "shape"),
    "actions in columns": ({"actions": np.zeros((4, 1), int)}, "shape"),
    "one number": ({"actions": np.array(1)}, "shape"),
    "no steps": ({"observations": observations(0), "actions": np.zeros(0, int)}, "no actions"),
    "words": ({"actions": np.array(["up"] * 4)}, "dtype <U2"),
    "short rewards": ({"rewards": np.zeros(3)}, "rewards of shape"),
    "reward NaN": ({"rewards": np.array([0, np.nan, 0, 0])}, "rewards: nan"),
    "reward beyond float32": ({"rewards": np.array([0, 1e300, 0, 0])}, "float32"),
    "start NaN": ({"start": np.array([0, np.nan])}, "start: nan"),
    "rewards in some": ({"rewards": None}, "episode 1 has no rewards"),
    "starts in some": ({"start": None}, "episode 1 has no start"),
    "starts of two shapes": ({"start": np.zeros(3)}, "starts of shapes"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused_and_named(fault):
    changes, message = FAULTS[fault]
    with pytest.raises(DatasetError, match=message) as caught:
        with_episode(**changes)
    assert "\n" not in str(caught.value)
    with_episode()  # control: the same set without the fault


def test_other_spaces_are_refused():
    """In a process of its own: under pytest the annotations are checked and would refuse first."""
    for what in ("observation", "action"):
        code = f"from samples import *; small_set({what}_space=gym.spaces.Dict(x=OBSERVATIONS))"
        folder = Path(samples.__file__).parent
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder)
        assert f"DatasetError: small: {what} space Dict" in out.stderr


def test_values_are_judged_in_the_precision_of_the_space():
    space = gym.spaces.Box(0, 255, (2,), np.uint8)
    good = np.array([[0, 255], [7, 8]])
    demos = Demonstrations.from_arrays([good], [[0]], observation_space=space)
    assert demos.episodes[0].observations.dtype == np.uint8
    np.testing.assert_array_equal(demos.episodes[0].observations, good)
    with pytest.raises(DatasetError, match="256 at index"):
        Demonstrations.from_arrays([good + 1], [[0]], observation_space=space)
    with pytest.raises(DatasetError, match="fractions"):
        Demonstrations.from_arrays([good / 2], [[0]], observation_space=space)
    # 0.1 rounds up in float32: a box read off the data must still hold the data
    actions = np.array([[0.1], [0.3]])
    demos = Demonstrations.from_arrays([np.zeros((3, 1))], [actions])
    np.testing.assert_array_equal(demos.actions, actions.astype(np.float32))
    with pytest.raises(DatasetError, match="float32"):
        Demonstrations.from_arrays([np.array([[0.0], [1e300]])], [[0]])
    demos = small_set(action_space=gym.spaces.Discrete(3, dtype=np.int32))
    assert (demos.actions.dtype, demos.action_space) == (np.int64, ACTIONS)
    with pytest.raises(DatasetError, match="out of range"):
        small_set(action_space=gym.spaces.Discrete(3, start=5))


def test_a_set_is_a_read_only_copy():
    mine = episode(3)
    demos = small_set(episodes=(mine,))
    mine.observations[0] = 0.5
    assert not np.array_equal(demos.episodes[0].observations, mine.observations)
    for array in (demos.episodes[0].actions, demos.episodes[0].rewards, demos.observations, demos.actions):
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_about_is_json_from_the_beginning():
    assert small_set(about={"shape": (1, 2), 3: None}).about == {"shape": [1, 2], "3": None}
    for bad in ({"x": np.float32(1)}, {"x": float("nan")}, {"x": {1, 2}}):
        with pytest.raises(DatasetError, match="`about` is not JSON"):
            small_set(about=bad)


def test_statistics_by_hand():
    rewards = [np.array([-1.0, -0.5]), np.array([-0.25]), np.array([0.0, 0.0, -3.0])]
    episodes = tuple(episode(len(r), i, rewards=r) for i, r in enumerate(rewards))
    seen = small_set(episodes=episodes).statistics()
    totals = np.array([-1.5, -0.25, -3.0])
    wanted = {"episodes": 3, "pairs": 6, "reward": totals.mean(), "reward_std": totals.std()}
    wanted |= {"steps": 2.0, "steps_std": (2 / 3) ** 0.5, "terminated": 2 / 3}  # the second ran out of time
    assert seen == pytest.approx(wanted)
    unrewarded = small_set(episodes=(episode(2, rewards=None),))
    assert np.isnan(unrewarded.statistics()["reward"])


def test_split_keeps_whole_episodes_and_loses_none():
    demos = small_set(tuple(range(1, 11)))
    first, second = demos.split(0.3, seed=5)
    assert (len(first), len(second)) == (3, 7)
    lengths = sorted(len(e) for part in (first, second) for e in part)
    assert lengths == list(range(1, 11))
    again, _ = demos.split(0.3, seed=5)
    other, _ = demos.split(0.3, seed=6)
    assert [len(e) for e in again] == [len(e) for e in first]
    assert [len(e) for e in other] != [len(e) for e in first]
    assert [len(part) for part in small_set((1, 2)).split(0.01)] == [1, 1]
    for lengths, fraction in (((1,), 0.5), ((1, 2), 0.0), ((1, 2), 1.0), ((1, 2), float("nan"))):
        with pytest.raises(DatasetError, match="cannot split"):
            small_set(lengths).split(fraction)


def test_sample_draws_pairs_that_belong_together_and_select_keeps_episodes():
    demos = small_set((3, 1, 5))
    obs, actions = demos.sample(500, np.random.default_rng(0))
    shown = {o.tobytes(): a for o, a in zip(demos.observations, demos.actions)}
    assert all(shown[o.tobytes()] == a for o, a in zip(obs, actions, strict=True))
    assert {o.tobytes() for o in obs} == set(shown)  # nothing is left out
    np.testing.assert_array_equal(obs, demos.sample(500, np.random.default_rng(0))[0])
    assert [len(e) for e in demos.select(lambda e: len(e) > 2)] == [3, 5]
    with pytest.raises(DatasetError, match="no episodes"):
        demos.select(lambda e: False)


def test_from_arrays_reads_the_spaces_off_the_data():
    obs = [np.zeros((3, 2)), np.ones((2, 2))]
    demos = Demonstrations.from_arrays(obs, [[0, 4], [2]], name="plain")
    assert demos.action_space == gym.spaces.Discrete(5)
    assert demos.observation_space == gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    assert demos.starts is None
    real = Demonstrations.from_arrays(obs, [[[0.5], [-2.0]], [[1.0]]]).action_space
    assert real == gym.spaces.Box(-2.0, 1.0, (1,), np.float32)
    assert guess_space([np.array([True, False])], True, "actions") == gym.spaces.Discrete(2)


@pytest.mark.parametrize(
    ("observations", "actions", "message"),
    [
        ([], [], "no episodes"),
        ([np.zeros((2, 1))], [[0], [1]], "1 observation, 2 action and 2 reward arrays"),
        ([np.zeros((2, 1)), np.zeros((2, 3))], [[0], [0]], "shapes .* in one set"),
        ([np.zeros((2, 1))], [[np.nan]], "episode 0: actions: nan"),
        ([np.zeros((2, 1))], [["up"]], "want numbers"),
        ([np.zeros((3, 1))], [[[1], [1, 2]]], "episode 0: actions: rows of unequal shape"),
        ([np.zeros((2, 1))], [3], "shapes"),
    ],
)
def test_from_arrays_refuses_faulty_arrays(observations, actions, message):
    with pytest.raises(DatasetError, match=message):
        Demonstrations.from_arrays(observations, actions)


def test_from_arrays_takes_flags_or_notes_what_it_assumed():
    arrays = [np.zeros((3, 2)), np.ones((2, 2))], [[0, 4], [2]]

    def ends(**flags):
        demos = Demonstrations.from_arrays(*arrays, about={"by": "me"}, **flags)
        return [(e.terminated, e.truncated) for e in demos], demos.about.get("assumed")

    assert ends() == ([(True, False)] * 2, [NO_FLAGS])
    assert ends(truncated=[True, False]) == ([(False, True), (False, False)], None)
    assert ends(terminated=np.array([1, 0])) == ([(True, False), (False, False)], None)
    assert ends(terminated=[0, 1], truncated=[1, 0]) == ([(False, True), (True, False)], None)
    with pytest.raises(DatasetError, match="truncated of shape"):
        ends(truncated=[True] * 3)


# --- steps and groups ----------------------------------------------------------------------------------


def test_transitions_are_the_steps_in_order():
    demos = small_set((3, 1, 5))
    rows = [(i, e, t) for i, e in enumerate(demos) for t in range(len(e))]
    steps = demos.transitions()
    assert (len(demos), demos.pairs) == (3, 9)
    np.testing.assert_array_equal(demos.starts, [e.start for e in demos])
    np.testing.assert_array_equal(steps.obs, [e.observations[t] for _, e, t in rows])
    np.testing.assert_array_equal(steps.action, [e.actions[t] for _, e, t in rows])
    np.testing.assert_array_equal(steps.next_obs, [e.observations[t + 1] for _, e, t in rows])
    np.testing.assert_array_equal(steps.episode, [i for i, _, _ in rows])
    np.testing.assert_array_equal(steps.reward, np.concatenate([e.rewards for e in demos]))  # type: ignore[arg-type]
    np.testing.assert_array_equal(steps.terminated, [e.terminated and t == len(e) - 1 for _, e, t in rows])
    assert steps.terminated.sum() == 2, "the second episode ran out of time"
    assert small_set(episodes=(episode(2, rewards=None),)).transitions().reward is None


def test_a_set_saves_itself(tmp_path):
    demos = small_set((3, 1, 5), env_id="some/Env-v0")
    demos.save(tmp_path / "set.npz")
    assert repr(load_demos(tmp_path / "set.npz")) == repr(demos)
    assert "3 episodes, 9 steps, Box(4,) float32 → Discrete(3)" in repr(demos)


def begun_at(*starts: float) -> np.ndarray:
    """The groups of episodes of eight steps that begin at these observations."""
    made = [episode(8, i) for i in range(len(starts))]
    moved = [replace(e, observations=np.vstack([np.full(4, x), e.observations[1:]])) for e, x in zip(made, starts)]
    return small_set(episodes=tuple(moved)).transitions().group


def test_what_predicts_each_other_is_held_out_together():
    groups = begun_at(0.1, 0.2, 0.1, 0.3, 0.4, 0.2).reshape(6, 8)
    assert (groups == groups[:, :1]).all()
    assert [groups[i, 0] for i in (2, 5)] == [groups[i, 0] for i in (0, 1)]
    assert len(set(groups[:, 0])) == 4
    # With few starts every episode is a group, with few episodes every quarter of an episode.
    assert len(set(begun_at(0.1, 0.1, 0.1, 0.1, 0.1))) == 5
    assert begun_at(0.1).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
