"""`scopil demos`: list, show, generate, check, export and import sets of demonstrations."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from scopil.cli import sets
from scopil.cli.options import option
from scopil.demos import store
from scopil.demos.dataset import Demonstrations
from scopil.envs.registration import IDS
from scopil.errors import DatasetError, EnvError

Source = Annotated[
    tyro.conf.Positional[str],
    tyro.conf.arg(help="a shipped set, a .npz, a folder of .csv or minari:ID", metavar="NAME"),
]
Out = Annotated[Path, tyro.conf.arg(help="file to write, .npz", metavar="FILE")]
LABELS = {"reward": "reward a game", "steps": "steps a game", "length": "length a game, px"}


def main(argv: list[str]) -> int | None:
    return tyro.extras.subcommand_cli_from_dict(
        {
            "list": list_sets,
            "show": show,
            "generate": generate,
            "check": check,
            "export": export,
            "import": import_,
        },
        prog="scopil demos",
        description="Sets of demonstrations: the shipped ones, your own files, and Minari's.",
        args=argv,
        config=(tyro.conf.FlagCreatePairsOff,),
    )


def list_sets() -> None:
    """The sets that come with scopil."""
    table = Table(box=None, pad_edge=False)
    for column in ("name", "games", "pairs", "steps"):
        table.add_column(column, justify="left" if column == "name" else "right", no_wrap=True)
    table.add_column("environment")
    for name, path in store.library().items():
        demos = store.read(path)
        steps = demos.statistics()["steps"]
        table.add_row(name, str(len(demos)), str(demos.pairs), f"{steps:.1f}", demos.env_id)
    _console().print(table)
    print("\nscopil demos show NAME says more; scopil.load_demos(NAME) loads one.")


def show(
    name: Source,
    plot: Annotated[
        Path | None, option(help="also draw all games on the tray (png, pdf, svg)", metavar="FILE")
    ] = None,
) -> None:
    """A set's statistics, beside the paper's where there are any, and the laws it breaks."""
    _show(store.load_demos(name), plot)


def _show(demos: Demonstrations, plot: Path | None = None) -> None:
    from scopil.evaluate.games import replay

    env = sets.replayable(demos)
    draw = None if plot is None else _drawing(demos, env, plot)
    games = None if env is None else replay(env, demos)
    console = _console()
    console.print(f"{demos.name}  ({demos.env_id or 'no environment named'})", style="bold")
    for key, value in demos.about.items():
        said = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        console.print(f"  {key}: {said}", soft_wrap=True)
    console.print()
    console.print(_statistics(demos, games))
    if games is None:
        console.print("not replayed: that needs starts and an environment that can be put at them")
    else:
        console.print(f"unlawful states: {sets.unlawful(demos, games)}", soft_wrap=True)
    if draw is not None:
        draw(games)
        console.print(f"drawn: {plot}", soft_wrap=True)


def _drawing(demos: Demonstrations, env: Any, plot: Path) -> Callable[[Any], None]:
    """What draws the games into `plot`; refuses before anything is played."""
    from scopil.report.paths import check_ending, save_paths
    from scopil.studies.marble_maze import MarbleParams

    check_ending(plot)
    if env is None or not isinstance(env.params, MarbleParams):
        raise EnvError(f"{demos.name} was not played on a Marble Maze tray: --plot cannot draw it.")
    return lambda games: save_paths(plot, env.params, games, title=f"{demos.name}: {len(demos)} games")


def _statistics(demos: Demonstrations, games: list | None) -> Table:
    paper = _paper_row(demos)
    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("")
    for column in ("mean", "std", "least", "most", *(("paper's", "std") if paper else ())):
        table.add_column(column, justify="right", no_wrap=True)
    for what, ours, theirs in (("games", len(demos), 40), ("pairs", demos.pairs, paper and paper.pairs)):
        table.add_row(what, str(ours), "", "", "", *((str(theirs), "") if paper else ()))
    rows = sets.measures(demos, games)
    for key, label in LABELS.items():
        if key not in rows[0]:
            continue
        values = np.array([r[key] for r in rows])
        row = [f"{v:.2f}" for v in (values.mean(), values.std(), values.min(), values.max())]
        if paper:
            mean, std = getattr(paper, key), getattr(paper, f"{key}_std")
            row += [f"{mean:.2f}", "–" if std is None else f"{std:.2f}"]
        table.add_row(label, *row)
    reached = f"{100 * np.mean([r['reached'] for r in rows]):.0f} %"
    table.add_row("ended by the task", reached)
    return table


def _paper_row(demos: Demonstrations):
    """By environment, so that one's own games are set beside the paper's people too."""
    from scopil.studies.marble_maze.table1 import TABLE_1  # brings JAX, which `list` can do without

    setting = {env_id: setting for setting, env_id in IDS.items()}.get(demos.env_id or "")
    return TABLE_1.get(f"marble-maze/{setting}-v1")


def generate(
    setting: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(help="simple, multiple or two-modes", metavar="SETTING")
    ],
    out: Out,
    seed: Annotated[int, tyro.conf.arg(help="the same seed makes the same games", metavar="S")] = 0,
    games: Annotated[int, tyro.conf.arg(help="how many games", metavar="N")] = 40,
) -> None:
    """Let the careful planner play a set of games (about a second each) and write them to a file."""
    sets.env_id_of(setting)
    _refuse_unwritable(out)
    from scopil.studies.marble_maze.generate import generate as make

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    screen = Console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task(f"{setting} games", total=games)
        demos = make(setting, seed, games, progress=lambda done, _: progress.update(task, completed=done))
    store.write(demos, out)
    _show(demos)
    print(f"written: {out}")


def _refuse_unwritable(out: Path) -> None:
    """Before the work, not after it."""
    if out.is_dir():
        raise DatasetError(f"{out} is a folder; want a file name such as {out / 'mine.npz'}.")


def check(
    source: Source,
    env: Annotated[str | None, option(help="also ask whether it fits an environment", metavar="ID")] = None,
) -> int:
    """Say in plain words what a set holds, what was assumed, and whether it is sound; exit code 2 when it is not."""
    bad = []
    for finding in sets.findings(source, env):
        print(f"{finding.mark:<5}{finding.what:<13}{finding.said}", flush=True)
        bad += [] if finding.good else [finding.what]
    if bad:
        raise DatasetError(f"{source}: not sound: {', '.join(bad)}.")
    return 0


def export(
    file: Source,
    minari: Annotated[str, tyro.conf.arg(help="(namespace/)name-v0", metavar="ID")],
    overwrite: Annotated[bool, option(help="replace a dataset of that id")] = False,
) -> None:
    """Make a local Minari dataset of a set, without loss."""
    from scopil.demos.minari import to_minari

    demos = store.load_demos(file)
    folder = to_minari(demos, minari, overwrite=overwrite)
    print(f"{minari}: {len(demos)} games, {demos.pairs} pairs in {folder}")


def import_(
    source: Source,
    out: Out,
    env: Annotated[
        str | None, option(help="the environment it was played on; sets the spaces", metavar="ID")
    ] = None,
    name: Annotated[str | None, option(help="another name for the set", metavar="NAME")] = None,
) -> None:
    """Turn what others have written (tables, plain arrays, Minari's datasets) into our own sealed file."""
    _refuse_unwritable(out)
    demos = store.load_demos(source)
    if env is not None:
        demos = _played_on(demos, env)
    if name is not None:
        demos = replace(demos, name=name)
    store.write(demos, out)
    for said in demos.about.get("assumed", []):
        print(f"assumed: {said}")
    print(f"{out}: {len(demos)} games, {demos.pairs} pairs, {demos.observation_space}, {demos.action_space}")


def _played_on(demos: Demonstrations, env_id: str) -> Demonstrations:
    """The same games in the spaces of a named environment, checked anew."""
    from scopil.demos.fit_to_env import fit  # these bring JAX
    from scopil.envs.functional import make_env

    if (fitted := fit(demos, env_id)) is not demos:
        return replace(fitted, env_id=env_id)
    env = make_env(env_id)
    observations, actions = env.observation_space, env.action_space
    env.close()
    return replace(demos, observation_space=observations, action_space=actions, env_id=env_id)  # type: ignore[arg-type]


def _console() -> Console:
    return Console(highlight=False, markup=False)  # names and provenance may hold brackets
