"""Arrays and trajectories: the same episodes from every layout, and errors for faulty ones."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from scopil import Demonstrations, load_demos
from scopil.data.arrays import ONLY_DONES
from scopil.data.dataset import NO_FLAGS
from scopil.envs.gym_env import compile_env
from scopil.errors import DatasetError
from scopil.train.demo_data import demo_data

LENGTHS = (3, 1, 4)
RNG = np.random.default_rng(0)
OBS = [RNG.normal(size=(n + 1, 2)).astype(np.float32) for n in LENGTHS]  # T+1 rows each
ACTIONS = [RNG.uniform(-1, 1, (n, 3)).astype(np.float32) for n in LENGTHS]
REWARDS = [RNG.normal(size=n).astype(np.float32) for n in LENGTHS]
TERMINATED, TRUNCATED = (True, False, False), (False, True, False)  # the third was cut off
BEFORE = [o[:-1] for o in OBS]
AFTER = [o[1:] for o in OBS]


def at_ends(flags: tuple[bool, ...]) -> np.ndarray:
    return np.concatenate([np.arange(n) == n - 1 if f else np.zeros(n, bool) for n, f in zip(LENGTHS, flags)])


def padded(arrays: list[np.ndarray], steps: int) -> np.ndarray:
    """Padding holds NaN, so that using it would show."""
    block = np.full((len(arrays), steps, *arrays[0].shape[1:]), np.nan, np.float32)
    for row, array in zip(block, arrays):
        row[: len(array)] = array
    return block


@dataclass
class Trajectory:
    """The fields of the imitation package's TrajectoryWithRew."""

    obs: np.ndarray
    acts: np.ndarray
    infos: np.ndarray | None
    terminal: bool
    rews: np.ndarray | None = None


def trajectories() -> list[Trajectory]:
    made = []
    for obs, acts, rews, ended, late in zip(OBS, ACTIONS, REWARDS, TERMINATED, TRUNCATED):
        infos = np.array([{}] * (len(acts) - 1) + [{"TimeLimit.truncated": True} if late else {}])
        made.append(Trajectory(obs, acts, infos, ended or late, rews))
    return made


JOINED = {"actions": np.concatenate(ACTIONS), "rewards": np.concatenate(REWARDS)}
FLAGS = {"terminals": at_ends(TERMINATED), "timeouts": at_ends(TRUNCATED)}
NEXT = {"next_observations": np.concatenate(AFTER)}
PAIRS = {"observations": np.concatenate(BEFORE)}
BLOCK = {"actions": padded(ACTIONS, 5), "rewards": padded(REWARDS, 5), "episode_lengths": np.array(LENGTHS, np.float32)}
ENDS = {"terminated": TERMINATED, "truncated": TRUNCATED}
STARTS = RNG.random((3, 2)).astype(np.float32)
COMPLETE = {
    "joined with lengths": JOINED | ENDS | {"observations": np.concatenate(OBS), "lengths": LENGTHS, "starts": STARTS},
    "joined with flags": JOINED | FLAGS | {"observations": np.concatenate(OBS)},
    "d4rl": JOINED | FLAGS | NEXT | PAIRS,
    "gymnasium's words": JOINED | NEXT | PAIRS | {"terminated": FLAGS["terminals"], "truncated": FLAGS["timeouts"]},
    "columns of one": JOINED
    | NEXT
    | PAIRS
    | {k: v[:, None] for k, v in FLAGS.items()}
    | {"rewards": JOINED["rewards"][:, None]},
    "padded": BLOCK | ENDS | {"observations": padded(OBS, 6), "starts": STARTS},
    "lists": {"observations": OBS, "actions": ACTIONS, "rewards": REWARDS} | ENDS,
    "short names": {"obs": OBS, "acts": ACTIONS, "rews": REWARDS} | ENDS,
    "trajectories": trajectories(),
    "dicts": [
        {"observations": o, "actions": a, "rewards": r, "terminated": d, "truncated": t}
        for o, a, r, d, t in zip(OBS, ACTIONS, REWARDS, TERMINATED, TRUNCATED)
    ],
}


