"""Names of environments, options included, so that one line in a file or on the command line says all of it:

CartPole-v1                                          a Gymnasium id
CartPole-v1(max_episode_steps=300)                   with what `gym.make` takes
module:Id-v0                                         from a module that registers it
my_env.py:MyEnv(size=5, max_episode_steps=300)       a class or function in a file, with what it takes
"""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from scopil.errors import ConfigError

_FORM = re.compile(r"(?P<base>[^()]*)(?:\((?P<options>.*)\))?", re.DOTALL)


def split_options(name: str) -> tuple[str, dict[str, Any]]:
    """`A(size=5)` → A, {size: 5}. Options are plain values: numbers, text, lists; nothing is evaluated."""
    found = _FORM.fullmatch(name.strip())
    try:
        if found is None:
            raise ValueError("brackets that do not close")
        call = ast.parse(f"f({found['options'] or ''})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(k.arg is None for k in call.keywords):
            raise ValueError("options without a name")
        return found["base"].strip(), {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        said = error.msg if isinstance(error, SyntaxError) else error
        raise ConfigError(
            f"environment {name!r}: {said}; want options as in my_env.py:MyEnv(size=5, max_episode_steps=300)."
        ) from error


def with_options(name: str, options: Mapping[str, Any]) -> str:
    """The name with further options, which take the place of those it has."""
    if not options:
        return name
    base, before = split_options(name)
    return f"{base}({', '.join(f'{key}={value!r}' for key, value in (before | dict(options)).items())})"


def read_options(words: Sequence[str]) -> dict[str, Any]:
    """`size=5 mode=fast` → {size: 5, mode: "fast"}."""
    options = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError(f"--env-kwargs {word}; want NAME=VALUE, as in --env-kwargs size=5 mode=fast.")
        try:
            options[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[key] = value  # text needs no quotes
    return options
