"""Compared policies: the page shows the episodes of `agent.play`."""

import io
import shutil

import numpy as np
import pytest

from runs import untrained_run
from scopil.data import storage
from scopil.errors import ConfigError, EnvError, ScopilError
from scopil.loading import load
from scopil_studio import comparing, trays
from scopil_studio.recorder import mark_of
from scopil_studio.worker import StudioConfig, checked_call

MAZE = "scopil/MarbleMaze-Simple-v0"
START = [60.0, 120.0]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    untrained_run(home / "sac", "sac")
    untrained_run(home / "bc", "bc", seed=1, demos="marble-maze/simple-v1")
    shutil.copy(home / "sac" / "policy.safetensors", home / "mine.safetensors")
    untrained_run(home / "pole", "sac", env="CartPole-v1")
    (home / "rules.py").write_text("def low(obs, action, next_obs):\n    return next_obs[1] < 0.68\n")
    return StudioConfig(home)


def test_the_episodes_shown_are_those_of_agent_play(config):
    args = {"env": MAZE, "policies": ["sac", "bc", "mine.safetensors"], "start": START}
    found = checked_call(comparing.roll, args, config)
    for shown in found["policies"]:
        (played,) = load(config.folder / shown["name"]).play(np.array([START], np.float32))
        np.testing.assert_array_equal(np.float32(shown["positions"]), played.info["position"])
        assert shown["actions"] == played.actions.tolist()
        assert shown["broken"] == (played.info["cost"] > 0).tolist()
        assert len(shown["chances"]) == len(played)
        np.testing.assert_allclose(np.sum(shown["chances"], axis=1), 1.0, atol=1e-3)
        assert np.argmax(shown["chances"], axis=1).tolist() == shown["actions"]  # greedy
    demos = storage.load_demos("marble-maze/simple-v1")
    assert demos.starts is not None
    away = np.hypot(*(demos.starts - START).T)
    np.testing.assert_allclose(found["near"][0]["positions"][0], demos.starts[away.argmin()], atol=1e-3)
    assert len(found["near"]) == comparing.NEAR


def test_rules_of_the_caller_replace_those_of_the_tray(config):
    judged = StudioConfig(config.folder, (MAZE,), str(config.folder / "rules.py"))
    args = {"env": MAZE, "policies": ["sac"], "start": START}
    (shown,) = checked_call(comparing.roll, args, judged)["policies"]
    low = np.array(shown["positions"])[:, 1] / trays.REACH < 0.68
    assert shown["broken"] == [False, *low[1:].tolist()]
    assert shown["measures"]["violations/low"] == sum(low[1:])


def test_invalid_policies_starts_and_environments_are_refused(config):
    for policies in ([], ["sac"] * 5, ["pole"], ["none"], ["../sac"]):
        with pytest.raises((ScopilError, OSError)):
            comparing.roll(config, MAZE, policies, START)
    for start in ([0.0], [1e9, 0.0], [-144.0, -144.0], [0.0, 0.0, 0.0], []):
        with pytest.raises(ScopilError):
            comparing.roll(config, MAZE, ["sac"], start)
    with pytest.raises(EnvError):
        comparing.tray(config, "os:path-v0")
    assert comparing.tray(config, "CartPole-v1") == {"tray": None}
    with pytest.raises(ConfigError):
        comparing.roll(config, "CartPole-v1", ["pole"], START)


def test_the_first_part_of_the_map_covers_the_tray(config, monkeypatch):
    monkeypatch.setattr(comparing, "MAP_CHUNK", 16)
    found = comparing.starts_map(config, MAZE, "sac", 0)
    starts = np.array(found["starts"])
    assert starts.min(0).max() < -100
    assert starts.max(0).min() > 60
    agent = load(config.folder / "sac")
    played = agent.play(starts[3:4].astype(np.float32))[0]
    assert found["violations"][3] == (played.info["cost_horizontal"][1:] + played.info["cost_circle"][1:]).sum()
    with pytest.raises(ConfigError):
        comparing.starts_map(config, MAZE, "sac", 999)


def test_frames_and_downloads_hold_the_episodes_of_one_seed(config):
    about, data = comparing.frames(config, "CartPole-v1", ["pole", "pole"], 3)
    one, two = about["policies"]
    assert one == two
    assert len(one["rewards"]) + 1 == len(one["sizes"])
    assert one["costs"] is None  # CartPole reports none, and no rules are given: not known, which is not 0
    assert data.startswith(b"\xff\xd8\xff")
    assert len(data) == sum(one["sizes"]) + sum(two["sizes"])
    _, data = comparing.download(config, "npz", MAZE, ["sac"], START)
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        (played,) = load(config.folder / "sac").play(np.array([START], np.float32))
        np.testing.assert_array_equal(arrays["0:actions"], played.actions)
    _, data = comparing.download(config, "gif", "CartPole-v1", ["pole"], None, 1)
    assert data.startswith(b"GIF89a")
    with pytest.raises(ConfigError):
        comparing.download(config, "exe", MAZE, ["sac"], START)


PARTS = """
import gymnasium as gym, numpy as np
from hosts import InPlace

class Named(InPlace):
    observation_space = gym.spaces.Dict(z=InPlace.observation_space, a=gym.spaces.Discrete(2))

    def see(self):
        return {"z": super().see(), "a": self.clock % 2}

class Parts(Named):
    observation_space = gym.spaces.Tuple(Named.observation_space.values())

    def see(self):
        return tuple(super().see().values())
"""
RULES = """
def odd(obs, action, next_obs):
    at, side = (next_obs["z"], next_obs["a"]) if isinstance(next_obs, dict) else next_obs
    before = obs["z"] if isinstance(obs, dict) else obs[0]
    assert at[1] == before[1] + 1 and type(obs) is type(next_obs)
    return side
"""


@pytest.mark.filterwarnings("ignore:.*share an object")  # on purpose: rules need copies
@pytest.mark.parametrize("kind", ["Named", "Parts"])
def test_downloads_flatten_dict_and_tuple_observations_and_rules_get_them_unflattened(tmp_path, kind):
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "odd.py").write_text(RULES)
    env = f"{tmp_path / 'parts.py'}:{kind}"
    untrained_run(tmp_path / "run", "sac", env=env)
    judged = StudioConfig(tmp_path, (env,), str(tmp_path / "odd.py"))
    _, data = comparing.download(judged, "npz", env, ["run"])
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        steps = len(arrays["0:actions"])
        assert arrays["0:observations"].shape == (steps + 1, 4)
        np.testing.assert_array_equal(arrays["0:observations"][:, 1], np.arange(steps + 1))
        assert arrays["0:costs"].tolist() == [float(n % 2) for n in range(steps + 1)]


def test_a_recorded_episode_is_replayed(config):
    demos = storage.load_demos("marble-maze/simple-v1")
    found = comparing.replay(config, "marble-maze/simple-v1", mark_of(demos.episodes[2]))
    assert len(found["positions"]) == len(demos.episodes[2]) + 1
    assert not any(found["broken"])
    with pytest.raises(ScopilError):
        comparing.replay(config, "marble-maze/simple-v1", "nothing")


def test_violating_positions_are_found_in_any_number():
    params = trays.tray_of(comparing._opened(MAZE))
    assert params is not None
    places = np.tile(np.array([[-50.0, -60.0], [0.0, 150.0], [0.0, -165.0]]), (101, 1))
    assert trays.violating(params, places).tolist() == [True, False, True] * 101
