"""Record episodes that a person plays in the browser, or corrections of a policy. The page sends keys and pointer
positions and gets states. Recorder and key assignments are those of `scopil play` and `scopil demos correct`."""

import io
import time
import traceback
from typing import Any

import gymnasium as gym
import numpy as np

from scopil.envs.jax_env import make_env
from scopil.envs.window import Key
from scopil.errors import ConfigError, EnvError, ScopilError
from scopil_studio import trays
from scopil_studio.correct import Correction, demonstrated
from scopil_studio.keyboard import KeyMap, Session, keys_for, marble_maze_keys
from scopil_studio.listing import plain_set
from scopil_studio.paths import inside
from scopil_studio.policies import open_policy
from scopil_studio.recorder import Recorder, step_cost
from scopil_studio.worker import Channel, StudioConfig, checked_call, fits

POINTER_ACTION = 0  # placeholder for the action given by the pointer
LONGEST_KEY = 20


def record(channel: Channel, config: StudioConfig) -> None:
    """Serve one page until it is closed."""
    playing: Playing | None = None
    while True:
        message = channel.receive(None if playing is None else playing.wait())
        try:
            if message is None:
                assert playing is not None
                playing.tick()
            elif message[0].get("do") == "begin":
                playing = None  # the old recording ends, even if the new one is refused
                begun: Playing = checked_call(Playing, message[0].get("args"), config)
                channel.send({"kind": "begun"} | begun.about, begun.picture)
                playing = begun
            elif message[0].get("do") == "ping":
                channel.send({"kind": "pong"})
            elif playing is not None:
                playing.input(message[0])
            if playing is not None and (news := playing.news()) is not None:
                channel.send(*news)
        except (ScopilError, OSError) as error:
            channel.send({"kind": "refused", "message": str(error)})
        except Exception as error:  # raised by the environment
            traceback.print_exc()
            playing = None
            text = f"the environment failed: {type(error).__name__}: {error}"[:500]
            channel.send({"kind": "ended", "message": text})


class PointerRecorder(Recorder):
    """Records continuous actions from a pointer or a gamepad."""

    axes = np.zeros(2)  # each in [−1, 1], right and up positive

    def step(self, action: Any) -> None:
        super().step(self._pointed() if isinstance(action, int) else action)

    def _pointed(self) -> np.ndarray:
        """The action: the first two components follow the axes; the others are in the middle of their range."""
        space = self.env.action_space
        assert isinstance(space, gym.spaces.Box)
        low, high = np.maximum(space.low, -1e3).ravel(), np.minimum(space.high, 1e3).ravel()
        share = np.full(low.shape, 0.5)
        share[:2] = (self.axes[: len(share)] + 1) / 2
        return (low + share * (high - low)).reshape(space.shape).astype(space.dtype)


