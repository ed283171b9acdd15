"""`scopil resume RUN`: continue a run that was stopped, or extend a finished one."""

from pathlib import Path
from typing import Annotated

import tyro

from scopil.cli.options import TrustEnv, call, option
from scopil.cli.train import Verbosity, Wandb, train_run
from scopil.train.run import Run


def main(argv: list[str]) -> int:
    return call(resume, "scopil resume", argv)


def resume(
    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(help="a run folder", metavar="RUN")],
    steps: Annotated[int | None, option("environment steps in all, to extend a run; default: its own", "N")] = None,
    verbosity: Verbosity = "normal",
    wandb: Wandb = None,
    trust_env: TrustEnv = False,
) -> int:
    """Go on from the newest checkpoint. A compiled environment's run ends as if it had never stopped."""
    opened = Run.open(run, trust_env=trust_env)
    return train_run(opened if steps is None else opened.extended(steps), verbosity, wandb)
