"""`scopil report RUN…`: training curves, trajectories and a table of what the policies do.

Of a folder that `scopil reproduce` filled it writes the report card."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import Progress

from scopil.cli.options import option
from scopil.cli.reproduce import is_reproduction, report_card
from scopil.errors import ConfigError
from scopil.files import write_atomically
from scopil.report.curves import behaviour_panels, inner_panels, new_figure, save_curves
from scopil.report.runs import Played, evaluation_rows, grouped, play_all, save_beliefs, save_trays
from scopil.report.tables import markdown_table, print_measures
from scopil.train.run import Run


def main(argv: list[str]) -> None:
    tyro.cli(report, prog="scopil report", args=argv, config=(tyro.conf.FlagCreatePairsOff,))


def report(
    runs: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(help="run folders, or one folder of scopil reproduce", metavar="RUN…"),
    ],
    out: Annotated[
        Path | None,
        option("where pictures and report.md go; default: the one run's folder, or ./report", "DIR"),
    ] = None,
) -> None:
    """Draw runs: seeds of one algorithm become a mean with a band, algorithms colours."""
    if not runs:
        raise ConfigError("no run folders; want at least one: scopil report RUN…")
    new_figure()  # refuses before minutes of play when matplotlib is missing
    if len(runs) == 1 and is_reproduction(runs[0]):
        if out is not None:
            raise ConfigError(f"the card of {runs[0]} is written there; leave --out away.")
        return report_card(runs[0], Console())
    opened = [Run.open(folder) for folder in dict.fromkeys(runs)]
    for run in opened:
        run.newest_policy()
    out = out or (opened[0].folder if len(opened) == 1 else Path("report"))
    console = Console()
    played = _play(opened, console)
    text = ["# Report\n"]
    envs = list(dict.fromkeys(run.spec.env for run in opened))
    for env in envs:
        mine = [p for p in played if p.run.spec.env == env]
        tail = f"-{_slug(env.rpartition('/')[2])}" if len(envs) > 1 else ""
        text.append(_section(env, mine, out, tail, console))
    write_atomically(out / "report.md", "\n".join(text).encode())
    console.print(f"written: {out / 'report.md'} and its pictures")


def _play(runs: Sequence[Run], console: Console) -> list[Played]:
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("playing", total=len(runs))
        return list(play_all(runs, lambda: bar.advance(task)))


def _section(env: str, played: Sequence[Played], out: Path, tail: str, console: Console) -> str:
    """Pictures and table of the runs on one environment; returns its part of report.md."""
    groups = grouped([p.run for p in played])
    of = {id(p.run): p for p in played}
    together = {name: [of[id(run)] for run in runs] for name, runs in groups.items()}
    metrics = {name: [run.metrics.rows() for run in runs] for name, runs in groups.items()}
    pictures = [(f"curves{tail}.png", "Evaluations while training (greedy)")]
    save_curves(out / pictures[0][0], metrics, behaviour_panels(metrics), env)
    if inner := inner_panels(metrics):
        pictures.append((f"inner{tail}.png", "Inside the learner"))
        save_curves(out / pictures[1][0], metrics, inner, env)
    for name, group in together.items():
        file = f"games-{_slug(name)}{tail}.png"
        if save_trays(out / file, name, group):
            pictures.append((file, f"Games of {name} (greedy; unlawful states red)"))
        file = f"constraint-{_slug(name)}{tail}.png"
        if save_beliefs(out / file, group):
            pictures.append(
                (file, f"Where {name} believes the law runs (blue), and where it does (red outline)")
            )
    rows = evaluation_rows(together)
    print_measures(console, rows, title=env)
    lines = [
        f"## {env}\n",
        markdown_table(rows),
        "Mean over games, then mean ± standard deviation over seeds.\n",
    ]
    lines += [f"![{caption}]({file})\n" for file, caption in pictures]
    runs = [p.run for p in played]
    return "\n".join([*lines, _list_of_runs(runs), *filter(None, map(_backward_steps, runs))])


def _list_of_runs(runs: Sequence[Run]) -> str:
    lines = ["| run | algorithm | seed | steps | |", "|---|---|---|---|---|"]
    for run in runs:
        rows = run.metrics.rows()
        done = rows[-1]["env_steps"] if rows else 0
        state = "finished" if run.finished else f"of {run.spec.steps:,}, unfinished"
        lines.append(f"| {run.folder} | {run.spec.algorithm} | {run.spec.seed} | {done:,} | {state} |")
    return "\n".join(lines) + "\n"


def _backward_steps(run: Run) -> str | None:
    """How far the KL bounds let the constraint move; None for a run that learns none."""
    rows = run.metrics.rows()
    last = rows[-1] if rows else {}
    if "constraint/all_steps" not in last:
        return None
    steps, phases = last["constraint/all_steps"], last["constraint/phases"]
    most = phases * run.note()["config"]["backward_iters"]
    return f"{run.folder}: {steps:.0f} backward steps really made in {phases:.0f} phases, of at most {most:.0f}.\n"


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.=]+", "-", name.lower()).strip("-")