class Playing:
    """One environment and the file of its episodes; new episodes are added to an existing file. `keys` assigns keys to
    actions, as in `a=0,d=1`; it may be empty for Marble Maze and for continuous actions. With the name of a `policy`,
    the policy plays until the person takes over, and the file begins with its demonstrations."""

    def __init__(
        self,
        config: StudioConfig,
        env: str,
        file: str,
        keys: str = "",
        live: bool = False,
        seed: int = 0,
        policy: str = "",
    ):
        if not file.endswith(".npz"):
            raise ConfigError(f"{file!r}; want a name that ends in .npz.")
        played = open_policy(config, env, policy) if policy else None
        if played is None:
            config.refuse_env(env)
        name = env if played is None else played.env
        out = plain_set(inside(config.folder, file))
        if not 0 <= seed < 2**31:
            raise ConfigError(f"seed = {seed}; want 0 … {2**31 - 1}.", setting="seed")
        made = make_env(name)
        self.tray = trays.tray_of(made)
        if self.tray is None:
            made.close()
            made = make_env(name, render_mode="rgb_array")
        self.keys = _keys(keys, made.action_space, marble=self.tray is not None)
        continuous = isinstance(made.action_space, gym.spaces.Box)
        kind = PointerRecorder if continuous else Recorder
        cost = step_cost(config.rules_for(env) if played is None else played.rules())
        shown = None if played is None else demonstrated(played.agent, name)
        self.recorder = kind(
            made, out, seed=seed, name=out.stem, env_id=env, drawn=self.tray is None, cost=cost, begin_with=shown
        )
        if self.tray is not None or cost is not None:  # compiles the step; rules that fail are refused now
            self.recorder.step(made.action_space.sample())
            self.recorder.restart()
        # On a tray, undo is exact and fast, so a step does not wait for a possible second key.
        at_once = self.tray is not None
        if played is None:
            self.session = Session(self.recorder, self.keys, live, at_once)
        else:
            self.session = Correction(self.recorder, self.keys, live, played.act, at_once)
        self.period = 1 / (made.metadata.get("render_fps") or 12)
        self._next, self._last_input, self._sent = 0.0, 0, ()
        sizes, self.picture = ({}, b"") if self.tray is None else trays.described(self.tray)
        keys_shown = [{"keys": sorted(chord), "action": action} for chord, action in self.keys.actions.items()]
        self.about = {"env": env, "file": file, "live": live, "tray": sizes or None, "pointer": continuous}
        self.about |= {"period": self.period, "keys": keys_shown, "policy": policy}

    def input(self, message: dict[str, Any]) -> None:
        """Process an input: a key that was pressed or released, or the axes of a pointer."""
        self._last_input = message["n"] if isinstance(message.get("n"), int) else self._last_input
        name, axes = message.get("key"), message.get("axes", [])
        if isinstance(name, str) and len(name) <= LONGEST_KEY and isinstance(message.get("down"), bool):
            self.session.key(Key(name, message["down"]), time.monotonic())
        elif isinstance(self.recorder, PointerRecorder) and fits(axes, list[float]) and len(axes) == 2:
            self.recorder.axes = np.clip(np.array(axes, float), -1, 1)
        else:
            raise ConfigError(f"unknown input {str(message)[:80]}; want a key or axes.")

    def wait(self) -> float | None:
        """Seconds until `tick` is due; None if only an input can change the state."""
        session, over = self.session, self.recorder.over
        if isinstance(session, Correction) and not session.person:
            due = None if over else session.next_step
        elif session.live:
            due = self._next if session.running and not over else None
        else:
            due = session.held.due
        return None if due is None else max(0.0, due - time.monotonic())

    def tick(self) -> None:
        now = time.monotonic()
        if self.session.live:
            self._next = max(self._next + self.period, now)  # missed frames are skipped
        self.session.tick(now)

    def news(self) -> tuple[dict[str, Any], bytes] | None:
        """The message with the new state for the page; None if the state has not changed."""
        r, session = self.recorder, self.session
        correcting = (session.person, session.corrected) if isinstance(session, Correction) else None
        current = (r.kept, r.steps, self._last_input, session.message, session.running, correcting, id(r.observation))
        if current == self._sent:
            return None
        drawn = current[:2] + current[-1:] != self._sent[:2] + self._sent[-1:]
        self._sent = current
        names = ("over", "terminated", "violations", "broken", "kept", "kept_steps", "kept_violations")
        state: dict[str, Any] = {"kind": "state", "n": self._last_input, "step": r.steps, "running": session.running}
        state |= {"message": session.message} | {name: getattr(r, name) for name in names}
        if correcting is not None:
            state["person"], state["corrected"] = correcting
        if self.tray is None:
            return state, jpeg(r.image) if drawn else b""
        state["position"] = trays.positions(r.observation).tolist()
        state["tilt"] = trays.tilts(r.observation).tolist()
        return state, b""


def jpeg(image: np.ndarray) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=88, subsampling=0)
    return buffer.getvalue()


def _keys(text: str, space: gym.Space, marble: bool) -> KeyMap:
    if isinstance(space, gym.spaces.Box):
        keys = {frozenset(["space"]): POINTER_ACTION}
        return KeyMap(keys, POINTER_ACTION, "Pointer or gamepad: action    Space: step")
    if marble and not text:
        return marble_maze_keys()
    if not isinstance(space, gym.spaces.Discrete):
        raise EnvError(f"actions {space}; recording needs Discrete or Box actions.")
    return keys_for(space, text or None)
