"""`scopil demos correct RUN`: a trained policy plays, a person corrects it, and the corrections become demonstrations.

Only the steps of the person are kept, as in DAgger: the actions of the policy are no demonstrations.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from scopil.cli.options import TrustEnv, option
from scopil.config import checked_seed
from scopil.data.dataset import Demonstrations
from scopil.envs.window import TEXT, Colour, Key
from scopil.errors import ConfigError, EnvError
from scopil.terminal import say
from scopil_studio.keyboard import KeyMap, Session, keys_for, marble_maze_keys, run
from scopil_studio.recorder import Recorder, step_cost

GIVE_BACK = "tab"


class Correction(Session):
    """The policy plays until a key of an action is pressed. Then the person plays, until the key tab or the end."""

    def __init__(
        self, recorder: Recorder, keys: KeyMap, live: bool, policy: Callable[[Any], Any], at_once: bool = False
    ):
        if keys.knows(GIVE_BACK):
            raise ConfigError(f"--keys: {GIVE_BACK} gives the control back to the policy; choose another key.")
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

    def text(self) -> list[tuple[str, Colour]]:
        now, kept, last, rest = super().text()
        player = f"You play ({GIVE_BACK}: stop)" if self.person else "The policy plays (any action's key: take over)"
        player += f"   corrected {self.corrected} steps"
        return [now, (player, TEXT), kept, last, (f"Enter: keep    {rest[0]}", TEXT)]


def demonstrated(agent: Any, env: str) -> Demonstrations | None:
    """The demonstrations that an agent learned from, in the spaces of its environment, to which corrections are added.
    `env` is the name that opens the environment."""
    from scopil.data.fit_to_env import into_spaces  # imports JAX

    return None if agent.demos is None else replace(into_spaces(agent.demos, env), env_id=agent.env_id)


def correct(
    run_folder: Annotated[
        tyro.conf.Positional[Path], tyro.conf.arg(name="run", help="a run folder or a saved agent", metavar="RUN")
    ],
    out: Annotated[
        Path, tyro.conf.arg(help="file of the run's demonstrations and the corrections; extended", metavar="FILE")
    ],
    keys: Annotated[str | None, option("a=0,d=1, or a=-1:0,d=1:0 for actions of two numbers", "KEY=ACTION,…")] = None,
    live: Annotated[bool, option("real time; by default the environment waits for every key of a correction")] = False,
    episodes: Annotated[int | None, option("stop after this many corrected episodes", "N")] = None,
    seed: Annotated[int, tyro.conf.arg(help="seed of the first episode", metavar="S")] = 0,
    trust_env: TrustEnv = False,
) -> None:
    """Watch a policy, take over by key, and keep the corrections. scopil resume RUN --demos FILE learns from them."""
    from scopil.envs.jax_env import make_env  # these import JAX
    from scopil.loading import load

    checked_seed(seed)
    if episodes is not None and episodes < 1:
        raise ConfigError(f"--episodes {episodes}; want at least 1.")
    agent = load(run_folder, trust_env=trust_env)
    name = agent.env_id if agent.run is None else agent.run.env_name()
    if name is None:
        raise EnvError(f"{run_folder} does not name its environment, so it cannot be played.")
    env = make_env(name, render_mode="rgb_array")
    try:
        maze = keys is None and name.startswith("scopil/MarbleMaze")
        chosen = marble_maze_keys() if maze else keys_for(env.action_space, keys)
        cost = step_cost(agent.rules_of_run())
        recorder = Recorder(
            env, out, seed=seed, name=out.stem, env_id=agent.env_id, cost=cost, begin_with=demonstrated(agent, name)
        )
        demos = run(
            Correction(recorder, chosen, live, lambda obs: agent.predict(obs)[0]), "scopil demos correct", episodes
        )
    finally:
        env.close()
    if demos is None or recorder.kept_now == 0:
        say("nothing kept")
        return
    say(f"{out}: {len(demos)} episodes, {demos.pairs} steps")
    say(f"Next: scopil resume {run_folder} --demos {out} --steps N")
