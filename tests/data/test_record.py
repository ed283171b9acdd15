"""Demonstrations by a program, Dict observations, and actions stored one step too early or too late."""

from dataclasses import replace
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

import scopil
from hosts import LIMIT, InPlace, Walk, registered
from scopil.cli import main
from scopil.data import storage
from scopil.data.dataset import Demonstrations
from scopil.envs.gym_env import HostEnv, compile_env
from scopil.errors import ConfigError, DatasetError, EnvError
from scopil.eval.episodes import measure_demonstrations, replay
from scopil.eval.rules import Rules
from scopil.train.demo_data import demo_data
from scopil.user_code import load_object
from scopil_bench.cli.demo_checks import compare, run_checks

MARBLE = "scopil/MarbleMaze-Simple-v0"


class Named(Walk):
    """Has Dict observations, and takes two choices at a time."""

    observation_space = gym.spaces.Dict(  # pyright: ignore[reportAssignmentType]
        side=gym.spaces.Discrete(2),
        where=gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
        pair=gym.spaces.Tuple([gym.spaces.MultiBinary(2), gym.spaces.MultiDiscrete([2, 3])]),
    )
    action_space = gym.spaces.MultiDiscrete([2, 3])

    def step(self, action):
        assert action.shape == (2,)
        return super().step(action[0])

    def see(self):
        here = super().see()
        return {"where": here, "side": int(self.x > 0), "pair": (np.array([1, 0], np.int8), np.array([1, 2]))}


def home(obs):
    """An expert that walks towards x = 0."""
    return [int(obs["where"][0] < 0), 2]


@pytest.fixture(scope="module")
def recorded() -> Demonstrations:
    return scopil.record(Named, home, episodes=4, seed=7)


def test_an_expert_is_recorded_step_by_step(recorded):
    env = Named()
    assert len(recorded) == 4
    for seed, episode in enumerate(recorded, start=7):
        obs, _ = env.reset(seed=seed)
        terminated = truncated = False
        for t, action in enumerate(episode.actions):
            np.testing.assert_array_equal(episode.observations[t], gym.spaces.flatten(env.observation_space, obs))
            given = home(obs)
            assert action == 3 * given[0] + given[1]
            obs, reward, terminated, truncated, _ = env.step(np.array(given))
            assert episode.rewards[t] == pytest.approx(reward, rel=1e-6)
        assert (episode.terminated, episode.truncated) == (terminated, truncated)
    assert recorded.action_space == gym.spaces.Discrete(6)
    assert any(e.truncated and len(e) == LIMIT for e in recorded)  # stopped by the time limit
    assert recorded.as_given(recorded.observations[0]).keys() == {"side", "where", "pair"}


class NamedInPlace(Named):
    """Returns the same arrays at every step."""

    def __init__(self):
        super().__init__()
        self.kept = {"where": np.zeros(2, np.float32), "side": 0, "pair": (np.zeros(2, np.int8), np.zeros(2, int))}

    def see(self):
        self.kept["where"][:] = self.x, self.clock
        self.kept["pair"][1][:] = 1, self.clock % 3
        return self.kept


def test_an_environment_that_returns_the_same_array_at_every_step():
    rows, same = (scopil.record(env, lambda obs: 1, episodes=2) for env in (Walk, InPlace))
    np.testing.assert_array_equal(same.observations, rows.observations)
    for episode in scopil.record(NamedInPlace, home, episodes=2):
        steps = np.arange(len(episode) + 1)
        seen = [gym.spaces.unflatten(Named.observation_space, row) for row in episode.observations]
        np.testing.assert_array_equal([one["where"][1] for one in seen], steps)
        np.testing.assert_array_equal([one["pair"][1][1] for one in seen], steps % 3)


class Endless(Walk):
    def step(self, action):
        return *super().step(action)[:2], False, False, {}


def test_an_endless_episode_is_stopped_with_one_warning_for_its_environment(monkeypatch):
    monkeypatch.setattr("scopil.envs.base.ENDLESS", 20)
    with pytest.warns(UserWarning, match="no time limit") as caught:
        demos = scopil.record(Endless, lambda obs: 1, episodes=3)
    assert [(len(e), e.truncated) for e in demos] == [(20, True)] * 3
    assert len(caught) == 1
    with registered(Endless, max_episode_steps=25) as name:  # a limit of its own, and no warning
        (whole,) = scopil.record(name, lambda obs: 1, episodes=1)
    assert len(whole) == 25