@pytest.mark.parametrize("layout", COMPLETE)
def test_every_layout_holds_the_same_episodes(layout):
    demos = load_demos(COMPLETE[layout])
    assert [len(e) for e in demos] == list(LENGTHS)
    for e, obs, actions, rewards in zip(demos, OBS, ACTIONS, REWARDS):
        np.testing.assert_array_equal(e.observations, obs)
        np.testing.assert_array_equal(e.actions, actions)
        np.testing.assert_array_equal(e.rewards, rewards)
    assert tuple(e.terminated for e in demos) == TERMINATED
    assert tuple(e.truncated for e in demos) == TRUNCATED
    assert demos.action_space == gym.spaces.Box(JOINED["actions"].min(0), JOINED["actions"].max(0))
    assert demos.starts is None or np.array_equal(demos.starts, STARTS)
    assert (demos.starts is None) == (layout not in ("joined with lengths", "padded"))
    assert "is not recorded" not in " ".join(demos.about["assumed"])


PARTIAL = {
    "pairs with lengths": JOINED | PAIRS | {"lengths": LENGTHS},
    "padded pairs": BLOCK | {"observations": padded(BEFORE, 5)},
    "lists of pairs": {"observations": BEFORE, "actions": ACTIONS},
    "pair of lists": (BEFORE, ACTIONS),
    "three lists": (BEFORE, ACTIONS, REWARDS),
}


@pytest.mark.parametrize("layout", PARTIAL)
def test_pairs_alone_are_enough_and_assumptions_are_noted(layout):
    demos = load_demos(PARTIAL[layout])
    assert [len(e) for e in demos] == list(LENGTHS)
    np.testing.assert_array_equal(demos.observations, PAIRS["observations"])
    np.testing.assert_array_equal(demos.actions, JOINED["actions"])
    np.testing.assert_array_equal(demos.episodes[0].observations[-1], BEFORE[0][-1])
    assert any("3 of 3 episodes is not recorded" in assumed for assumed in demos.about["assumed"])
    assert NO_FLAGS in demos.about["assumed"]


def test_episodes_are_separated_by_what_there_is(tmp_path):
    np.savez(tmp_path / "d4rl.npz", **COMPLETE["d4rl"])
    demos = load_demos(tmp_path / "d4rl.npz")
    assert [len(e) for e in demos] == list(LENGTHS)
    assert (demos.name, demos.about["source"]) == ("d4rl", "d4rl.npz")
    demos = load_demos(JOINED | NEXT | PAIRS)  # by observations that do not follow
    assert [len(e) for e in demos] == list(LENGTHS)
    assert any(assumed.startswith("2 episodes end") for assumed in demos.about["assumed"])
    demos = load_demos((PAIRS["observations"], JOINED["actions"]))
    assert [len(e) for e in demos] == [8]
    assert any("as one episode" in assumed for assumed in demos.about["assumed"])
    # A box of two and actions of one: rows, not episodes of one step.
    demos = load_demos((np.zeros((5, 2)), np.zeros((5, 1))))
    assert (len(demos), demos.observation_space.shape, demos.action_space.shape) == (1, (2,), (1,))
    # As Stable-Baselines3 has them.
    first = np.concatenate([np.arange(n) == 0 for n in LENGTHS])
    demos = load_demos({"states": PAIRS["observations"], "action": JOINED["actions"], "episode_starts": first})
    for found, wanted in zip(demos, ACTIONS, strict=True):
        np.testing.assert_array_equal(found.actions, wanted)
    assert not any("single episode" in said or "not used" in said for said in demos.about["assumed"])


