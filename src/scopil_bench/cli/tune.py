"""`scopil tune my_study.toml`: search settings of a method with Optuna."""

import json
import signal
from pathlib import Path
from typing import Annotated

import tyro

from scopil.cli.interrupts import raised
from scopil.cli.options import call, option
from scopil.config import checked_seed
from scopil.errors import ConfigError
from scopil.terminal import Console
from scopil_bench.cli.workers import Workers, number_of
from scopil_bench.studies.study_file import is_study_file, read_study, read_tuning
from scopil_bench.tuning import search_from
from scopil_bench.tuning import tune as search_settings


def main(argv: list[str]) -> None:
    call(tune, "scopil tune", argv)


def tune(
    study: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(help="a study file with a table [tune]", metavar="my_study.toml")
    ],
    trials: Annotated[int | None, option("total number; default: the file's, or 20", "N")] = None,
    workers: Workers = None,
    seed: Annotated[int, tyro.conf.arg(help="of the search", metavar="S")] = 0,
    out: Annotated[Path | None, option("the study's folder; default: out/STUDY", "DIR")] = None,
) -> None:
    """Search settings. It can be stopped at any time and continued. Trials are evaluated from their own starts, so that
    the study's report has starts on which nothing was chosen."""
    if not is_study_file(study):
        raise ConfigError(f"{study} is not a study file; want for example scopil tune my_study.toml.")
    for what, value in (("trials", trials), ("workers", workers := number_of(workers))):
        if value is not None and value < 1:
            raise ConfigError(f"--{what} {value}; want at least 1.")
    checked_seed(seed)
    found, plan = read_study(study), dict(read_tuning(study))
    plan |= {} if trials is None else {"trials": trials}
    search, console = search_from(plan, found), Console()
    folder = out or Path("out", found.name)
    with raised((signal.SIGINT, signal.SIGTERM)):  # on a signal, workers save their runs
        made = search_settings(found, search, folder, workers=workers, seed=seed, console=console)
    best, diverged = made[0], sum(trial.failed for trial in made)
    note = f", of which {diverged} diverged" if diverged else ""
    console.print(f"\nbest of {len(made)} trials{note} ({best['value']:.4g}); for {study}:\n", highlight=False)
    if ties := sum(trial.get("value") == best["value"] for trial in made[1:]):
        others = f"{ties} other trial{'s tie' if ties > 1 else ' ties'}"
        console.print(f"{others} with it: the objective does not tell their settings apart\n", highlight=False)
    lines = [f"{name} = {json.dumps(value)}" for name, value in best["settings"].items()]
    console.print("\n".join([f"[methods.{search.method}]", *lines]), highlight=False)
    console.print(f"\nscopil study {study} reports all trials", highlight=False)
