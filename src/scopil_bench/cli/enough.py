"""`scopil demos enough SET`: violations and reward over the number of demonstrations."""

import json
import signal
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from scopil.cli.interrupts import raised
from scopil.cli.options import RulesOption, TrustEnv, option
from scopil.envs.naming import id_in_file
from scopil.errors import ConfigError, ScopilError
from scopil.files import write_atomically
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
    out: Annotated[Path, option("folder of the runs and the curve", "DIR")] = Path("out/enough"),
) -> None:
    """Train on parts of a set and evaluate from unseen starts. It can be stopped and continued."""
    from scopil.data import storage  # these import JAX
    from scopil.eval.rules import load_rules
    from scopil_bench import planning, results
    from scopil_bench.runner import execute_with_progress
    from scopil_bench.studies import enough as curves

    demos = storage.load_demos(source)
    if (where := env or id_in_file(demos.env_id, source, trust_env)) is None:
        raise ConfigError(f"{source} does not name its environment; give it with --env ID.")
    counted = None if rules is None else load_rules(rules)
    try:
        numbers = curves.sizes_for(len(demos)) if sizes is None else [int(part) for part in sizes.split(",")]
    except ValueError as error:
        raise ConfigError(f"--sizes {sizes}; want numbers separated by commas, such as 5,10,20.") from error
    study = curves.study(demos, where, numbers, steps, seeds, counted)
    console = Console()
    curves.keep_set(demos, out)
    with raised((signal.SIGINT, signal.SIGTERM)):  # on a signal, the workers save
        runs = planning.create(study, out, "full", study.cells(), seeds, option="--sizes")
        if failed := execute_with_progress(runs, number_of(workers), console):
            raise ScopilError("; ".join(f"{folder} failed: {line}" for folder, line in failed.items()))
        with results.Evaluator(study) as evaluator:
            done = results.finished(planning.found(study, out))
            points = curves.curve(results.evaluate_runs(evaluator, done))
    titles = {method: study.title_of(method) for method in curves.METHODS}
    curves.draw(points, titles, out / "enough.png")
    said = curves.sentence(points)
    body = {"set": source, "env": where, "steps": steps, "seeds": seeds, "says": said}
    body["points"] = [point._asdict() for point in points]
    write_atomically(out / "enough.json", json.dumps(body, indent=1).encode() + b"\n")
    console.print(_table(points, titles))
    console.print(said)
    console.print(f"written: {out / 'enough.png'}, {out / 'enough.json'}")


def _table(points: list[Any], titles: dict[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, title="From unseen starts, greedy", title_justify="left")
    for column in ("demonstrations", "method", "reward", "violations per episode", "episodes with any"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for p in points:
        counts = ("–", "–") if p.violations is None else (f"{p.violations:.3f}", f"{p.violating:.1%}")
        table.add_row(str(p.demonstrations), titles[p.method], f"{p.reward:.2f}", *counts)
    return table
