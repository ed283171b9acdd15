"""Environments with invalid spaces, observations, rewards, flags, infos or exceptions, composed by Hypothesis, are
refused with a ScopilError, or stepped."""

from typing import Any

import gymnasium as gym
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from hosts import Walk
from scopil.data.dataset import Episode
from scopil.envs.gym_env import open_env
from scopil.envs.jax_env import CompiledEnv
from scopil.errors import EnvError, ScopilError
from scopil.eval.measures import measure_all
from scopil.eval.rules import with_rules
from toys import Throttle

NAN, INF = float("nan"), float("inf")
BOX = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
SPACES = [
    BOX, gym.spaces.Discrete(3), gym.spaces.Discrete(2, start=-5), gym.spaces.MultiDiscrete([2, 3]),
    gym.spaces.Box(-INF, INF, (0,), np.float32), gym.spaces.Box(-INF, INF, (2, 0), np.float32),
    gym.spaces.Box(0, 255, (4, 4, 3), np.uint8), gym.spaces.Box(-INF, INF, (), np.float64),
    gym.spaces.Box(-1, 1, (1,), np.int64), gym.spaces.MultiBinary(3), gym.spaces.Text(5), gym.spaces.Sequence(BOX),
    gym.spaces.Dict({"a": BOX, "b": gym.spaces.Discrete(2)}), gym.spaces.Tuple((BOX, BOX)), gym.spaces.Dict({}),
    None, "Box",
]  # fmt: skip
OBSERVATIONS: list[Any] = [
    "sampled", None, "text", NAN, [NAN, 0.0], [INF, 0.0], [1e39, 0.0], [0.0], [0.0, 0.0, 0.0], [[0.0, 0.0]], [],
    {"a": 1}, object(), np.zeros(2, object), np.zeros(2, "M8[s]"), np.zeros(2, complex), True, 10**400,
]  # fmt: skip
REWARDS: list[Any] = [
    0.0, 1, True, NAN, INF, None, "1.0", "x", [1.0], np.ones(2), 1e308, 10**400, 1j, object(), {}
]  # fmt: skip
FLAGS: list[Any] = [False, True, None, 0, "no", NAN, np.zeros(1, bool), np.zeros(2, bool), [], object()]
INFOS: list[Any] = [
    {}, None, [], "info", 7, {"cost": NAN}, {"cost": INF}, {"cost": None}, {"cost": "x"}, {"cost": [1.0, NAN]},
    {"cost_a": np.float32("nan")}, {1: 2}, {"cost": True}, {"x": [[1], [1, 2]]}, {"cost": 10**400},
]  # fmt: skip
RAISED: list[Any] = [None, ZeroDivisionError("x"), MemoryError(), RecursionError(), OSError(5, "x"), StopIteration()]


class Odd(gym.Env):
    def __init__(self, given: dict[str, Any]):
        self.given, self.steps = given, 0
        self.observation_space, self.action_space = given["observation_space"], given["action_space"]

    def see(self) -> Any:
        odd = self.given["observation"]
        return self.observation_space.sample() if isinstance(odd, str) and odd == "sampled" else odd

    def reset(self, *, seed=None, options=None) -> Any:
        super().reset(seed=seed)
        if self.given["at_reset"]:
            self.fail()
            return self.see(), self.given["info"]
        return self.observation_space.sample(), {}

    def step(self, action) -> Any:
        self.steps += 1
        self.fail()
        if self.given["short"]:
            return self.see(), self.given["reward"]
        flags = self.given["terminated"], self.given["truncated"]
        return self.see(), self.given["reward"], *flags, self.given["info"]

    def fail(self) -> None:
        if self.given["raised"] is not None:
            raise self.given["raised"]


odd_envs = st.fixed_dictionaries(
    {
        "observation_space": st.sampled_from(SPACES) | st.just(BOX),
        "action_space": st.sampled_from(SPACES) | st.just(gym.spaces.Discrete(3)),
        "observation": st.sampled_from(OBSERVATIONS) | st.just("sampled"),
        "reward": st.sampled_from(REWARDS) | st.just(0.0),
        "terminated": st.sampled_from(FLAGS) | st.just(False),
        "truncated": st.sampled_from(FLAGS) | st.just(False),
        "info": st.sampled_from(INFOS) | st.just({}),
        "raised": st.sampled_from(RAISED) | st.none(),
        "at_reset": st.booleans(),
        "short": st.sampled_from([False, False, False, True]),
    }
)


def play(given: dict[str, Any]) -> None:
    """The calls of training and evaluation, without compilation."""
    try:
        env = open_env(lambda: Odd(given))
        env.reports_cost()
        envs = env.envs_to_play(2)  # type: ignore[attr-defined]
        _, infos = envs.reset(np.arange(2))
        costs = [envs.numbers(infos, 0)]
        space: Any = env.action_space
        action = (
            np.int32(0) if isinstance(space, gym.spaces.Discrete) else np.asarray(0.5 * space.low + 0.5 * space.high)
        )
        actions = np.stack([action] * 2)
        rows = []
        for _ in range(3):
            result = envs.step(actions, np.arange(2))
            assert np.isfinite(result.next_obs).all()
            assert np.isfinite(result.reward).all()
            rows.append(result.next_obs[0])
            costs.append(envs.numbers(result.infos, 0))
        names = {name for each in costs for name in each if name.startswith("cost")}
        info = {name: np.array([each.get(name, 0.0) for each in costs]) for name in names}
        episode = Episode(observations=np.stack([rows[0], *rows]), actions=actions[:1].repeat(3, 0), info=info)
        found = measure_all([episode], env)[0]
        assert all(value == value for value in found.values())
    except ScopilError:
        pass


@pytest.mark.parametrize("examples", [80, pytest.param(500, marks=pytest.mark.slow)])
def test_invalid_environments_are_stepped_or_refused(examples):
    hypothesis.settings(max_examples=examples)(hypothesis.given(given=odd_envs)(play))()


@pytest.mark.parametrize("info", [None, [], {"cost": NAN}, {"cost_left": np.float32("nan")}])
def test_an_invalid_info_is_refused_with_its_step(info):
    class Odd(Walk):
        def info(self):
            return info if self.clock else {"cost": 0.0}

    env = open_env(Odd)
    envs = env.envs_to_play(1)  # type: ignore[attr-defined]
    envs.reset(np.zeros(1, int))
    with pytest.raises(EnvError, match="step 1 after reset"):
        envs.step(np.zeros(1, int), None)


def test_a_cost_of_nan_is_refused():
    episode = Episode(observations=np.zeros((3, 1)), actions=np.zeros(2), info={"cost": np.array([0, 0, NAN])})
    with pytest.raises(EnvError, match="step 2"):
        measure_all([episode])
    plain = Episode(observations=np.zeros((3, 1)), actions=np.zeros(2))
    with pytest.raises(ScopilError):
        measure_all(with_rules([plain], {"speed": lambda obs, action, next_obs: NAN}))


def test_spaces_without_numbers_are_refused():
    class Nothing(Throttle):
        action_space = gym.spaces.Box(-1.0, 1.0, (0,), np.float32)

    with pytest.raises(EnvError):
        CompiledEnv(Nothing())
