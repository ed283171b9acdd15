"""How the verbs describe and read their options."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import tyro

from scopil.errors import ConfigError


def option(help: str, metavar: str | None = None) -> Any:
    """An option that may be left out, where "(default: None)" would tell a reader nothing."""
    return tyro.conf.arg(help=help, metavar=metavar, help_behavior_hint="")


TrustEnv = Annotated[
    bool, option("import the module that the file names where its environment is module:Id-v0; runs its code")
]


def named_function(name: str) -> Callable[..., Any]:
    """The function called `module:name`, from a module that can be imported here or lies in this folder."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), attribute, None)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"cannot import {name!r}: {error}; want MODULE:NAME, as in my_rules:tilt."
        ) from error
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise ConfigError(f"{module!r} has no function {attribute!r}; want MODULE:NAME, as in my_rules:tilt.")
    return found
