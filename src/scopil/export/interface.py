"""What both forms of export agree on: the names and shapes of inputs and outputs, and what the file says of itself."""

from pathlib import Path
from typing import Any

from scopil._version import __version__
from scopil.errors import ConfigError
from scopil.losses.density_ratio import Monitor
from scopil.nn.heads import Head
from scopil.policy import Policy


def outputs(head: Head, monitor: Monitor | None) -> tuple[str, ...]:
    policy = ("action", "sampled_action", *(("mean", "std") if head.continuous else ("logits",)))
    return policy if monitor is None else (*policy, "familiarity")


def description(policy: Policy, note: dict[str, str] | None) -> dict[str, str]:
    """For the file's reader."""
    return {str(k): str(v) for k, v in (note or {}).items()} | {
        "scopil_version": __version__,
        "noise": "normal" if policy.head.continuous else "gumbel",
        "normalises_observations": str(policy.normaliser is not None).lower(),
    }


def checked_path(path: Any, ending: str) -> Path:
    """Before the work, not after it."""
    path = Path(path)
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; want a file name such as {path / ('policy' + ending)}.")
    return path
