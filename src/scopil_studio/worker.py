"""The worker process: `python -m scopil_studio.worker ROLE CONFIG`.

The role `recording` serves one recording page. Any other role is a module. Its functions answer the requests that
`workers.REQUESTS` lists for it. The arguments are first checked against the function's signature.
"""

import importlib
import inspect
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, get_args, get_origin

import gymnasium as gym

from scopil.errors import ConfigError, EnvError, ScopilError
from scopil_studio.workers import LENGTHS, REQUESTS, Message, pack

if TYPE_CHECKING:
    from scopil.eval.rules import Rules


@dataclass(frozen=True)
class StudioConfig:
    """The arguments of `scopil studio` that workers need."""

    folder: Path
    envs: tuple[str, ...] = ()  # additional ids; the caller named them, so they may import code
    rules: str | None = None

    def allows(self, env: str) -> bool:
        """Whether the environment is registered or the caller named it."""
        return env in self.envs or (":" not in env and env in gym.registry)

    def refuse_env(self, env: str) -> None:
        """Raises EnvError for an environment that is not allowed."""
        if not self.allows(env):
            raise EnvError(f"no environment {env[:80]!r}; start the studio with --env {env[:80]} to allow it.")

    def rules_for(self, env: str) -> "Rules | None":
        """The caller's rules, for the environments that the caller named."""
        from scopil.eval.rules import load_rules  # imports JAX

        return load_rules(self.rules) if self.rules is not None and env in self.envs else None


class Channel:
    """The worker's end of the pipes. Output that an environment prints goes to standard error."""

    def __init__(self) -> None:
        self._in: BinaryIO = os.fdopen(os.dup(0), "rb")
        self._out: BinaryIO = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self._arrived: queue.Queue[Message | None] = queue.Queue(maxsize=1000)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while head := self._in.read(LENGTHS.size):
            text, data = LENGTHS.unpack(head)
            self._arrived.put((json.loads(self._in.read(text)), self._in.read(data)))
        self._arrived.put(None)

    def receive(self, wait: float | None = None) -> Message | None:
        """The next message, or None if no message arrives within `wait` seconds. Exits if the server has ended."""
        try:
            message = self._arrived.get(timeout=wait)
        except queue.Empty:
            return None
        if message is None:
            os._exit(0)  # exit at once, even if threads of an environment still run
        return message

    def send(self, fields: dict[str, Any], data: bytes = b"") -> None:
        try:
            self._out.write(pack(fields, data))
            self._out.flush()
        except BrokenPipeError:
            os._exit(0)


def main(role: str, config: str) -> None:
    channel, given = Channel(), json.loads(config)
    made = StudioConfig(Path(given["folder"]), tuple(given["envs"]), given["rules"])
    module = importlib.import_module(f"scopil_studio.{role}")
    if role == "recording":
        return module.record(channel, made)
    channel.send({"ready": role})
    functions = {name: getattr(module, name) for name, (where, _) in REQUESTS.items() if where == role}
    while True:
        message = channel.receive()
        assert message is not None
        try:
            found = checked_call(functions[message[0]["request"]], message[0]["args"], made)
            fields, data = found if isinstance(found, tuple) else (found, b"")
            channel.send({"answer": fields}, data)
        except ScopilError as error:
            channel.send({"refused": str(error)})
        except OSError as error:
            known = error.filename and error.strerror
            channel.send({"refused": f"{Path(error.filename).name}: {error.strerror}" if known else str(error)})
        except Exception as error:  # a bug, here or in an environment: the terminal gets the trace, the page one line
            traceback.print_exc()
            channel.send({"refused": f"{type(error).__name__}: {error}"[:500]})


def checked_call(function: Callable[..., Any], args: Any, config: StudioConfig) -> Any:
    """`function(config, **args)`. Raises ConfigError unless names and types of `args` fit the function's signature."""
    wanted = {k: p for k, p in inspect.signature(function).parameters.items() if k != "config"}
    needed = {k for k, p in wanted.items() if p.default is inspect.Parameter.empty}
    if not isinstance(args, dict) or not needed <= set(args) <= set(wanted):
        raise ConfigError(f"arguments {str(args)[:80]}; want {list(wanted)}.")
    for name, value in args.items():
        if not fits(value, wanted[name].annotation):
            raise ConfigError(f"{name} = {str(value)[:60]!r}; want {wanted[name].annotation}.")
    return function(config, **args)


def fits(value: Any, kind: Any) -> bool:
    """Whether a value from JSON has the annotated type."""
    if get_origin(kind) is list:
        return isinstance(value, list) and all(fits(one, get_args(kind)[0]) for one in value)
    if get_origin(kind) is dict:
        key, item = get_args(kind)
        return isinstance(value, dict) and all(fits(k, key) and fits(v, item) for k, v in value.items())
    if get_args(kind):  # a union
        return any(fits(value, one) for one in get_args(kind))
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    return isinstance(value, kind)


if __name__ == "__main__":
    main(*sys.argv[1:])
