"""Names of environments with their options, and whether a file may name code to import.

CartPole-v1                                          a Gymnasium id
CartPole-v1(max_episode_steps=300)                   with arguments of `gym.make`
module:Id-v0                                         from a module that registers it
my_env.py:MyEnv(size=5, max_episode_steps=300)       a class or function in a file, with its arguments

A name with a colon runs code. The caller may give such a name. A policy, run folder or demonstration set may not,
since it may come from anywhere, unless the code is in scopil or scopil_bench or the caller says that it is trusted.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from scopil.errors import ConfigError, EnvError
from scopil.user_code import split_name

_FORM = re.compile(r"(?P<base>[^()]*)(?:\((?P<options>.*)\))?", re.DOTALL)
# Modules of this distribution. Not `scopil.py`, a file in the current folder, and not `scopil.__main__`, which is run.
_OWN_MODULE = re.compile(r"(scopil|scopil_bench)(\.(?!py\b)[a-z]\w*)+")


def split_options(name: str) -> tuple[str, dict[str, Any]]:
    """`A(size=5)` → A, {size: 5}. Options are literals (numbers, text, lists); nothing is evaluated."""
    found = _FORM.fullmatch(name.strip())
    try:
        if found is None:
            raise ValueError("brackets that do not close")
        call = ast.parse(f"f({found['options'] or ''})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(k.arg is None for k in call.keywords):
            raise ValueError("options without a name")
        return found["base"].strip(), {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise ConfigError(
            f"environment {name!r}: {reason}; want options as in my_env.py:MyEnv(size=5, max_episode_steps=300)."
        ) from error


def with_options(name: str, options: Mapping[str, Any]) -> str:
    """The name with further options, which replace its own options of the same name."""
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


def names_code(env: Any) -> bool:
    """Whether making this environment would import a module or file outside this distribution. An option that is text
    may name a file too."""
    if not isinstance(env, str):
        return False
    name, options = split_options(env)
    outside = ":" in name and not _is_ours(name)
    return outside or any(not isinstance(value, int | float | None) for value in options.values())


def id_in_file(env: Any, source: Any, trust_env: bool) -> Any:
    """The environment name `env` read from `source`, a file or folder. Raises EnvError if it names code and the caller
    does not trust the source."""
    if names_code(env) and not trust_env:
        raise EnvError(
            f"{source} names the environment {env!r}, and making it would run code that a file chose. If that code "
            f"is yours or you trust it, add --trust-env (trust_env=True), or name the environment yourself "
            f"(env={env!r})."
        )
    return env


def rules_in_file(name: str, source: Any, trust_env: bool) -> str:
    """The name of rules read from `source`, a run folder. Rules are code; only those of this distribution
    need no trust."""
    if not trust_env and not _is_ours(name):
        raise ConfigError(
            f"{source} names the rules {name!r}, and loading them would run code that a file chose. If that code is "
            f"yours or you trust it, add --trust-env (trust_env=True), or name the rules yourself (--rules {name})."
        )
    return name


def trust_option(env: Any, rules: str | None) -> str:
    """The option, with a leading space, that commands on a run with this environment and these rules need."""
    return " --trust-env" if names_code(env) or (rules is not None and not _is_ours(rules)) else ""


def _is_ours(name: str) -> bool:
    return _OWN_MODULE.fullmatch(split_name(name)[0]) is not None
