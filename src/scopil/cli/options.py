"""How the verbs describe their options."""

from typing import Any

import tyro


def option(help: str, metavar: str | None = None) -> Any:
    """An option that may be left out, where "(default: None)" would tell a reader nothing."""
    return tyro.conf.arg(help=help, metavar=metavar, help_behavior_hint="")
