"""`scopil export RUN`: a policy as a file for other programs."""

from pathlib import Path
from typing import Annotated

import tyro

from scopil.agents import load
from scopil.cli.options import option
from scopil.errors import ConfigError
from scopil.export import export_jax, export_onnx


def main(argv: list[str]) -> None:
    tyro.cli(export, prog="scopil export", args=argv)


def export(
    run: Annotated[
        tyro.conf.Positional[Path], tyro.conf.arg(help="a run folder or a saved policy", metavar="RUN")
    ],
    onnx: Annotated[Path | None, option("an ONNX graph, for any runtime", "FILE")] = None,
    jax: Annotated[Path | None, option("a jax.export program", "FILE")] = None,
) -> None:
    """Write a trained policy so that it runs without scopil. docs/deploy.md says how to call it."""
    if onnx is None and jax is None:
        raise ConfigError("nothing to write; give --onnx policy.onnx, --jax policy.jaxexport, or both.")
    agent = load(run)
    agent.env.close()
    for write, path in ((export_onnx, onnx), (export_jax, jax)):
        if path is not None:
            written = write(agent, path)
            print(f"written: {written} ({written.stat().st_size:,} bytes)")
