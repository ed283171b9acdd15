"""A person as the demonstrator: episodes played with the keyboard in a window, saved one by one."""

from collections.abc import Callable
from pathlib import Path

import gymnasium as gym

from scopil.data.dataset import Demonstrations
from scopil.data.key_map import CONTROLS, Held, KeyMap
from scopil.data.recorder import Recorder
from scopil.envs.window import TEXT, Colour, Key, Window
from scopil.errors import ConfigError, EnvError, ScopilError

FREEZE_FPS = 60  # how often the keyboard is read while the environment waits
ALERT, ASK = (255, 140, 120), (255, 214, 120)


def play(
    env: gym.Env,
    out: str | Path,
    *,
    keys: KeyMap,
    live: bool = False,
    fps: int | float | None = None,
    episodes: int | None = None,
    seed: int = 0,
    name: str = "recorded",
    env_id: str | None = None,
) -> Demonstrations | None:
    """Let a person play in a window until they quit or have kept `episodes` episodes.

    Args:
        env: an environment with Discrete actions, made with `render_mode="rgb_array"`.
        out: the `.npz` file to record into; one of the same environment is continued.
        keys: which key plays which action.
        live: run in real time from the first key on. Without it the environment waits for a key and then plays one
            step (the paper's freeze).
        fps: steps per second in real time; the environment's own rate when not given.
        episodes: stop after this many kept episodes.
        seed: of the first start.
        name: of a new set.
        env_id: the name that `env` was made by; its spec's id when not given.

    Returns:
        The demonstrations in the file, or None where nothing was kept.
    """
    if not isinstance(env.action_space, gym.spaces.Discrete):
        raise EnvError(
            f"{env} takes {env.action_space}; keyboard play wants Discrete actions (`scopil studio` takes others)."
        )
    recorder = Recorder(env, out, seed=seed, name=name, env_id=env_id)
    n_actions = int(env.action_space.n)
    if unknown := [a for a in (*keys.actions.values(), keys.idle) if not 0 <= a < n_actions]:
        raise ConfigError(f"the key map plays action {unknown[0]}; {recorder.env_id} has 0 … {n_actions - 1}.")
    if fps is not None and fps <= 0:
        raise ConfigError(f"fps is {fps}; want more than 0.")
    rate = fps or env.metadata.get("render_fps") or 12
    window = Window(f"scopil play: {recorder.env_id or name}", rate if live else FREEZE_FPS)
    session = Session(recorder, keys, live)
    try:
        while True:
            for key in window.events():
                session.key(key, window.now())
                if session.done(episodes):
                    break
            if session.done(episodes) or window.closed:
                return recorder.demos
            session.tick(window.now())
            window.draw(recorder.image, session.text())
            window.wait()
    finally:
        window.close()


class Session:
    """The recorder, the keys held, and the text shown to the person.

    With `at_once` a press acts without waiting for a second key; should that come as soon as fingers do, the step is
    taken back and the chord played in its place.
    """

    def __init__(self, recorder: Recorder, keys: KeyMap, live: bool, at_once: bool = False):
        self.recorder, self.keys, self.live = recorder, keys, live
        chords = any(len(chord) > 1 for chord in keys.actions)
        self.held = Held() if chords and not at_once else Held(chord=0.0)  # without chords: nothing to wait for
        self._replaces = chords and at_once
        self._last: tuple[tuple[str, ...], float] | None = None  # the keys of the last step, and when
        self.quit = False
        self.running = False  # real time only: the clock starts with the first key
        self.message = ""

    def done(self, episodes: int | None) -> bool:
        return self.quit or (episodes is not None and self.recorder.kept_now >= episodes)

    def key(self, key: Key, now: float) -> None:
        if key.down and key.name in CONTROLS:
            self._control(CONTROLS[key.name])
        elif key.down and self.keys.knows(key.name):
            self.held.press(key.name, now)
            self.running = True
        elif not key.down:
            self.held.release(key.name, now)
        if not self.live:
            self._act(self.held.take(now), now)

    def tick(self, now: float) -> None:
        if not self.live:
            self._act(self.held.take(now), now)
        elif self.running and not self.recorder.over:
            action = self.keys.action(self.held.sample())
            self.recorder.step(self.keys.idle if action is None else action)

    def _act(self, held: tuple[str, ...], now: float) -> None:
        action = self.keys.action(held)
        if action is None:
            return
        if self._replaces:
            keys, at = self._last or ((), now)
            if 0 < len(keys) < len(held) and set(keys) < set(held) and now - at < Held.chord:
                self.recorder.undo()
            self._last = held, now
        if not self.recorder.over:
            self.message = ""
            self.recorder.step(action)

    def _control(self, what: str) -> None:
        self.message = ""
        try:
            if what == "quit":
                self.quit = True
            elif what == "undo" and not self.live:
                self.recorder.undo()
            elif what == "restart":
                self._next(self.recorder.restart)
            elif what in ("keep", "discard") and self.recorder.over:
                self._next(self.recorder.keep if what == "keep" else self.recorder.discard)
        except ScopilError as error:
            self.message = str(error)

    def _next(self, begin: Callable[[], None]) -> None:
        begin()
        self.held.clear()
        self._last = None
        self.running = False

    def text(self) -> list[tuple[str, Colour]]:
        r = self.recorder
        broken = "" if r.violations is None else f"   violations {r.violations}"
        total = "" if r.violations is None else f", {r.kept_violations} violations"
        now = f"Episode {r.kept + 1}   step {r.steps}{broken}"
        kept = f"Kept: {r.kept} episodes, {r.kept_steps} steps{total}"
        undo = "" if self.live else "U: undo    "
        if r.over:
            end = "The episode has ended" if r.terminated else "Out of time"
            ask = f"{end} after {r.steps} steps.   Enter: keep    Backspace: discard"
            last = (ask, ASK)
            rest = f"{undo}R: same start again    Esc: quit without this episode"
        else:
            wait = "press a key to begin" if self.live and not self.running else ""
            last = (self.message or wait or self.keys.help, ALERT if self.message else TEXT)
            rest = f"{undo}R: restart    Esc: quit"
        return [(now, ALERT if r.violations else TEXT), (kept, TEXT), last, (rest, TEXT)]
