"""Who may name code: the caller, never a file.

An id with a colon (`module:Id-v0`, `file.py:Class`) says what to import. Whoever calls scopil may say so; a policy,
run folder or demonstration set may come from anywhere and may not, unless the caller trusts it in so many words.
"""

from typing import Any

from scopil.envs.naming import split_options
from scopil.errors import ConfigError, EnvError
from scopil.user_code import is_file_name


def rules_in_file(name: str, source: Any, trust_env: bool) -> str:
    """The name of rules that `source`, a run folder, gives. They are code; those of scopil itself may be named."""
    if not trust_env and not _ours(name):
        raise ConfigError(
            f"{source} names the rules {name!r}, and loading them would run code that a file chose. If that code is "
            f"yours or you trust it, add --trust-env (trust_env=True), or name the rules yourself (--rules {name})."
        )
    return name


def _ours(rules: str) -> bool:
    return rules.startswith("scopil.") and not is_file_name(rules)  # scopil.py would be a file in this folder


def trust_option(env: Any, rules: str | None) -> str:
    """What commands on a folder that names these need, with a space before it; nothing where no code is named."""
    return " --trust-env" if names_code(env) or (rules is not None and not _ours(rules)) else ""


def names_code(env: Any) -> bool:
    """Whether making this environment would import a module or a file that its id names. Text among its options may
    name a file too."""
    if not isinstance(env, str):
        return False
    name, options = split_options(env)
    return ":" in name or any(not isinstance(value, int | float | None) for value in options.values())


def id_in_file(env: Any, source: Any, trust_env: bool) -> Any:
    """The id that `source`, a file or folder, names; refused where it names code and the caller does not trust it."""
    if names_code(env) and not trust_env:
        raise EnvError(
            f"{source} names the environment {env!r}, and making it would run code that a file chose. If that code "
            f"is yours or you trust it, add --trust-env (trust_env=True), or name the environment yourself "
            f"(env={env!r})."
        )
    return env
