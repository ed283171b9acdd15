"""Recording: the recorder, the keys, and the window loop on SDL's dummy screen."""

import inspect
import itertools
from unittest.mock import Mock

import gymnasium as gym
import numpy as np
import pytest

import scopil  # noqa: F401  (registers the ids)
from hosts import LIMIT, Walk
from scopil.cli import main
from scopil.data import storage
from scopil.data.record import LEFT_BOUNDS, without_bounds
from scopil.envs.jax_env import make_env
from scopil.envs.marble_maze.physics import ACTIONS
from scopil.envs.window import Key
from scopil.errors import ConfigError, DatasetError, EnvError
from scopil.eval.measures import measure
from scopil.eval.rules import Rules, with_rules
from scopil_studio import keyboard
from scopil_studio.keyboard import Held, keys_for, marble_maze_keys
from scopil_studio.recorder import Recorder, drop, mark_of, step_cost

CARTPOLE = keys_for(gym.spaces.Discrete(2), "a=0,d=1")


def cartpole(render_mode: str | None = "rgb_array") -> gym.Env:
    return gym.make("CartPole-v1", render_mode=render_mode)


class Corridor(gym.Env):
    """Three cells to the right; cell 2 costs. A forgetful one does not repeat itself from its seed."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 500}  # noqa: RUF012
    observation_space = gym.spaces.Discrete(1000)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, forgetful=False, render_mode="rgb_array"):
        self.forgetful, self.render_mode, self.resets, self.played = forgetful, render_mode, 0, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell, self.resets = 0, self.resets + 1
        self.offset = 10 * self.resets if self.forgetful else 0
        return self.offset, {"cost": 0.0}

    def step(self, action):
        self.played.append(int(action))
        self.cell += int(action)
        return self.cell + self.offset, -1.0, self.cell == 3, False, {"cost": float(self.cell == 2)}

    def render(self):
        return np.full((40, 60, 3), 60 * self.cell, np.uint8)


# --- the recorder -----------------------------------------------------------------------------------------------------


def test_a_kept_episode_is_on_disk_as_it_was_played(tmp_path):
    for name, actions, terminated in (("CartPole-v1", [1] * 10, True), ("Pendulum-v1", [[0.5], [-2.0], [1.0]], False)):
        env = gym.make(name, max_episode_steps=None if terminated else 3)
        recorder = Recorder(env, tmp_path / f"{name}.npz", seed=7, drawn=False)
        obs, rewards = [recorder.observation], []
        again = gym.make(name)
        again.reset(seed=7)
        for action in actions:
            if recorder.over:
                break
            recorder.step(action)
            seen, reward, *_ = again.step(np.asarray(action, env.action_space.dtype))
            obs.append(seen)
            rewards.append(np.float32(reward))
        steps = recorder.steps
        recorder.keep()
        (episode,) = storage.read(tmp_path / f"{name}.npz")
        np.testing.assert_array_equal(episode.observations, np.stack(obs))
        assert episode.actions.tolist() == actions[:steps]
        assert np.asarray(episode.rewards).tolist() == rewards
        assert (episode.terminated, episode.truncated) == (terminated, not terminated)
        assert (recorder.kept, recorder.kept_steps, recorder.steps) == (1, steps, 0)


def test_undo_takes_one_step_back_even_after_the_end(tmp_path):
    recorder = Recorder(Corridor(), tmp_path / "a.npz")
    for _ in range(3):
        recorder.step(1)
    assert recorder.over
    assert recorder.violations == 1
    recorder.undo()
    assert not recorder.over
    assert (recorder.steps, recorder.violations) == (2, 1)
    assert recorder.image[0, 0, 0] == 120
    recorder.undo()
    assert (recorder.steps, recorder.violations) == (1, 0)
    recorder.undo()
    recorder.undo()  # nothing left to undo: nothing happens
    assert recorder.steps == 0
    for action in (0, 1, 1, 1):
        recorder.step(action)
    recorder.keep()
    (episode,) = storage.read(tmp_path / "a.npz")
    assert episode.actions.tolist() == [0, 1, 1, 1]
    assert episode.observations.tolist() == [0, 0, 1, 2, 3]
    recorder = Recorder(Corridor(forgetful=True), tmp_path / "b.npz")
    recorder.step(1)
    recorder.step(1)
    with pytest.raises(EnvError, match="repeat"):
        recorder.undo()
    assert recorder.steps == 0


def test_undo_repeats_marble_maze_exactly(tmp_path):
    recorder = Recorder(gym.make("scopil/MarbleMaze-Simple-v0", render_mode="rgb_array"), tmp_path / "a.npz", seed=3)
    for action in (3, 4, 0):
        recorder.step(action)
    image, observations = recorder.image.copy(), list(recorder._observations)
    recorder.step(8)
    assert not np.array_equal(recorder.image, image)
    recorder.undo()
    np.testing.assert_array_equal(recorder.image, image)  # the trail is back as well
    np.testing.assert_array_equal(recorder._observations, observations)
    reset_again, _ = recorder.env.reset(options={"start": recorder._start})
    np.testing.assert_array_equal(reset_again, observations[0])


def test_rules_without_a_total_cost_are_counted_while_recording(tmp_path):
    class NamedAlone(Walk):
        def info(self):
            return {"cost_left": self.x < -1, "cost_right": self.x > 1, "cost_note": "not a number"}

    recorder = Recorder(NamedAlone(), tmp_path / "a.npz", drawn=False)
    visited = [recorder.observation[0]]
    for action in (1, 1, 1, 0, 0, 0, 0, 0):
        recorder.step(action)
        visited.append(recorder.observation[0])
        assert recorder.broken == (abs(visited[-1]) > 1)
    assert recorder.violations == (np.abs(visited) > 1).sum() > 2


def test_a_state_that_breaks_two_rules_counts_twice_as_in_evaluations(tmp_path):
    rules = {"right": lambda obs, action, after: after[0] > 0.5, "far": lambda obs, action, after: abs(after[0]) > 1}
    recorder = Recorder(Walk(), tmp_path / "a.npz", drawn=False, cost=step_cost(Rules.of(rules)))
    for action in (1, 1, 1, 0, 0):
        recorder.step(action)
    recorder.keep([(0, recorder.steps)])
    assert recorder.demos is not None
    (kept,) = recorder.demos
    counted = measure(with_rules([kept], Rules.of(rules))[0])["violations"]
    assert recorder.recorded[0]["violations"] == counted > max((kept.observations[1:, 0] > 0.5).sum(), 1)


def test_actions_counted_from_another_number_are_recorded(tmp_path):
    class FromOne(Walk):
        action_space = gym.spaces.Discrete(2, start=1)

        def step(self, action):
            return super().step(action - 1)

    keys = keys_for(FromOne.action_space, "a=1,d=2")
    assert (keys.actions[frozenset(["d"])], keys.idle) == (2, 1)
    with pytest.raises(ConfigError, match=r"action 0; want 1 … 2"):
        keys_for(FromOne.action_space, "a=0")
    recorder = Recorder(FromOne(), tmp_path / "a.npz", drawn=False)
    while not recorder.over:
        recorder.step(2)
    recorder.keep()
    assert recorder.demos is not None
    assert set(recorder.demos.actions.tolist()) == {2}


def finish(recorder):
    while not recorder.over:
        recorder.step(1)


def test_restart_repeats_the_start_and_discard_changes_it(tmp_path):
    recorder = Recorder(cartpole(), tmp_path / "a.npz")
    first = recorder._observations[0]
    finish(recorder)
    recorder.restart()
    np.testing.assert_array_equal(recorder._observations[0], first)
    finish(recorder)
    recorder.discard()
    assert not np.array_equal(recorder._observations[0], first)
    assert recorder.kept == 0
    assert not (tmp_path / "a.npz").exists()


def test_a_file_is_continued_with_new_starts_also_by_two_recorders_at_once(tmp_path):
    out = tmp_path / "a.npz"
    first, other = (Recorder(cartpole(), out, seed=seed) for seed in (5, 100))
    for recorder in (first, other, first):
        finish(recorder)
        recorder.keep()
    later = Recorder(cartpole(), out, seed=5)
    finish(later)
    later.keep()
    demos = storage.read(out)
    assert (len(demos), first.kept_now, later.kept, later.kept_now) == (4, 2, 4, 1)
    assert [kept["seed"] for kept in demos.about["recorded"]] == [5, 100, 6, 101]
    assert len({e.observations[0].tobytes() for e in demos}) == 4


class Wide(Walk):
    """Leaves its own observation space under action 1."""

    observation_space = gym.spaces.Box(np.array([-2, 0], np.float32), np.array([2, LIMIT], np.float32))


def test_an_environment_that_leaves_its_bounds_is_recorded_without_them(tmp_path):
    out = tmp_path / "a.npz"
    for kept, last in ((1, False), (2, True), (3, False)):
        recorder = Recorder(Wide(), out, drawn=False)
        while not recorder.over:
            recorder.step(last or int(recorder.observation[0] < 0))
        recorder.keep()
        demos = storage.read(out)
        assert isinstance(demos.observation_space, gym.spaces.Box)
        assert len(demos) == kept
        assert np.isinf(demos.observation_space.high).all() == (kept > 1)
        assert demos.about.get("assumed", []) == [LEFT_BOUNDS] * (kept > 1)
    assert demos.observations.max() > 2
    assert without_bounds(gym.spaces.Box(1, 9, (2,), np.uint8)) == gym.spaces.Box(0, 255, (2,), np.uint8)


def test_a_file_of_another_environment_is_refused_and_unchanged(tmp_path):
    out, name = tmp_path / "a.npz", "CartPole-v1(max_episode_steps=5)"
    for kept in (1, 2):  # continued under the name that the caller gave
        recorder = Recorder(make_env(name), out, drawn=False, env_id=name)
        finish(recorder)
        recorder.keep()
        assert (storage.read(out).env_id, recorder.kept) == (name, kept)
    before = out.read_bytes()
    for other in (cartpole(), gym.make("Acrobot-v1", render_mode="rgb_array")):
        with pytest.raises(DatasetError, match=r"holds episodes of CartPole-v1\(max_episode_steps=5\)"):
            Recorder(other, out)
    assert out.read_bytes() == before
    with pytest.raises(DatasetError, match="not a file"):
        Recorder(cartpole(), tmp_path)


def test_an_episode_survives_a_failed_save(tmp_path, monkeypatch):
    recorder = Recorder(Corridor(), tmp_path / "a.npz")
    finish(recorder)
    with monkeypatch.context() as patch:
        patch.setattr(storage, "write_atomically", Mock(side_effect=OSError(28, "No space left on device")))
        with pytest.raises(DatasetError):
            recorder.keep()
    assert recorder.over
    recorder.keep()
    assert len(storage.read(tmp_path / "a.npz")) == 1


def test_unfit_environments_are_refused(tmp_path):
    out, switches = tmp_path / "a.npz", cartpole()
    switches.action_space = gym.spaces.MultiBinary(2)
    for env in (switches, cartpole(render_mode=None)):
        with pytest.raises(EnvError, match="recording wants"):
            Recorder(env, out)


def test_dropping_follows_the_episode_not_its_place(tmp_path):
    out = tmp_path / "a.npz"
    recorder = Recorder(cartpole(), out)
    for _ in range(3):
        finish(recorder)
        recorder.keep()
    first, second, third = map(mark_of, storage.read(out))
    drop(out, second)
    with pytest.raises(DatasetError, match="dropped already"):
        drop(out, second)
    demos = storage.read(out)
    assert [mark_of(e) for e in demos] == [first, third]
    assert [kept["seed"] for kept in demos.about["recorded"]] == [0, 2]
    drop(out, first)
    assert drop(out, third) is None
    assert not out.exists()


def test_a_missing_file_or_too_long_a_name_leaves_nothing_behind(tmp_path):
    with pytest.raises(DatasetError):
        drop(tmp_path / "new" / "a.npz", "mark")
    with pytest.raises(DatasetError, match="at most 240 bytes"):
        Recorder(cartpole(), tmp_path / "new" / f"{'x' * 242}.npz")
    assert not list(tmp_path.iterdir())
    recorder = Recorder(cartpole(), tmp_path / f"{'x' * 236}.npz")
    finish(recorder)
    recorder.keep()


# --- keys -------------------------------------------------------------------------------------------------------------


def test_marble_keys_push_the_ball_where_they_point():
    keys = marble_maze_keys()
    towards = {"up": (0, 1), "down": (0, -1), "left": (-1, 0), "right": (1, 0), "space": (0, 0), ".": (0, 0)}
    towards |= {"q": (-1, 1), "e": (1, 1), "z": (-1, -1), "c": (1, -1), "[7]": (-1, 1), "[3]": (1, -1)}
    for key, direction in towards.items():
        tilt_x, tilt_y = ACTIONS[keys.action((key,))]  # pyright: ignore[reportArgumentType, reportCallIssue]
        assert (-tilt_y, tilt_x) == direction, key  # a = 0.1 (−r_y, r_x)
    for pair in (("up", "left"), ("right", "down"), ("w", "a")):
        tilt = sum(ACTIONS[keys.action((key,))] for key in pair)  # pyright: ignore[reportArgumentType, reportCallIssue]
        np.testing.assert_array_equal(ACTIONS[keys.action(pair)], tilt)  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert set(keys.actions.values()) == set(range(9))
    assert keys.action(("left", "right")) == keys.action(("right",)), "the newer key wins"
    assert keys.action(("k",)) is None


@pytest.mark.parametrize("text", ["a", "a=x", "=1", "a+=1", "a=2", "a=0,a=1", "u=1", "enter=1", ""])
def test_faulty_key_maps_are_refused(text):
    with pytest.raises(ConfigError):
        keys_for(gym.spaces.Discrete(2), text)


def test_key_maps_have_chords_and_an_idle_action():
    keys = keys_for(gym.spaces.Discrete(3), " a=0, D=1 ,up+left=2")
    assert [keys.action(k) for k in (("a",), ("d",), ("left", "up"))] == [0, 1, 2]
    assert keys.idle == 0


def acts(events, until, tick=0.01):
    """What a `Held` acts on: (time, keys), polled as the window does."""
    held, out, events = Held(), [], list(events)
    for now in np.arange(0, until, tick):
        while events and events[0][0] <= now:
            _, key, down = events.pop(0)
            (held.press if down else held.release)(key, now)
            if keys := held.take(now):
                out.append((round(now, 2), keys))
        if keys := held.take(now):
            out.append((round(now, 2), keys))
    return out


def test_a_tap_acts_once_two_keys_are_one_chord_and_a_held_key_repeats():
    assert [k for _, k in acts([(0, "up", True), (0.02, "up", False)], 1)] == [("up",)]
    assert [k for _, k in acts([(0, "up", True), (0.1, "up", False)], 1)] == [("up",)]
    together = [(0, "up", True), (0.03, "left", True), (0.1, "up", False), (0.13, "left", False)]
    assert [k for _, k in acts(together, 1)] == [("up", "left")]
    times = [t for t, _ in acts([(0, "up", True), (0.7, "up", False)], 2)]
    assert times == pytest.approx([0.05, 0.40, 0.53, 0.66], abs=0.021)


# --- the window -------------------------------------------------------------------------------------------------------


@pytest.fixture
def screen():
    pygame = pytest.importorskip("pygame")
    pygame.display.init()
    pygame.event.clear()
    yield pygame
    pygame.display.quit()


def post(pygame, *names, up=True):
    for name in names:
        code = pygame.key.key_code(name)
        pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=code))
        if up:
            pygame.event.post(pygame.event.Event(pygame.KEYUP, key=code))


@pytest.fixture
def on_frame(monkeypatch):
    """Calls a function with the number of each frame drawn, from 1, and its lines of text."""

    def install(function):
        draw, frames = keyboard.Window.draw, itertools.count(1)

        def spy(window, image, text):
            draw(window, image, text)
            function(next(frames), [line for line, _ in text])

        monkeypatch.setattr(keyboard.Window, "draw", spy)

    return install


def test_frozen_play_through_the_window(tmp_path, screen):
    first, second, third = (*"dauddd", "return"), (*"ddd", "backspace"), (*"dr", *"ddad", "return")
    post(screen, *first, *second, *third)
    demos = keyboard.play(Corridor(), tmp_path / "a.npz", keys=CARTPOLE, episodes=2)
    assert demos is not None
    assert [e.actions.tolist() for e in storage.read(tmp_path / "a.npz")] == [[1, 1, 1], [1, 1, 0, 1]]
    assert [episode["violations"] for episode in demos.about["recorded"]] == [1, 2]


def test_nothing_moves_without_a_key_and_quitting_keeps_no_episode(tmp_path, screen, on_frame):
    def drawn(number, lines):
        assert "step 0" in lines[0]
        assert "violations 0" in lines[0]
        if number == 20:
            post(screen, *"ddd", "escape")

    on_frame(drawn)
    env = Corridor()
    assert keyboard.play(env, tmp_path / "a.npz", keys=CARTPOLE) is None
    assert env.played == [1, 1, 1]
    assert not (tmp_path / "a.npz").exists()
    screen.display.init()
    screen.event.post(screen.event.Event(screen.QUIT))  # the window is closed
    assert keyboard.play(Corridor(), tmp_path / "a.npz", keys=CARTPOLE) is None


def test_live_play_idles_until_a_key_is_held(tmp_path, screen, on_frame):
    def drawn(number, _):
        if number == 3:
            assert env.played == [], "the clock starts with the first key"
            post(screen, "a")
        if number == 6:
            post(screen, "d", up=False)
        if number == 15:
            post(screen, "return")

    on_frame(drawn)
    env = Corridor()
    demos = keyboard.play(env, tmp_path / "a.npz", keys=CARTPOLE, live=True, episodes=1)
    assert demos is not None
    assert demos.episodes[0].actions.tolist() == [0, 0, 0, 1, 1, 1]


def test_at_once_a_key_acts_when_pressed_and_a_chord_replaces_it(tmp_path):
    recorder = Recorder(gym.make("scopil/MarbleMaze-Simple-v0"), tmp_path / "a.npz", drawn=False)
    session = keyboard.Session(recorder, marble_maze_keys(), live=False, at_once=True)
    session.key(Key("up", True), 1.0)
    assert [int(a) for a in recorder._actions] == [3]
    session.key(Key("left", True), 1.03)  # as fingers do
    assert [int(a) for a in recorder._actions] == [4]
    for key, now in (("up", 1.1), ("left", 1.11)):
        session.key(Key(key, False), now)
    session.key(Key("up", True), 2.0)
    session.key(Key("left", True), 2.2)  # later: a step of its own
    assert [int(a) for a in recorder._actions] == [4, 3, 4]


def test_scopil_play_names_the_environment_as_it_was_given(tmp_path, screen, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(f"import gymnasium as gym, numpy as np\n{inspect.getsource(Corridor)}")
    post(screen, *"ddd", "return")
    argv = ["play", "--env", "mine.py:Corridor(forgetful=True)", "--keys", "d=1", "--out", "a.npz", "--episodes", "1"]
    assert main(argv) == 0
    demos = storage.read("a.npz")
    assert demos.env_id == "mine.py:Corridor(forgetful=True)"
    make_env(demos.env_id).close()
