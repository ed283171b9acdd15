"""`scopil demos enough SET`: violations and reward over the number of demonstrations."""

import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated

import tyro

from scopil.cli.interrupts import raised
from scopil.cli.options import RulesOption, TrustEnv, option
from scopil.envs.naming import id_in_file
from scopil.errors import ConfigError
from scopil.terminal import Console
from scopil_bench.cli.workers import Workers, number_of


def enough(
    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(help="a set of demonstrations", metavar="SET")],
    env: Annotated[str | None, option("default: the environment of the recording", "ID")] = None,
    sizes: Annotated[str | None, option("numbers of demonstrations; default: 5, 10, 20, … all", "A,B")] = None,
    steps: Annotated[int, option("environment steps per run", "N")] = 200_000,
    seeds: Annotated[int, option("runs per number of demonstrations", "N")] = 1,
    workers: Workers = None,
    rules: RulesOption = None,
    trust_env: TrustEnv = False,
    out: Annotated[Path, option("folder of the runs and the report", "DIR")] = Path("out/enough"),
) -> int:
    """Train on parts of a set and evaluate from unseen starts. It can be stopped and continued."""
    from scopil.data import storage  # these import JAX
    from scopil.eval.rules import load_rules
    from scopil_bench.cli.study import say_results
    from scopil_bench.studies import enough as parts
    from scopil_bench.studies.running import run_study

    demos = storage.load_demos(source)
    if (where := env or id_in_file(demos.env_id, source, trust_env)) is None:
        raise ConfigError(f"{source} does not name its environment; give it with --env ID.")
    try:
        numbers = parts.sizes_for(len(demos)) if sizes is None else [int(part) for part in sizes.split(",")]
    except ValueError as error:
        raise ConfigError(f"--sizes {sizes}; want numbers separated by commas, such as 5,10,20.") from error
    study = parts.study(demos, where, numbers, steps, seeds, None if rules is None else load_rules(rules))
    console = Console()
    with raised((signal.SIGINT, signal.SIGTERM)):  # on a signal, the workers save
        again = shlex.join(["scopil", *sys.argv[1:]])
        report = run_study(study, out, workers=number_of(workers), console=console, command=again)
    return say_results(report, out, console)
