"""Environments in user files: names, options, and action spaces with several choices."""

import itertools
import sys

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scopil
from probes import Probe
from scopil.envs.as_gym import FunctionalEnv, FunctionalVectorEnv
from scopil.envs.gym_env import HostEnv, open_env
from scopil.envs.jax_env import CompiledEnv, id_of, make_env
from scopil.envs.naming import names_code, read_options, split_options, with_options
from scopil.envs.spaces import Spaces, joined, numbered, split
from scopil.errors import ConfigError, EnvError
from scopil.train import loop
from toys import Arms

FILE = """
import gymnasium as gym
import numpy as np
from toys import Arms

class Lamp(gym.Env):
    observation_space = gym.spaces.Dict(b=gym.spaces.Discrete(2), a=gym.spaces.Box(0, 1, (1,), np.float32))
    action_space = gym.spaces.MultiDiscrete([3, 2])

    def __init__(self, size=1, render_mode=None):
        self.size, self.render_mode, self.seen = size, render_mode, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"b": 0, "a": np.zeros(1, np.float32)}, {}

    def step(self, action):
        self.seen.append(np.array(action))
        return {"b": 1, "a": np.ones(1, np.float32)}, float(self.size), False, False, {}

def broken():
    raise RuntimeError("no bulb")

def compiled():
    return Arms()

number = 3
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lamp_env.py").write_text(FILE)
    yield tmp_path
    for name in [n for n in sys.modules if n.startswith(("lamp_env", "lamp_module"))]:
        del sys.modules[name]


def test_a_class_in_a_file_is_an_environment(here):
    env = make_env("lamp_env.py:Lamp(size=5, max_episode_steps=7)", render_mode="rgb_array")
    assert (env.unwrapped.size, env.unwrapped.render_mode) == (5, "rgb_array")  # pyright: ignore[reportAttributeAccessIssue]
    assert env.spec is not None
    assert env.spec.max_episode_steps == 7
    opened = open_env("lamp_env.py:Lamp(size=5, max_episode_steps=7)")
    assert isinstance(opened, HostEnv)
    assert (opened.name, opened.time_limit) == ("lamp_env:Lamp", 7)
    group = opened.envs_to_play(3)  # as many copies as wanted
    group.reset(np.arange(3))
    truncated = [group.step(np.zeros(3, int), None).truncated.all() for _ in range(7)]
    assert truncated == [False] * 6 + [True]
    assert id_of("lamp_env.py:Lamp(size=5)") == "lamp_env.py:Lamp(size=5)"
    opened = open_env("lamp_env.py:compiled(max_episode_steps=2)")
    assert isinstance(opened, CompiledEnv)
    assert opened.time_limit == 2
    assert isinstance(opened.env, Arms)


def test_a_module_in_this_folder_registers_an_id(here):
    (here / "lamp_module.py").write_text(
        "import gymnasium as gym\ngym.register('test/Lamp-v0', entry_point='lamp_env:Lamp')\n"
    )
    try:
        assert make_env("lamp_module:test/Lamp-v0(size=4)").unwrapped.size == 4  # pyright: ignore[reportAttributeAccessIssue]
    finally:
        del gym.registry["test/Lamp-v0"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lamp_env.py:Torch", "Torch"),
        ("lamp_env.py", "my_env.py:MyEnv"),
        ("lamp_env.py:broken", "RuntimeError: no bulb"),
        ("lamp_env.py:number", "TypeError"),
        ("lamp_env.py:Lamp(colour=3)", "colour"),
        ("other_env.py:Lamp", "no file other_env.py in /"),
        ("lamp_absent:Lamp-v0", "lamp_absent"),
        ("Pendulum-v1(max_episode_steps=", "brackets"),
        ("Pendulum-v1(3)", "options without a name"),
        ("Pendulum-v1(g=open('x'))", "want options as in"),
    ],
)
def test_what_cannot_be_made_is_refused(here, name, message):
    with pytest.raises((EnvError, ConfigError), match=message):
        make_env(name)


def test_options_are_part_of_a_name():
    assert split_options("A/B-v0(size=5, mode='fast', sizes=[1, 2])") == (
        "A/B-v0",
        {"size": 5, "mode": "fast", "sizes": [1, 2]},
    )
    assert split_options("CartPole-v1") == ("CartPole-v1", {})
    assert with_options("A(size=5)", {"size": 6, "mode": "a b"}) == "A(size=6, mode='a b')"
    assert with_options("A", {}) == "A"
    assert read_options(["size=5", "mode=fast", "on=True"]) == {"size": 5, "mode": "fast", "on": True}
    with pytest.raises(ConfigError, match="--env-kwargs 5; want NAME=VALUE"):
        read_options(["5"])
    # A file may give numbers as options, and no text.
    assert not names_code("CartPole-v1(max_episode_steps=300)")
    for name in ("my_env.py:MyEnv", "module:Id-v0(a=1)", "Ant-v5(xml_file='elsewhere.xml')", "A(a=['x'])"):
        assert names_code(name)


# --- several choices at a time ------------------------------------------------------------------------------------

CHOICES = [
    gym.spaces.MultiDiscrete([3, 2]),
    gym.spaces.MultiDiscrete([2, 3], start=[5, -1]),
    gym.spaces.MultiBinary(3),
    gym.spaces.MultiDiscrete(np.array([[2, 2], [3, 1]])),
]


@pytest.mark.parametrize("space", CHOICES, ids=str)
def test_joint_choices_are_numbered_from_0_and_found_again(space):
    space.seed(0)
    drawn = np.stack([space.sample() for _ in range(50)])
    numbers, count = joined(drawn, space), numbered(space)
    assert isinstance(count, gym.spaces.Discrete)
    assert numbers.min() >= 0
    assert numbers.max() < count.n
    np.testing.assert_array_equal(split(numbers, space), drawn)
    every = split(np.arange(count.n), space)
    assert len({one.tobytes() for one in every}) == count.n
    assert all(space.contains(one) for one in every)
    codec = Spaces("env", gym.spaces.Box(0, 1, (1,)), space, compiled=True)
    np.testing.assert_array_equal(jax.vmap(codec.to_env_in_jax)(jnp.asarray(numbers)), drawn)


def test_the_last_part_counts_fastest_and_too_many_joint_choices_are_refused():
    np.testing.assert_array_equal(split(np.arange(6), CHOICES[0]), list(itertools.product(range(3), range(2))))
    with pytest.raises(EnvError, match="256"):
        numbered(gym.spaces.MultiDiscrete([10, 10, 10]))
    assert numbered(gym.spaces.MultiBinary(8)) == gym.spaces.Discrete(256)


def test_an_agent_makes_all_choices_of_an_action(here):
    agent = scopil.SAC("lamp_env.py:Lamp(max_episode_steps=3)", hidden=(4,), seed=0)
    assert agent.env.action_space == gym.spaces.Discrete(6)
    action, _ = agent.predict({"b": 1, "a": np.ones(1, np.float32)})
    assert gym.spaces.MultiDiscrete([3, 2]).contains(action)
    (episode,) = agent.play(episodes=1)
    env = agent.env.envs_to_play(1)  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_array_equal(env._envs[0].unwrapped.seen, episode.actions)
    assert episode.actions.shape == (3, 2)
    assert (episode.truncated, episode.terminated) == (True, False)


class Choosing(Probe):
    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.MultiDiscrete([2, 3])  # pyright: ignore[reportAssignmentType]

    def reward(self, state, action, next_state, rng, params=None):
        return 10.0 * action[0] + action[1]


class Turning(Choosing):
    """One choice, as a Box of one integer."""

    action_space = gym.spaces.Box(0, 3, (1,), np.uint8)  # pyright: ignore[reportAssignmentType]

    def reward(self, state, action, next_state, rng, params=None):
        return jnp.float32(action[0] - 3)


@pytest.mark.parametrize("shape", [(1,), (), (1, 1)])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_one_integer_is_predicted_in_the_shape_of_its_box(shape, dtype):
    box = gym.spaces.Box(0, 3, shape, dtype)
    compiled = CompiledEnv(type("Boxed", (Turning,), {"action_space": box})())
    for spaces in (compiled.spaces, Spaces("env", Choosing.observation_space, box)):
        take = spaces.to_env
        assert box.contains(take(3))
        several = take(np.array([3, 0, 1]))
        assert (several.shape, several.dtype) == ((3, *shape), dtype)
        np.testing.assert_array_equal(several.reshape(3), [3, 0, 1])


@pytest.mark.parametrize(("func", "taken", "number", "reward"), [(Choosing, [1, 2], 5, 12.0), (Turning, [1], 1, -2.0)])
def test_a_gymnasium_form_takes_what_an_agent_predicts_and_what_is_stored(func, taken, number, reward):
    compiled = CompiledEnv(func())
    env = FunctionalEnv(compiled)
    group = FunctionalVectorEnv(compiled, 2)
    env.reset(seed=0)
    group.reset(seed=0)
    for action in (compiled.spaces.to_env(number), np.array(taken), number):
        assert env.step(action)[1] == reward
    for action in (compiled.spaces.to_env(np.full(2, number)), np.full(2, number)):
        np.testing.assert_array_equal(group.step(action)[1], [reward] * 2)
    for wrong in (np.array(taken) + 3, np.array(taken) - 3.0, -1, 6):
        with pytest.raises(EnvError, match="want one of"):
            env.step(wrong)


@pytest.mark.parametrize("func", [Choosing, Turning])
def test_an_agent_is_recorded_where_its_actions_are_numbered(func):
    agent = scopil.SAC(func(), hidden=(4,), seed=0)
    assert agent.env.spaces.env_action.contains(agent.predict(np.ones(1, np.float32))[0])
    demos = scopil.record(func(), agent, 2)
    assert demos.action_space == agent.env.action_space
    assert len({int(a) for a in demos.actions}) == 1  # one state, one greedy action


# --- memory -------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_into_memory_is_refused_before_it_is_allocated(monkeypatch):
    monkeypatch.setattr(loop, "machine_memory", lambda: 1_000_000_000)
    with pytest.raises(ConfigError, match=r"4\.0 GB.*20,000,000"):
        scopil.SAC("Pendulum-v1", replay_size=100_000_000)
    scopil.SAC("Pendulum-v1", replay_size=20_000_000)
    with pytest.raises(ConfigError, match="rollout_steps"):
        scopil.PPO("Pendulum-v1", rollout_steps=6_400_000, num_envs=4)
