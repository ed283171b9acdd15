"""Recording without browser and server: messages in, states and files out."""

import json
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from scopil.data import storage
from scopil.envs.jax_env import make_env
from scopil.errors import ConfigError, DatasetError, EnvError
from scopil_studio import comparing, recording, trays
from scopil_studio.recorder import mark_of
from scopil_studio.recording import Playing, PointerRecorder
from scopil_studio.worker import Channel, StudioConfig, checked_call
from scopil_studio.workers import pack

MAZE = "scopil/MarbleMaze-Simple-v0"
HERE = Path(__file__).parent
CART = f"{HERE / 'cart_env.py'}:WarehouseCart(max_episode_steps=3)"
LIMITED = "CartPole-v1(max_episode_steps=2)"


def begin(tmp_path, **args):
    wanted = {"env": "CartPole-v1", "file": "demos/a.npz", "keys": "a=0,d=1"} | args
    return checked_call(Playing, wanted, StudioConfig(tmp_path, (LIMITED,)))


def tap(playing, *keys):
    for key in keys:
        for down in (True, False):
            playing.input({"key": key, "down": down, "n": 1})


def test_keys_play_undo_keep_and_discard_and_other_messages_are_refused(tmp_path):
    playing = begin(tmp_path)
    for message in ({}, {"key": "a"}, {"key": 1, "down": True}, {"axes": [0, 0]}, {"key": "x" * 99, "down": True}):
        with pytest.raises(ConfigError):
            playing.input(message)
    state, picture = playing.news()
    assert (state["step"], state["kept"], picture[:3]) == (0, 0, b"\xff\xd8\xff")
    assert playing.news() is None  # nothing new
    tap(playing, "a", "d", "u")
    state, _ = playing.news()
    assert state["step"] == 1
    for kept in (1, 2):
        while not playing.recorder.over:
            tap(playing, "a")
        tap(playing, "return" if kept == 1 else "backspace")
    assert len(storage.read(tmp_path / "demos" / "a.npz")) == 1
    state, _ = playing.news()
    assert (state["kept"], state["step"]) == (1, 0)


def test_a_recorded_set_has_the_environment_s_name_with_its_options(tmp_path):
    tap(begin(tmp_path, env=LIMITED), "a", "d", "return")
    demos = storage.read(tmp_path / "demos" / "a.npz")
    assert demos.env_id == LIMITED
    config = StudioConfig(tmp_path, (LIMITED,))
    found, _ = comparing.replay(config, "demos/a.npz", mark_of(demos.episodes[0]))
    assert len(found["policies"][0]["sizes"]) == 3


def test_a_tray_sends_numbers_and_no_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(trays, "PIXELS", 48)
    playing = begin(tmp_path, env=MAZE, keys="")
    assert playing.picture.startswith(b"\x89PNG")
    state, picture = playing.news()
    assert picture == b""
    start = state["position"]
    tap(playing, "up")
    state, _ = playing.news()
    assert state["tilt"] == [5.0, 0.0]
    assert state["position"][1] > start[1]
    assert playing.recorder.out == tmp_path / "demos" / "a.npz"


def test_a_pointer_plays_continuous_actions(tmp_path):
    playing = begin(tmp_path, env="Pendulum-v1", keys="")
    assert playing.about["pointer"]
    playing.input({"axes": [0.5, 1.0], "n": 1})
    tap(playing, "space")
    playing.input({"axes": [-3, 0], "n": 2})
    tap(playing, "space")
    assert [a.tolist() for a in playing.recorder._actions] == [[1.0], [-2.0]]


