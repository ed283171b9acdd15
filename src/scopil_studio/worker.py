"""A worker process, seen from inside: `python -m scopil_studio.worker ROLE SETTING`.

The role `record` plays with one person; the role `answer` looks a question up in a table of functions and calls it
with the arguments that came, after a check against the function's signature.
"""

import inspect
import json
import numbers
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args, get_origin

import numpy as np

from scopil.data.dataset import Episode
from scopil.data.recorder import StepCost
from scopil.errors import ConfigError, EnvError, ScopilError
from scopil_studio.channel import Channel


@dataclass(frozen=True)
class Setting:
    """What `scopil studio` was told."""

    folder: Path
    envs: tuple[str, ...] = ()  # ids beyond the registered ones: the caller chose them, so they may import code
    rules: str | None = None

    def refuse_env(self, env: str) -> None:
        """The page chooses among environments that are installed, and among those the caller has named."""
        import gymnasium as gym

        if env not in self.envs and (":" in env or env not in gym.registry):
            raise EnvError(f"no environment {env[:80]!r} here; start the studio with --env {env[:80]} if it is yours.")

    @cached_property
    def judge(self) -> StepCost | None:
        """The caller's rules for one step; None: what the environment reports counts."""
        if self.rules is None:
            return None
        from scopil.eval.rules import load_rules, with_rules

        rules = load_rules(self.rules)

        def judge(obs: Any, action: Any, next_obs: Any, info: dict[str, Any]) -> float:
            said = {k: np.array([0.0, float(v)]) for k, v in info.items() if isinstance(v, numbers.Real)}
            step = Episode(observations=np.stack([obs, next_obs]), actions=np.asarray(action)[None], info=said)
            return float(broken(with_rules([step], rules)[0])[-1])

        return judge


def broken(episode: Episode) -> np.ndarray:
    """Which of an episode's states break a rule."""
    from scopil.eval.measures import breaks_a_rule

    return breaks_a_rule(episode)


def main(role: str, setting: str) -> None:
    channel = Channel()
    given = json.loads(setting)
    made = Setting(Path(given["folder"]), tuple(given["envs"]), given["rules"])
    if role == "record":
        from scopil_studio.recording import record

        record(channel, made)
    else:
        from scopil_studio.comparing import VERBS as COMPARING
        from scopil_studio.watching import VERBS as WATCHING

        answer(channel, made, COMPARING | WATCHING)


def answer(channel: Channel, setting: Setting, verbs: dict[str, Callable[..., Any]]) -> None:
    while True:
        message = channel.receive()
        assert message is not None
        asked = message[0]
        try:
            found = checked_call(verbs[asked["verb"]], asked["args"], setting)
            fields, data = found if isinstance(found, tuple) else (found, b"")
            channel.send({"answer": fields}, data)
        except ScopilError as error:
            channel.send({"refused": str(error)})
        except OSError as error:
            channel.send(
                {"refused": f"{Path(error.filename).name}: {error.strerror}" if error.filename else str(error)}
            )
        except Exception as error:  # ours or an environment's mistake: the terminal gets all, the page one line
            traceback.print_exc()
            channel.send({"refused": f"{type(error).__name__}: {error}"[:500]})


def checked_call(function: Callable[..., Any], args: Any, setting: Setting) -> Any:
    """`function(setting, **args)`, when the names and types of the arguments are those of its signature."""
    wanted = {k: p for k, p in inspect.signature(function).parameters.items() if k != "setting"}
    needed = {k for k, p in wanted.items() if p.default is inspect.Parameter.empty}
    if not isinstance(args, dict) or not needed <= set(args) <= set(wanted):
        raise ConfigError(f"arguments {str(args)[:80]}; want {list(wanted)}.")
    for name, value in args.items():
        if not _fits(value, wanted[name].annotation):
            raise ConfigError(f"{name} = {str(value)[:60]!r}; want {wanted[name].annotation}.")
    return function(setting, **args)


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is list:
        return isinstance(value, list) and all(_fits(one, get_args(kind)[0]) for one in value)
    if get_origin(kind) is dict:
        key, item = get_args(kind)
        return isinstance(value, dict) and all(_fits(k, key) and _fits(v, item) for k, v in value.items())
    if get_args(kind):  # a union
        return any(_fits(value, one) for one in get_args(kind))
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


if __name__ == "__main__":
    main(*sys.argv[1:])