def test_imitations_rows():
    rows = SimpleNamespace(
        obs=PAIRS["observations"],
        acts=JOINED["actions"],
        next_obs=NEXT["next_observations"],
        dones=at_ends((True, True, True)),
    )
    demos = load_demos(rows)
    assert [len(e) for e in demos] == list(LENGTHS)
    assert ONLY_DONES in demos.about["assumed"]  # a time limit sets them too
    assert len(load_demos(trajectories()[0])) == 1
    dicts = [{"obs": o, "acts": a, "done": np.arange(len(a)) == len(a) - 1} for o, a in zip(OBS, ACTIONS)]
    assert ONLY_DONES in load_demos(dicts).about["assumed"]


@pytest.mark.parametrize("flag", ["terminated", "truncated", "terminals", "timeouts", "truncations"])
def test_dones_beside_other_flags_are_no_assumption(flag):
    rows = PAIRS | JOINED | {"dones": at_ends((True, True, True)), flag: at_ends((False, False, True))}
    assert ONLY_DONES not in load_demos(rows).about["assumed"]


def test_whole_numbers_are_discrete():
    for actions in (np.array([0, 2, 1]), np.array([[0], [2], [1]]), [0, 2, 1]):
        demos = load_demos((np.zeros((4, 2)), actions))
        assert (demos.action_space, demos.actions.tolist()) == (gym.spaces.Discrete(3), [0, 2, 1])
    demos = load_demos((np.array([[0, 1, 2], [2, 1, 0]]), np.array([[0, 1], [1, 0]])))  # blocks
    spaces = demos.observation_space, demos.action_space
    assert (len(demos), spaces) == (2, (gym.spaces.Discrete(3), gym.spaces.Discrete(2)))


def arrays(obs: Any, actions: Any, **more: Any) -> dict[str, Any]:
    return {"observations": np.zeros(obs), "actions": np.zeros(actions)} | more