def test_dict_observations_are_recorded_as_flat_rows_and_rules_get_them_by_name(tmp_path):
    config = StudioConfig(tmp_path, (CART,), str(HERE / "cart_rules.py"))
    for kept in (1, 2):  # the second recorder continues the file
        playing = checked_call(Playing, {"env": CART, "file": "a.npz"}, config)
        assert isinstance(playing.recorder, PointerRecorder)
        playing.input({"axes": [-1.0, 0.2], "n": 1})
        while not playing.recorder.over:
            tap(playing, "space")
        assert playing.recorder.violations == 3  # too fast
        tap(playing, "return")
        demos = storage.read(tmp_path / "a.npz")
        assert (len(demos), demos.env_id) == (kept, CART)
    env = make_env(CART)
    assert demos.flattened_from == env.observation_space
    obs, _ = env.reset(seed=0)
    np.testing.assert_array_equal(demos.episodes[0].observations[0], gym.spaces.flatten(env.observation_space, obs))
    found, _ = comparing.replay(config, "a.npz", mark_of(demos.episodes[0]))
    assert found["policies"][0]["costs"] == [0.0, 1.0, 1.0, 1.0]


def test_tuple_observations_are_recorded(tmp_path):
    playing = begin(tmp_path, env="Blackjack-v1", keys="s=0,h=1")
    while not playing.recorder.over:
        tap(playing, "s")
    tap(playing, "return")
    demos = storage.read(tmp_path / "demos" / "a.npz")
    assert isinstance(demos.flattened_from, gym.spaces.Tuple)


def test_live_time_runs_from_the_first_key_on(tmp_path):
    playing = begin(tmp_path, live=True)
    assert playing.wait() is None
    playing.input({"key": "a", "down": True, "n": 1})
    for _ in range(3):
        assert playing.wait() is not None
        playing.tick()
    assert [int(a) for a in playing.recorder._actions] == [0, 0, 0]


REFUSED = [{"file": "../a.npz"}, {"file": "/tmp/a.npz"}, {"file": "a.txt"}, {"file": 3}, {"env": "os:system-v0"}]
REFUSED += [{"env": "NoSuch-v0"}, {"keys": "a=7"}, {"keys": ""}, {"seed": -1}, {"seed": 2**70}, {"seed": True}]


@pytest.mark.parametrize("args", [*REFUSED, {"extra": 1}])
def test_invalid_arguments_are_refused(tmp_path, args):
    with pytest.raises((ConfigError, EnvError, DatasetError)):
        begin(tmp_path, **args)
    assert not list(tmp_path.iterdir())


def test_a_worker_process_survives_invalid_messages_and_ends_with_its_server(tmp_path):
    config = json.dumps({"folder": str(tmp_path), "envs": [], "rules": None})
    command = [sys.executable, "-m", "scopil_studio.worker", "recording", config]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert worker.stdin is not None
    assert worker.stdout is not None
    with worker.stdout:
        for message in ({}, {"do": "begin"}, {"do": "begin", "args": {"env": 1}}, {"key": []}, {"do": "ping"}):
            worker.stdin.write(pack(message))
        worker.stdin.flush()
        kinds = []
        while "pong" not in kinds:
            lengths = np.frombuffer(worker.stdout.read(8), ">u4")
            kinds.append(json.loads(worker.stdout.read(int(lengths[0])))["kind"])
        assert kinds == ["refused", "refused", "pong"]
        worker.stdin.close()  # the server is gone
        assert worker.wait(20) == 0


def test_the_failure_of_an_environment_is_shown_and_another_can_begin(tmp_path, monkeypatch):
    start = {"do": "begin", "args": {"env": "CartPole-v1", "file": "a.npz", "keys": "a=0"}}
    sent, messages = [], iter([start, {"key": "a", "down": True}, {"key": "a", "down": False}, start])

    class Line(Channel):
        def __init__(self):
            pass

        def receive(self, wait=None):
            return next(messages), b""

        def send(self, fields, data=b""):
            sent.append(fields)

    def broken(self, action):
        raise ZeroDivisionError("in the physics")

    monkeypatch.setattr(recording.Recorder, "step", broken)
    with pytest.raises(StopIteration):
        recording.record(Line(), StudioConfig(tmp_path))
    assert [m["kind"] for m in sent] == ["begun", "state", "ended", "begun", "state"]
    assert "ZeroDivisionError: in the physics" in sent[2]["message"]
