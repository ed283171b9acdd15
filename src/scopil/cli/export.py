"""`scopil export RUN`: write a policy for other programs."""

import sys
from pathlib import Path
from typing import Annotated

import tyro

from scopil.cli.options import TrustEnv, call, option
from scopil.errors import ConfigError
from scopil.loading import policy_of
from scopil.terminal import say


def main(argv: list[str]) -> None:
    call(export, "scopil export", argv)


def export(
    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(help="a run folder or a saved policy", metavar="RUN")],
    onnx: Annotated[Path | None, option("an ONNX graph, for any runtime", "FILE")] = None,
    jax: Annotated[Path | None, option("a jax.export program", "FILE")] = None,
    trust_env: TrustEnv = False,
) -> None:
    """Write a trained policy that runs without scopil (see docs/deploy.md)."""
    if onnx is None and jax is None:
        raise ConfigError("nothing to write; give --onnx policy.onnx, --jax policy.jaxexport, or both.")
    if onnx == jax:
        raise ConfigError(f"--onnx and --jax name the same file {onnx}; want two.")
    policy, note, monitor = policy_of(run, trust_env=trust_env)
    for write, path, ending in ((policy.to_onnx, onnx, ".onnx"), (policy.to_jax, jax, ".jaxexport")):
        if path is not None:
            written = write(path, note, monitor)
            say(f"written: {written} ({written.stat().st_size:,} bytes)")
            if path.suffix != ending:
                say(f"warning: {path} does not end in {ending}, by which programs know such files", file=sys.stderr)