class Sampling:
    """As a policy of Stable-Baselines3: it samples by default."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return int(deterministic), state


class Forwarding:
    def predict(self, observation, **options):
        return Sampling().predict(observation, **options)


def test_an_expert_that_can_sample_is_recorded_deterministically():
    for policy in (Sampling(), Forwarding()):
        assert scopil.record(Walk, policy, episodes=1).actions.all()
        assert not scopil.record(Walk, policy, episodes=1, deterministic=False).actions.any()
    for policy in (SimpleNamespace(predict=lambda obs: (1, None)), lambda obs, deterministic=0: 1 - deterministic):
        assert scopil.record(Walk, policy, episodes=1).actions.all()


def test_names_survive_a_file(recorded, tmp_path):
    recorded.save(tmp_path / "named.npz")
    again = scopil.load_demos(tmp_path / "named.npz")
    assert again.flattened_from == recorded.flattened_from == Named.observation_space
    assert storage.to_bytes(again) == storage.to_bytes(recorded)
    rules = Rules.of({"left": lambda obs, action, next_obs: next_obs["side"] == 0})
    (found, *_) = measure_demonstrations(again, None, rules)  # no environment needed
    rows = again.episodes[0].observations
    assert found["violations/left"] == sum(again.as_given(row)["side"] == 0 for row in rows[1:])
    np.testing.assert_array_equal(demo_data(again, HostEnv(Named())).transitions.obs, recorded.observations)


def test_a_rule_by_a_key_of_info_counts_in_a_file_too(tmp_path):
    demos = scopil.record(Walk, lambda obs: 1, episodes=3)
    demos.save(tmp_path / "walks.npz")
    again = scopil.load_demos(tmp_path / "walks.npz")
    assert again.digest == replace(demos, episodes=tuple(replace(e, info={}) for e in demos)).digest
    rules = Rules.of({"right": "cost", "far": lambda obs, action, next_obs: next_obs[0] > 2})
    for episode, found in zip(demos, measure_demonstrations(again, None, rules), strict=True):
        x = episode.observations[:, 0]
        assert found["violations/right"] == (x > 1).sum() > 0
        assert found["violations/far"] == (x[1:] > 2).sum()
    unknown = Rules.of({"far": rules.by_name["far"], "crash": "crashed"})
    checks = {check.what: check.text for check in run_checks(str(tmp_path / "walks.npz"), rules=unknown)}
    assert checks["rules"].startswith("violations per episode: far = ")
    assert checks["rules"].endswith("; not recorded: crash")


@pytest.mark.parametrize("layout", ["rows", "list", "steps", "blocks"])
def test_plain_arrays_by_name_take_the_order_of_the_environment(layout):
    env = gym.spaces.Dict([("z", gym.spaces.Discrete(3)), ("a", gym.spaces.Box(-9, 9, (2,), np.float32))])
    Here = type("Here", (Walk,), {"observation_space": env})
    a, z = np.arange(24, dtype=np.float32).reshape(2, 6, 2) / 9, np.arange(12).reshape(2, 6) % 3
    acts = [np.array([0, 1, 0, 1, 1])] * 2
    joined = {"z": z.reshape(-1), "a": a.reshape(-1, 2)}
    given = {
        "rows": {"observations": joined, "actions": np.concatenate(acts), "lengths": [5, 5]},
        "list": [{"obs": {"z": z[i], "a": a[i]}, "acts": acts[i]} for i in range(2)],
        "steps": ([[{"z": z[i, t], "a": a[i, t]} for t in range(6)] for i in range(2)], acts),
        "blocks": {"observations": {"z": z, "a": a}, "actions": np.stack(acts)},
    }[layout]
    demos = scopil.load_demos(given, HostEnv(Here()))
    for i, episode in enumerate(demos):
        for t, row in enumerate(episode.observations):
            want = gym.spaces.flatten(env, {"z": z[i, t], "a": a[i, t]})
            np.testing.assert_allclose(row, np.asarray(want))
    with pytest.raises(DatasetError, match="observations of a, z"):
        scopil.load_demos(given, HostEnv(Named()))


def test_a_recorded_set_of_a_jax_environment_can_be_replayed():
    demos = scopil.record(MARBLE, SimpleNamespace(predict=lambda obs: (3, None)), episodes=2)
    assert demos.starts is not None
    assert compare(demos, replay(compile_env(MARBLE), demos)).text == "equal, bit for bit"
    assert demos.env_id == MARBLE


def test_an_environment_that_leaves_its_bounds_is_recorded_without_them():
    Narrow = type("Narrow", (Walk,), {"observation_space": gym.spaces.Box(-1, 1, (2,), np.float32)})
    demos = scopil.record(Narrow, lambda obs: 1, episodes=1)
    assert np.isinf(demos.observation_space.high).all()  # pyright: ignore[reportAttributeAccessIssue]
    assert "leaves the bounds" in demos.about["assumed"][0]


def test_faulty_experts_and_environments_are_refused():
    for expert in (lambda obs: 7, lambda obs: None, lambda obs: 0.5, "act"):
        with pytest.raises(ConfigError):
            scopil.record(Walk, expert, episodes=1)
    with pytest.raises(EnvError):
        scopil.record(3, lambda obs: 0, episodes=1)


def test_an_experts_exception_names_its_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "late.py").write_text("def act(obs):\n    return wheel(obs)\n\ndef wheel(obs):\n    return 1 // 0\n")
    expert = load_object("late.py:act", "")
    with pytest.raises(EnvError, match=r"episode 0 \(seed 5\): ZeroDivisionError: .* \(late\.py, line 5\)\.$"):
        scopil.record(Walk, expert, episodes=1, seed=5)


# --- alignment ----------------------------------------------------------------------------------------------------


def shifted(demos: Demonstrations, by: int) -> Demonstrations:
    """Actions stored with the observation they led to (by = 1), or one step too early."""
    rows, acts = (slice(1, None), slice(None, -1)) if by > 0 else (slice(None, -1), slice(1, None))
    parts = [(e, e.observations[rows], e.actions[acts]) for e in demos]
    return replace(
        demos, episodes=tuple(replace(e, observations=obs, actions=actions, rewards=None) for e, obs, actions in parts)
    )


@pytest.mark.parametrize(
    ("env", "expert"),
    [
        ("CartPole-v1", lambda obs: int(obs[2] + 0.5 * obs[3] > 0)),
        ("Pendulum-v1", lambda obs: np.clip([-2 * obs[1] - 0.5 * obs[2] + np.sin(50 * obs[2])], -2, 2)),
    ],
)
def test_a_shift_of_one_step_is_found(env, expert, tmp_path):
    right = scopil.record(f"{env}(max_episode_steps=120)", expert, episodes=4)
    for by, mark in ((0, "ok"), (1, "FAIL"), (-1, "FAIL")):
        file = tmp_path / f"{by}.npz"
        (right if by == 0 else shifted(right, by)).save(file)
        found = {check.what: check for check in run_checks(str(file), env)}
        assert found["alignment"].mark == mark, found["alignment"].text
        assert found["environment"].ok
    assert "want observations[1:] with actions[:-1]" in found["alignment"].text
    alone = {check.what: check for check in run_checks(str(tmp_path / "0.npz"))}
    assert alone["alignment"].mark == "ok"
    assert main(["demos", "check", str(tmp_path / "1.npz"), "--env", env]) == 2


CART = """
import gymnasium as gym, numpy as np

