"""Corrections: the policy plays, a person takes over, and only the person's steps become demonstrations."""

import json
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from hosts import registered
from runs import untrained_run
from scopil.cli import main
from scopil.data import storage
from scopil.data.dataset import Demonstrations
from scopil.data.record import record
from scopil.envs.window import Key
from scopil.errors import ConfigError
from scopil.train.run import Run
from scopil_studio import correct, training_jobs, watching
from scopil_studio.correct import Correction
from scopil_studio.keyboard import keys_for
from scopil_studio.recorder import Recorder
from scopil_studio.recording import Playing
from scopil_studio.worker import StudioConfig, checked_call

KEYS = keys_for(gym.spaces.Discrete(2), "a=0,d=1")


class Line(gym.Env):
    """A walk on a line to position 6; a step back costs."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 500}  # noqa: RUF012
    observation_space = gym.spaces.Box(-9, 9, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode="rgb_array"):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.array([self.at], np.float32), {"cost": 0.0}

    def step(self, action):
        self.at += 2 * int(action) - 1
        return np.array([self.at], np.float32), -1.0, self.at == 6, self.at < -8, {"cost": float(action == 0)}

    def render(self):
        return np.zeros((40, 60, 3), np.uint8)


@pytest.fixture
def shown() -> Demonstrations:
    with registered(Line, "test/Line-v0", max_episode_steps=40) as name:
        return record(name, lambda obs: 1, 2)


def session(out: Path, shown: Demonstrations | None = None, live: bool = False) -> Correction:
    recorder = Recorder(Line(), out, env_id="test/Line-v0", begin_with=shown)
    return Correction(recorder, KEYS, live, lambda obs: int(obs[0] < 2))


def tap(one: Correction, *names: str) -> None:
    for name in names:
        one.key(Key(name, True), 0.0)
        one.key(Key(name, False), 0.0)


def ticks(one: Correction, count: int) -> None:
    for i in range(count):
        one.tick(1e3 * (i + 1))
    one.next_step = 0.0


def test_only_the_steps_of_the_person_are_kept(tmp_path, shown):
    one = session(tmp_path / "a.npz", shown)
    ticks(one, 3)  # the policy: 1, 1, 0
    assert one.recorder.steps == 3
    tap(one, "d", "a")
    assert one.person
    ticks(one, 3)  # no key, no step
    assert one.recorder.steps == 5
    tap(one, "u", "d", "tab")  # the step back is undone
    ticks(one, 1)  # the policy goes back
    tap(one, "d", "d", "d", "d")
    assert one.recorder.over
    tap(one, "return")
    demos = storage.read(tmp_path / "a.npz")
    assert len(demos) == len(shown) + 2
    first, second = demos.episodes[-2:]
    assert first.observations.ravel().tolist() == [1, 2, 3]
    assert first.actions.tolist() == [1, 1]
    assert (first.terminated, first.truncated) == (False, False)
    assert second.observations.ravel().tolist() == [2, 3, 4, 5, 6]
    assert second.terminated
    assert [e["violations"] for e in demos.about["recorded"]] == [1, 1]  # the states where they begin
    assert one.recorder.steps == 0
    assert not one.person
    again = session(tmp_path / "a.npz", shown)  # extends the file
    tap(again, "d", "return")
    assert len(storage.read(tmp_path / "a.npz")) == len(shown) + 3


def test_an_episode_without_a_correction_is_not_kept(tmp_path, shown):
    one = session(tmp_path / "a.npz", shown)
    ticks(one, 2)
    tap(one, "return")
    assert "nothing was corrected" in one.message
    tap(one, "d", "u", "return")
    assert "nothing was corrected" in one.message
    tap(one, "backspace")
    assert one.recorder.steps == 0
    assert not (tmp_path / "a.npz").exists()


def test_in_real_time_the_person_holds_keys(tmp_path):
    one = session(tmp_path / "a.npz", live=True)
    ticks(one, 1)
    one.key(Key("d", True), 0.0)
    ticks(one, 4)
    tap(one, "return")
    (episode,) = storage.read(tmp_path / "a.npz")
    assert episode.observations.ravel().tolist() == [1, 2, 3, 4, 5]


def test_keys_of_a_box():
    keys = keys_for(gym.spaces.Box(-1, 1, (2,), np.float32), "a=-1:0,d=1:0,w+d=1:0.5")
    assert keys.action(("d",)) == (1.0, 0.0)
    assert keys.action(("d", "w")) == (1.0, 0.5)
    assert keys.idle == (0.0, 0.0)


def test_a_run_is_corrected_and_learns_on(tmp_path, capsys, monkeypatch, shown):
    with registered(Line, "test/Line-v0", max_episode_steps=40) as name:
        shown.save(tmp_path / "demos.npz")
        run = untrained_run(tmp_path / "run", "bc", demos=str(tmp_path / "demos.npz"), env=name, steps=50)

        def played(one: Correction, title: str, episodes: int | None) -> Demonstrations | None:
            one.tick(0.0)
            tap(one, "d", "d", "return")
            return one.recorder.demos

        monkeypatch.setattr(correct, "run", played)
        out = tmp_path / "more.npz"
        assert main(["demos", "correct", str(run.folder), "--keys", "a=0,d=1", "--out", str(out)]) == 0
        assert f"scopil resume {run.folder} --demos {out}" in capsys.readouterr().out
        assert len(storage.read(out)) == 3
        assert main(["resume", str(run.folder), "--demos", str(out)]) == 2
        assert "--steps = 50" in capsys.readouterr().err
        assert run.finished
        how = ["--steps", "60", "--verbosity", "quiet"]
        assert main(["resume", str(run.folder), "--demos", str(out), *how]) == 0
        again = Run.open(run.folder)
        assert again.finished
        found = again.demos()
        assert found is not None
        assert len(found) == 3
        assert again.spec.demos == str(out)
        assert main(["demos", "correct", str(run.folder), "--keys", "tab=0", "--out", str(out)]) == 2


def test_a_run_without_demonstrations_takes_none(tmp_path, capsys, shown):
    shown.save(tmp_path / "demos.npz")
    run = untrained_run(tmp_path / "run", "sac", env="CartPole-v1")
    assert main(["resume", str(run.folder), "--demos", str(tmp_path / "demos.npz"), "--steps", "2000"]) == 2
    assert "was trained without demonstrations" in capsys.readouterr().err
    assert run.finished


def begin(folder: Path, env: str, policy: str, rules: str | None = None, **args: Any) -> Playing:
    wanted = {"env": env, "file": "more.npz", "keys": "a=0,d=1", "policy": policy} | args
    return checked_call(Playing, wanted, StudioConfig(folder, (env,), rules))


def press(playing: Playing, *names: str) -> dict[str, Any]:
    """The state that the page gets after these keys."""
    for name in names:
        for down in (True, False):
            playing.input({"key": name, "down": down, "n": 1})
    news = playing.news()
    assert news is not None
    return news[0]


def test_a_policy_is_corrected_in_the_studio_and_its_run_learns_on(tmp_path, monkeypatch, shown):
    (tmp_path / "rules.py").write_text("def any_step(obs, action, next_obs): return True\n")
    with registered(Line, "test/Line-v0", max_episode_steps=40) as name:
        shown.save(tmp_path / "demos.npz")
        rules = str(tmp_path / "rules.py")
        untrained_run(tmp_path / "run", "bc", demos=str(tmp_path / "demos.npz"), env=name, steps=50, rules=rules)
        playing = begin(tmp_path, name, "run")
        assert playing.about["policy"] == "run"
        for steps in (1, 2):  # the policy plays without a key
            wait = playing.wait()
            assert wait is not None
            assert wait <= 1 / 500
            time.sleep(wait)
            playing.tick()
            assert playing.recorder.steps == steps
        state = press(playing, "d", "d")
        assert (state["person"], state["corrected"], state["step"]) == (True, 2, 4)
        assert state["violations"] == 4  # by the rules of the run, not by the environment's cost
        assert playing.wait() is None  # the person is waited for
        assert not press(playing, "tab")["person"]
        assert playing.wait() is not None
        state = press(playing, "d", "return")
        assert (state["kept"], state["step"], state["corrected"]) == (len(shown) + 2, 0, 0)
        assert state["kept_violations"] is None  # those of the run's demonstrations are not known
        demos = storage.read(tmp_path / "more.npz")
        assert [e.actions.tolist() for e in demos.episodes[len(shown) :]] == [[1, 1], [1]]
        assert demos.env_id == name
        (run,) = watching.overview(StudioConfig(tmp_path))["runs"]
        assert run["learns_from_demos"]

        begun: list[list[str]] = []
        monkeypatch.setattr(training_jobs, "_begin", lambda home, folder, words: begun.append(words))
        with pytest.raises(ConfigError, match="want more"):
            training_jobs.resume(StudioConfig(tmp_path), "run", "more.npz", 0)
        training_jobs.resume(StudioConfig(tmp_path), "run", "more.npz", 60)
        assert main(["train", *begun[0], "--verbosity", "quiet"]) == 0
        found = Run.open(tmp_path / "run").demos()
        assert found is not None
        assert len(found) == len(shown) + 2


def test_a_policy_that_may_not_be_corrected_is_refused(tmp_path):
    """Of another environment, with rules of others or with rules that fail: no false count of violations."""
    (tmp_path / "fails.py").write_text("def far(obs, action, next_obs): return obs[9] > 0\n")
    with registered(Line, "test/Line-v0", max_episode_steps=40) as name:
        run = untrained_run(tmp_path / "run", env=name, rules=str(tmp_path / "fails.py"))
        for args, said in (({"env": "CartPole-v1"}, "another environment"), ({}, "rule 'far' failed")):
            with pytest.raises(ConfigError, match=said):
                begin(tmp_path, **{"env": name, "policy": "run"} | args)
        note = json.loads((run.folder / "run.json").read_text())
        (run.folder / "run.json").write_text(json.dumps(note | {"signature": "0" * 64}))
        run.policy_file.touch()  # it is read again
        with pytest.raises(ConfigError, match="your key did not sign it"):
            begin(tmp_path, name, "run")
        with pytest.raises(ConfigError, match="without demonstrations"):
            training_jobs.resume(StudioConfig(tmp_path), "run", "more.npz", 2000)
    assert not (tmp_path / "more.npz").exists()
