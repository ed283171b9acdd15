"""From keys to actions: what a key or a chord means, and when a held key acts again. There is no window here."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from scopil.errors import ConfigError

CONTROLS = {"u": "undo", "r": "restart", "return": "keep", "enter": "keep", "backspace": "discard", "escape": "quit"}
ALIASES = {"enter": "return", "esc": "escape", "dot": ".", "comma": ",", "plus": "+", "equals": "="}


@dataclass(frozen=True)
class KeyMap:
    """Actions by the set of keys held together; `idle` is the action in real time while no key is held."""

    actions: Mapping[frozenset[str], int]
    idle: int = 0
    help: str = ""  # one line for the player

    def action(self, held: tuple[str, ...]) -> int | None:
        """The action of the keys held, oldest first. Of several that fit, the one with most keys wins, then the
        one with the newest key: pressing right while left is still down means right."""
        fits = [chord for chord in self.actions if chord <= set(held)]
        if not fits:
            return None
        best = max(fits, key=lambda chord: (len(chord), max(held.index(key) for key in chord)))
        return self.actions[best]

    def knows(self, key: str) -> bool:
        return any(key in chord for chord in self.actions)


def parse_keys(text: str, n_actions: int, idle: int = 0) -> KeyMap:
    """`"a=0,d=1"`, with chords as `"up+left=4"`. Keys go by pygame's names: letters, digits, up, down, left, right,
    space, tab, [0] … [9] on the keypad; comma, plus and equals by name."""
    actions: dict[frozenset[str], int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        chord, equals, number = part.rpartition("=")
        names = [ALIASES.get(k, k) for k in (key.strip().lower() for key in chord.split("+"))]
        if not equals or not all(names) or not number.strip().isdecimal():
            raise ConfigError(f"key {part!r}: want key=action or key+key=action, for example a=0,d=1,up+left=4.")
        if taken := [name for name in names if name in CONTROLS]:
            raise ConfigError(f"key {part!r}: {taken[0]} means {CONTROLS[taken[0]]}; choose another key.")
        if frozenset(names) in actions:
            raise ConfigError(f"key {part!r}: {chord} is given twice; want one action per key.")
        actions[frozenset(names)] = _action(int(number), n_actions, f"key {part!r}")
    if not actions:
        raise ConfigError(f"no keys in {text!r}; want for example a=0,d=1 with actions 0 … {n_actions - 1}.")
    shown = "  ".join(f"{'+'.join(sorted(chord))}: {action}" for chord, action in actions.items())
    return KeyMap(actions, _action(idle, n_actions, "idle"), shown)


def _action(action: int, n_actions: int, what: str) -> int:
    if not 0 <= action < n_actions:
        raise ConfigError(f"{what}: action {action}; want 0 … {n_actions - 1}.")
    return action


@dataclass
class Held:
    """Which keys are down, and when they act in an environment that waits for them.

    A press acts after `chord` seconds, so that two arrows pressed almost together are one diagonal; a tap shorter
    than that acts when it is released. Keys kept down act again after `delay`, then every `every` seconds. Releasing
    one key of a chord starts the delay again, since fingers do not rise together.
    """

    chord: float = 0.045
    delay: float = 0.35
    every: float = 0.13
    keys: tuple[str, ...] = ()  # oldest first
    _due: float | None = None
    _fresh: bool = False  # a press that has not acted yet
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
        """When `take` will have something to return, if no key changes before."""
        return 0.0 if self._tapped else self._due

    def take(self, now: float) -> tuple[str, ...]:
        """The keys to act on now; empty when nothing is due."""
        if self._tapped:
            tapped, self._tapped = self._tapped, ()
            return tapped
        if self._due is None or now < self._due:
            return ()
        self._due = now + (self.delay if self._fresh else self.every)
        self._fresh = False
        return self.keys

    def sample(self) -> tuple[str, ...]:
        """For real time: the keys that are held, or were tapped since the last call."""
        keys = self.keys or self._tapped
        self._tapped, self._fresh = (), False
        return keys

    def clear(self) -> None:
        """Forget everything, so that a key still down from the last episode does not act in the next."""
        self.keys, self._tapped, self._due, self._fresh = (), (), None, False