class Cart(gym.Env):  # random play meets the walls, where a linear model is wrong; the expert never does
    observation_space = gym.spaces.Box(-9, 9, (4,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.p, self.v = self.np_random.uniform(0, 1, 2), np.zeros(2)
        return np.concatenate([self.p, self.v]).astype(np.float32), {}
    def step(self, action):
        self.v = np.clip(self.v + 0.2 * action, -1, 1)
        self.p = np.clip(self.p + 0.2 * self.v, -1, 6)
        over = np.linalg.norm(self.p - 4) < 0.4
        return np.concatenate([self.p, self.v]).astype(np.float32), -1.0, bool(over), False, {}

def act(obs):
    p, v = obs[:2], obs[2:]
    goal = np.array([4, 4] if p[0] > 3 or p[1] > 3.4 else [3.3, 1] if p[0] > p[1] else [1, 3.6])
    return np.clip(3 * (0.55 * (goal - p) / np.linalg.norm(goal - p) - v), -1, 1)
"""


@pytest.mark.parametrize(("by", "mark"), [(0, "ok"), (1, "FAIL"), (-1, "FAIL")])
def test_a_biased_model_does_not_make_a_shift(by, mark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"cart{by + 1}.py").write_text(CART)
    name = f"cart{by + 1}.py:Cart(max_episode_steps=80)"
    right = scopil.record(name, load_object(f"cart{by + 1}.py:act", ""), episodes=20)
    (right if by == 0 else shifted(right, by)).save("d.npz")
    found = {check.what: check for check in run_checks("d.npz", name)}
    assert found["alignment"].mark == mark, found["alignment"].text


def test_actions_that_never_change_give_no_verdict(tmp_path):
    scopil.record("CartPole-v1", lambda obs: 1, episodes=5).save(tmp_path / "still.npz")
    found = {check.what: check for check in run_checks(str(tmp_path / "still.npz"), "CartPole-v1")}
    assert "hardly ever change" in found["alignment"].text
