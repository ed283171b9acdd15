"""Options shared by several commands, and the call of a command with its command-line arguments."""

import difflib
import inspect
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from scopil import sb3
from scopil.envs.naming import read_options, with_options
from scopil.errors import ConfigError

Verb = Callable[..., Any]
_FRAME = re.compile(r"[│╭╮╰╯─]+|-{3,}|^[+|]|[+|]$", re.MULTILINE)  # frame around the parser's errors, Unicode or ASCII


def option(help: str, metavar: str | None = None) -> Any:
    """An optional argument whose help text omits "(default: None)"."""
    return tyro.conf.arg(help=help, metavar=metavar, help_behavior_hint="")


def env_name(env: str, kwargs: Sequence[str] = (), max_episode_steps: int | None = None) -> str:
    """The environment's id with its options."""
    if max_episode_steps is not None and max_episode_steps < 1:
        raise ConfigError(f"--max-episode-steps {max_episode_steps}; want at least 1.")
    limit = {} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}
    return with_options(env, read_options(kwargs) | limit)


TrustEnv = Annotated[
    bool, option("run the code of the environment and rules in RUN or FILE, though your key did not sign it")
]
EnvKwargs = Annotated[
    tuple[str, ...], option("arguments of the environment: --env-kwargs size=5 mode=fast", "NAME=VALUE")
]
MaxSteps = Annotated[int | None, option("steps after which an episode is truncated", "N")]
RulesOption = Annotated[
    str | None,
    option(
        "a Python file of rules to count violations by, functions of (obs, action, next_obs), or FILE:NAME of some of "
        "them; default: the costs the environment reports",
        "FILE",
    ),
]


def call(
    verb: Verb | Mapping[str, Verb],
    prog: str,
    argv: list[str],
    description: str | None = None,
    known: Iterable[str] = (),
) -> Any:
    """Call a function, or one of several by subcommand, with the options in `argv`. Raises ConfigError with the
    parser error as one line. `prog` is the typed command; `known` lists options outside the function's signature."""
    said = io.StringIO()
    options: dict[str, Any] = {"prog": prog, "args": argv, "registry": _REGISTRY}
    options |= {"description": description, "config": (tyro.conf.FlagCreatePairsOff,)}
    try:
        with redirect_stderr(said):
            if isinstance(verb, Mapping):
                several = {name: _later(one) for name, one in verb.items()}
                ready = tyro.extras.subcommand_cli_from_dict(several, **options)
            else:
                ready = tyro.cli(_later(verb), **options)
    except SystemExit as stop:
        if not stop.code:
            raise
        chosen = verb.get(argv[0]) if isinstance(verb, Mapping) and argv else verb
        names = {*known, *(inspect.signature(chosen).parameters if callable(chosen) else ())}
        where = f"{prog} {argv[0]}" if isinstance(verb, Mapping) and callable(chosen) else prog
        raise ConfigError(_one_line(said.getvalue(), names, where)) from None
    return ready()


def _later(verb: Verb) -> Verb:
    """A function with the same options that returns the call. The call is made later, outside the error capture."""

    @wraps(verb)
    def ready(*args: Any, **options: Any) -> Verb:
        return partial(verb, *args, **options)

    return ready


def _one_line(complaint: str, known: Iterable[str], prog: str) -> str:
    """The parser's error as one sentence, with the nearest known option if an option is unknown."""
    text = " ".join(_FRAME.sub(" ", complaint).split())
    ends = " Perhaps you meant| For full helptext| Available subcommands| Arguments are applied|$"
    if unknown := re.search(rf"Unrecognized (?:or misplaced )?options: (.*?)(?:{ends})", text):
        listed = re.sub(r"\(applied to [^)]*\)", ",", unknown[1])
        odd = [word.strip() for word in listed.split(",") if word.strip()]
        flag = next((word for word in odd if word.startswith("-")), None)
        if flag is None:
            return f"{odd[0]!r} is an extra word or an unknown command; see {prog} --help."
        near = nearest(flag.lstrip("-").replace("-", "_"), known)
        hint = "" if near is None else f" Did you mean --{near.replace('_', '-')}?"
        return f"there is no option {flag}.{hint} See {prog} --help."
    for end in (" Argument helptext", " For full helptext", " Perhaps you meant"):
        text = text.partition(end)[0]
    titles = "Value error|Required options|Parsing error|Missing subcommand|Invalid choice|Missing argument"
    text = re.sub(rf"^(?:(?:{titles}) )+", "", text)
    return f"{text.rstrip('.')}; see {prog} --help."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The nearest known name: by the names of Stable-Baselines3, by initials (`lr`: learning_rate) or by spelling."""
    known = sorted(known)
    if (ours := sb3.SAME.get(name)) in known:
        return ours
    initials = [k for k in known if len(name) > 1 and name == "".join(part[:1] for part in k.split("_"))]
    close = difflib.get_close_matches(name, known, n=1)
    longer = [k for k in known if len(name) > 2 and name in k]
    return next(iter([*initials, *close, *longer]), None)


_REGISTRY = ConstructorRegistry()


def _primitive(kind: type, metavar: str, parse: Callable[[str], Any]) -> None:
    """Values of the type `kind` are read by `parse`."""

    @_REGISTRY.primitive_rule
    def rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if info.type is not kind:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar=metavar,
            instance_from_str=lambda words: parse(words[0]),
            is_instance=lambda value: isinstance(value, kind),
            str_from_instance=lambda value: [str(value)],
        )


def _path(text: str) -> Path:
    """An empty path, as of an unset variable of a shell, would be the current folder."""
    if not text:
        raise ValueError("'' is not a path")
    return Path(text)


def whole_number(text: str) -> int:
    """100000, 100_000 or 1e5."""
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError, OverflowError):  # 1e5; not 1.5, nan or inf
        if float(text) == int(float(text)):
            return int(float(text))
    raise ValueError(f"{text!r} is not a whole number")


_primitive(int, "INT", whole_number)
_primitive(Path, "PATH", _path)
