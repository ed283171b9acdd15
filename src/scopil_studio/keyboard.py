"""Recording of demonstrations: a person plays episodes in a window with the keyboard, and each kept episode is saved.

`KeyMap` maps keys to actions, `Held` decides when held keys trigger a step, `Session` connects both to a
`Recorder`, and `play` runs the window.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from scopil.data.dataset import Demonstrations
from scopil.envs.window import TEXT, Colour, Key, Window
from scopil.errors import ConfigError, ScopilError
from scopil_studio.recorder import Recorder

FREEZE_FPS = 60  # keyboard polls per second while the environment waits for a key
ALERT, ASK = (255, 140, 120), (255, 214, 120)  # RGB
CONTROLS = {"u": "undo", "r": "restart", "return": "keep", "enter": "keep", "backspace": "discard", "escape": "quit"}
ALIASES = {"enter": "return", "esc": "escape", "dot": ".", "comma": ",", "plus": "+", "equals": "="}


Action = int | tuple[float, ...]  # discrete, or the components of a Box


# --- keys -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeyMap:
    """A map from chords to actions. A chord is a set of keys held together."""

    actions: Mapping[frozenset[str], Action]
    idle: Action = 0  # the action in real time while the held keys match no chord
    help: str = ""  # one line for the player

    def action(self, held: tuple[str, ...]) -> Action | None:
        """The action of the held keys, which are ordered from oldest to newest; None if no chord matches.

        If several chords match, the largest is chosen, and among equally large chords the one with the newest key: if
        left is held and right is pressed, the action is that of right."""
        matching = [chord for chord in self.actions if chord <= set(held)]
        if not matching:
            return None
        best = max(matching, key=lambda chord: (len(chord), max(held.index(key) for key in chord)))
        return self.actions[best]

    def knows(self, key: str) -> bool:
        """Whether any chord contains the key."""
        return any(key in chord for chord in self.actions)


def keys_for(space: gym.Space, text: str | None) -> KeyMap:
    """Parse a key map: `a=0,d=1,up+left=4` for Discrete actions, `a=-1:0,d=1:0` for a Box of two numbers. The action
    without a key is the first one, or the one nearest to 0. Raises `ConfigError`.

    Keys have pygame's names: letters, digits, up, down, left, right, space, tab, [0] … [9] on the keypad. Write
    comma, plus and equals for the keys `,`, `+` and `=`."""
    if isinstance(space, gym.spaces.Discrete):
        first, last = int(space.start), int(space.start + space.n - 1)
        wanted, example, idle = f"{first} … {last}", f"a={first},d={first + 1}", first
        read: Callable[[str], Any] = int
    elif isinstance(space, gym.spaces.Box) and np.dtype(space.dtype).kind == "f":
        size = int(np.prod(space.shape))
        wanted, example = f"{size} numbers", f"d={':'.join(['1', *['0'] * (size - 1)])}"
        idle = tuple(np.clip(np.zeros(space.shape), space.low, space.high).ravel().tolist())
        read = lambda text: np.array(text.split(":"), space.dtype).reshape(space.shape)  # noqa: E731
    else:
        raise ConfigError(f"--env takes {space}; want Discrete actions or a Box (`scopil studio` takes others).")
    if text is None:
        raise ConfigError(f"no keys for actions of {wanted}; want keys such as {example}.", setting="keys")

    def action(number: str, part: str) -> Action:
        try:
            found = read(number)
        except ValueError:
            raise ConfigError(f"key {part!r}: want {wanted}, as in {example}.") from None
        if not space.contains(found):
            raise ConfigError(f"key {part!r}: action {number}; want {wanted} of {space}.")
        return found if isinstance(found, int) else tuple(found.ravel().tolist())

    return _parsed(text, action, idle, example)


def _parsed(text: str, value: Callable[[str, str], Action], idle: Action, example: str) -> KeyMap:
    actions: dict[frozenset[str], Action] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        chord, equals, number = part.rpartition("=")
        names = [ALIASES.get(k, k) for k in (key.strip().lower() for key in chord.split("+"))]
        if not equals or not all(names):
            raise ConfigError(f"key {part!r}: want key=action or key+key=action, for example a=0,d=1,up+left=4.")
        if taken := [name for name in names if name in CONTROLS]:
            raise ConfigError(f"key {part!r}: {taken[0]} is reserved for {CONTROLS[taken[0]]}; choose another key.")
        if frozenset(names) in actions:
            raise ConfigError(f"key {part!r}: {chord} is given twice; want one action per key.")
        actions[frozenset(names)] = value(number, part)
    if not actions:
        raise ConfigError(f"no keys in {text!r}; want for example {example}.")
    shown = "  ".join(f"{'+'.join(sorted(chord))}: {action}" for chord, action in actions.items())
    return KeyMap(actions, idle, shown)


def marble_maze_keys() -> KeyMap:
    """The keys of the marble maze. Arrows (two together for a diagonal), the keypad, or the letters around S give the
    direction. An action is 3 × (none 0, up 1, down 2) + (none 0, left 1, right 2)."""
    up, down, left, right = 3, 6, 1, 2
    actions: dict[frozenset[str], int] = {}
    for keys in (("up", "down", "left", "right"), ("w", "x", "a", "d")):
        single = dict(zip(keys, (up, down, left, right)))
        for key, action in single.items():
            actions[frozenset([key])] = action
        for v in keys[:2]:
            for h in keys[2:]:
                actions[frozenset([v, h])] = single[v] + single[h]
    corners = ("q", 7, up + left), ("e", 9, up + right), ("z", 1, down + left), ("c", 3, down + right)
    for letter, digit, action in corners:
        actions[frozenset([letter])] = actions[frozenset([f"[{digit}]"])] = action
    for digit, action in ((8, up), (2, down), (4, left), (6, right), (5, 0)):
        actions[frozenset([f"[{digit}]"])] = action
    for key in ("space", ".", "s"):
        actions[frozenset([key])] = 0
    return KeyMap(actions, 0, "Arrows (two for a diagonal): tilt    Space: no tilt change")


@dataclass
class Held:
    """The held keys, and the times at which they trigger a step if the environment waits for keys.

    A pressed key triggers a step after `chord` seconds, so that two arrows pressed almost together give one diagonal. A
    key released earlier triggers the step on release. Held keys trigger the next step after `delay` seconds, and
    further steps every `every` seconds. Releasing one key of a chord restarts the delay, because the other keys are
    usually released a moment later.
    """

    chord: float = 0.045
    delay: float = 0.35
    every: float = 0.13
    keys: tuple[str, ...] = ()  # oldest first
    _due: float | None = None
    _fresh: bool = False  # whether the newest press has not triggered a step yet
    _tapped: tuple[str, ...] = field(default=())

    def press(self, key: str, now: float) -> None:
        if key in self.keys:
            return
        self.keys = (*self.keys, key)
        self._fresh, self._due = True, now + self.chord

    def release(self, key: str, now: float) -> None:
        if key not in self.keys:
            return
        if self._fresh:
            self._tapped, self._fresh = self.keys, False
        self.keys = tuple(k for k in self.keys if k != key)
        self._due = now + self.delay if self.keys else None

    @property
    def due(self) -> float | None:
        """The time from which `take` returns keys if no key is pressed or released earlier; None without a held key."""
        return 0.0 if self._tapped else self._due

    def take(self, now: float) -> tuple[str, ...]:
        """The keys that trigger a step now; empty if no step is due."""
        if self._tapped:
            tapped, self._tapped = self._tapped, ()
            return tapped
        if self._due is None or now < self._due:
            return ()
        self._due = now + (self.delay if self._fresh else self.every)
        self._fresh = False
        return self.keys

    def sample(self) -> tuple[str, ...]:
        """The keys of a step in real time: the held keys, or if none is held, those tapped since the last call."""
        keys = self.keys or self._tapped
        self._tapped, self._fresh = (), False
        return keys

    def clear(self) -> None:
        """Forget all held keys, so that a key held since the last episode triggers no step in the next."""
        self.keys, self._tapped, self._due, self._fresh = (), (), None, False


# --- the window -------------------------------------------------------------------------------------------------------


def play(
    env: gym.Env,
    out: Path,
    *,
    keys: KeyMap,
    live: bool = False,
    episodes: int | None = None,
    seed: int = 0,
    env_id: str | None = None,
) -> Demonstrations | None:
    """Record a person at the keyboard, until the window is closed or `episodes` episodes are kept.

    In real time (`live`) an episode starts at the first key press, and the environment steps at its `render_fps`.
    Otherwise the environment waits for a key before every step ("freeze" in the paper). Returns the demonstrations in
    the file `out`; None if there is no file."""
    recorder = Recorder(env, out, seed=seed, name=out.stem, env_id=env_id)
    return run(Session(recorder, keys, live), "scopil play", episodes)


def run(session: "Session", title: str, episodes: int | None) -> Demonstrations | None:
    """Run a session in a window, until it is closed or `episodes` episodes are kept."""
    recorder = session.recorder
    window = Window(f"{title}: {recorder.env_id or recorder.name}", session.rate if session.live else FREEZE_FPS)
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
    """Connects a recorder to the held keys and to the text shown to the player.

    With `at_once`, a pressed key triggers a step without waiting for a second key. If a second key follows within
    `Held.chord` seconds, the step is undone and the action of the chord is played instead.
    """

    def __init__(self, recorder: Recorder, keys: KeyMap, live: bool, at_once: bool = False):
        self.recorder, self.keys, self.live = recorder, keys, live
        self.rate = recorder.env.metadata.get("render_fps") or 12  # steps per second in real time
        chords = any(len(chord) > 1 for chord in keys.actions)
        self.held = Held() if chords and not at_once else Held(chord=0.0)  # without chords there is no need to wait
        self._replaces = chords and at_once
        self._last: tuple[tuple[str, ...], float] | None = None  # the keys of the last step, and its time
        self.quit = False
        self.running = False  # real time only: whether the first key has started the episode
        self.message = ""

    def done(self, episodes: int | None) -> bool:
        return self.quit or (episodes is not None and self.recorder.kept_now >= episodes)

    def key(self, key: Key, now: float) -> None:
        """Handle one key event."""
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
        """Play a step if one is due."""
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
            self._do(what)
        except ScopilError as error:
            self.message = str(error)

    def _do(self, what: str) -> None:
        if what == "quit":
            self.quit = True
        elif what == "undo" and not self.live:
            self.recorder.undo()
        elif what == "restart":
            self._next(self.recorder.restart)
        elif what in ("keep", "discard") and self.recorder.over:
            self._next(self.recorder.keep if what == "keep" else self.recorder.discard)

    def _next(self, begin: Callable[[], None]) -> None:
        begin()
        self.held.clear()
        self._last = None
        self.running = False

    def text(self) -> list[tuple[str, Colour]]:
        """The lines of text below the image, with their colours."""
        r = self.recorder
        broken = "" if r.violations is None else f"   violations {r.violations}"
        total = "" if None in (r.violations, r.kept_violations) else f", {r.kept_violations} violations"
        now = f"Episode {r.kept + 1}   step {r.steps}{broken}"
        kept = f"Kept: {r.kept} episodes, {r.kept_steps} steps{total}"
        undo = "" if self.live else "U: undo    "
        if r.over:
            end = "The episode has ended" if r.terminated else "Out of time"
            last = (f"{end} after {r.steps} steps.   Enter: keep    Backspace: discard", ASK)
            rest = f"{undo}R: same start again    Esc: quit without this episode"
        else:
            wait = "press a key to begin" if self.live and not self.running else ""
            last = (self.message or wait or self.keys.help, ALERT if self.message else TEXT)
            rest = f"{undo}R: restart    Esc: quit"
        return [(now, ALERT if r.violations else TEXT), (kept, TEXT), last, (rest, TEXT)]
