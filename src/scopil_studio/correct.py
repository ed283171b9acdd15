"""Corrections: a trained policy plays, a person takes over by key, and the person's steps become demonstrations.

Only these steps are kept, as in DAgger: the actions of the policy are no demonstrations.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from scopil.data.dataset import Demonstrations
from scopil.envs.window import Key
from scopil.errors import ConfigError
from scopil_studio.keyboard import KeyMap, Session
from scopil_studio.recorder import Recorder

GIVE_BACK = "tab"


class Correction(Session):
    """The policy plays until a key of an action is pressed. Then the person plays, until the key tab or the end."""

    def __init__(
        self, recorder: Recorder, keys: KeyMap, live: bool, policy: Callable[[Any], Any], at_once: bool = False
    ):
        if keys.knows(GIVE_BACK):
            raise ConfigError(f"keys: {GIVE_BACK} gives the control back to the policy; choose another key.")
        super().__init__(recorder, keys, live, at_once)
        self._policy = policy
        self._spans: list[list[int]] = []  # first step and end of each correction; the newest may be open
        self.person = False  # whether the person plays
        self.next_step = 0.0  # the time of the policy's next step

    def key(self, key: Key, now: float) -> None:
        if key.down and key.name == GIVE_BACK and self.person:
            self._end_span()
            self.next_step = now
        elif key.down and self.keys.knows(key.name) and not self.person and not self.recorder.over:
            self.person = True
            self._spans.append([self.recorder.steps, self.recorder.steps])
        super().key(key, now)

    def tick(self, now: float) -> None:
        if self.person:
            super().tick(now)
        elif not self.recorder.over and now >= self.next_step:
            self.recorder.step(self._policy(self.recorder.observation))
            self.next_step = now + 1 / self.rate

    @property
    def parts(self) -> list[tuple[int, int]]:
        """The corrections of this episode, each with its first step and its end."""
        if self.person:
            self._spans[-1][1] = self.recorder.steps
        return [(first, end) for first, end in self._spans if end > first]

    @property
    def corrected(self) -> int:
        """The steps of the person in this episode."""
        return sum(end - first for first, end in self.parts)

    def _end_span(self) -> None:
        self._spans[-1][1] = self.recorder.steps
        self.person = False
        self.held.clear()

    def _do(self, what: str) -> None:
        if what == "keep":
            if not (parts := self.parts):
                self.message = "nothing was corrected; press a key of an action to take over"
                return
            self._next(lambda: self.recorder.keep(parts))
        elif what == "discard":
            self._next(self.recorder.discard)
        elif what != "undo" or self.person:  # the steps of the policy are not undone one by one
            super()._do(what)
            if self.person:
                self._spans[-1][0] = min(self._spans[-1][0], self.recorder.steps)

    def _next(self, begin: Callable[[], None]) -> None:
        super()._next(begin)
        self._spans, self.person = [], False


def demonstrated(agent: Any, env: str) -> Demonstrations | None:
    """The demonstrations that an agent learned from, in the spaces of its environment, to which corrections are added.
    `env` is the name that opens the environment."""
    from scopil.data.fit_to_env import into_spaces  # imports JAX

    return None if agent.demos is None else replace(into_spaces(agent.demos, env), env_id=agent.env_id)
