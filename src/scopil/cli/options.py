"""How the verbs describe and read their options."""

from typing import Annotated, Any

import tyro


def option(help: str, metavar: str | None = None) -> Any:
    """An option that may be left out, where "(default: None)" would tell a reader nothing."""
    return tyro.conf.arg(help=help, metavar=metavar, help_behavior_hint="")


TrustEnv = Annotated[
    bool,
    option(
        "import the code that the file names as its environment (module:Id-v0) or its rules; runs that code"
    ),
]
RulesOption = Annotated[
    str | None,
    option(
        "a Python file of rules to count violations by, functions of (obs, action, next_obs), or FILE:NAME of some of "
        "them; default: the costs the environment reports",
        "FILE",
    ),
]