BAD_OBS = np.array([[0.0, 1.0], [np.nan, 0.0]])
REFUSED: dict[str, tuple[Any, str]] = {  # and a word of the refusal
    "no observations": ({"actions": np.zeros((1, 2))}, "no array 'observations'"),
    "nan": ((BAD_OBS, np.zeros(2, int)), r"nan at index \(1, 0\)"),
    "infinite action": ((np.zeros((2, 2)), np.array([[0.0], [np.inf]])), "actions.*inf"),
    "words": ((np.full((2, 2), "a"), np.zeros(2)), "<U1"),
    "no rows": (arrays((), ()), "rows"),
    "no steps": (arrays((7, 2), (4, 1), lengths=[3, 1, 0]), "episode 2: no actions"),
    "too few": ((np.zeros((2, 2)), np.zeros(5)), "want 6 rows"),
    "rewards": (arrays((3, 2), 2, rewards=np.zeros(3)), "rewards of shape"),
    "flags": (arrays((2, 2), 2, terminals=np.zeros(3)), "terminals of shape"),
    "first steps": (arrays((2, 2), 2, episode_starts=np.zeros(3)), "episode_starts of shape"),
    "lengths": (arrays((2, 2), 2, lengths=[1.5]), "lengths float64"),
    "padded lengths": (arrays((2, 3, 2), (2, 3, 1), lengths=[3, 4]), "4 steps"),
    "block rewards": (arrays((2, 3, 2), (2, 3, 1), rewards=np.zeros((2, 4))), r"rewards of shape \(2, 4\)"),
    "ends within": (arrays((4, 2), 4, terminals=[0, 1, 0, 0], lengths=[4]), "terminals set at step 1 of 4"),
    "other counts": (([np.zeros((2, 2)), np.zeros((3, 2))], [np.zeros((1, 1))]), "2 observations"),
    "unequal": (([np.zeros((2, 2)), np.zeros((4, 2))], [np.zeros((1, 1)), np.zeros((2, 1))]), "4 observations"),
    "mixed widths": (([np.zeros((2, 2)), np.zeros((3, 3))], [np.zeros((1, 1)), np.zeros((2, 1))]), "shapes"),
    "negative": ((np.zeros((2, 2)), np.array([0, -1])), "out of range"),
    "nothing": ([], "no episodes"),
    "an array": (np.zeros((2, 2)), "ndarray"),
    "a number": (3, "int"),
    "list of arrays": ([np.zeros((2, 2)), np.zeros(2)], "pair"),
    "other names": ([{"obs": [{"a": 1}, {"b": 1}, {"a": 2}], "acts": [0, 1]}], "same names"),
    "unequal names": ([{"obs": {"a": np.zeros(3), "b": np.zeros(4)}, "acts": [0, 1]}], "each name"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_faulty_arrays_are_refused_in_one_line(case):
    source, message = REFUSED[case]
    with pytest.raises(DatasetError, match=message) as refusal:
        load_demos(source)
    assert "\n" not in str(refusal.value)


# --- with an environment ----------------------------------------------------------------------------------------------


def test_plain_arrays_take_the_spaces_of_their_environment():
    env = gym.make("Pendulum-v1")  # Box(3,), Box(-2, 2, (1,))
    for actions in (np.array([[0.5], [-2.0]]), np.array([0.5, -2.0]), np.array([1, 0])):
        demos = load_demos((np.zeros((3, 3)), actions), env)
        assert demos.action_space == env.action_space
        assert demos.observation_space == env.observation_space
        np.testing.assert_array_equal(demos.actions[:, 0], actions.reshape(-1))
    obs = np.zeros((3, 4))
    for actions in (np.array([1.0, 0.0]), np.array([0, 0])):  # discrete actions in floats, or not all of them used
        assert load_demos((obs, actions), "CartPole-v1").action_space == gym.spaces.Discrete(2)
    demos = Demonstrations.from_arrays([np.zeros((2, 3))], [np.zeros((1, 1))])
    assert load_demos(demos, "Pendulum-v1") is demos  # it has spaces of its own


@pytest.mark.parametrize("steps", [2, 47])  # 48 numbers are an episode, not one row of 48 states
@pytest.mark.parametrize("form", [lambda n: n, lambda n: n[:, None], lambda n: n.astype(float), np.eye(48).__getitem__])
def test_numbers_of_states_are_taken_where_learners_see_them_one_hot(form, steps):
    env = compile_env("tabular/CliffWalking-v0")
    numbers = np.arange(steps + 1)[::-1]
    demos = load_demos((form(numbers), np.zeros(steps, int)), env)
    np.testing.assert_array_equal(demo_data(demos, env).transitions.obs, np.eye(48)[numbers[:-1]])
    own = Demonstrations.from_arrays([numbers], [np.zeros(steps, int)], observation_space=gym.spaces.Discrete(48))
    np.testing.assert_array_equal(demo_data(own, env).transitions.next_obs, np.eye(48)[numbers[1:]])


MISFITS: list[tuple[Any, str, str]] = [
    ((np.zeros((3, 3)), np.array([[0.5], [-2.1]])), "Pendulum-v1", "actions.*out of range"),
    ((np.full((3, 3), 1.5), np.zeros((2, 1))), "Pendulum-v1", "observations.*out of range"),
    ((np.zeros((3, 4)), np.zeros((2, 1))), "Pendulum-v1", "observation space"),
    ((np.zeros((3, 3)), np.zeros((2, 2))), "Pendulum-v1", "action space"),
    ((np.zeros((3, 4)), np.array([0.5, 1.0])), "CartPole-v1", "action space"),
    ((np.array([36, 48]), np.array([0])), "tabular/CliffWalking-v0", "observations.*48"),
    ((np.zeros((3, 4)), np.array([0, 2])), "CartPole-v1", "actions.*2"),
]


@pytest.mark.parametrize(("source", "env", "word"), MISFITS)
def test_numbers_that_do_not_fit_are_refused(source, env, word):
    with pytest.raises(DatasetError, match=word):
        load_demos(source, env)
