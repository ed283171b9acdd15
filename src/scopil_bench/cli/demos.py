"""`scopil demos`: the commands of `scopil.cli.demos`, and `generate` and `enough`, which need the bench."""

from typing import Annotated, Literal

import tyro

from scopil.cli.demos import COMMANDS, Out, print_set, progress, refuse_unwritable
from scopil.cli.options import call, option
from scopil.config import checked_seed
from scopil.data import storage
from scopil.envs.registration import setting_id
from scopil.errors import ConfigError
from scopil_bench.cli.enough import enough


def main(argv: list[str]) -> int | None:
    return call(
        COMMANDS | {"generate": generate, "enough": enough},
        "scopil demos",
        argv,
        description="Sets of demonstrations: the shipped ones, your own files, and Minari's.",
    )


def generate(
    setting: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(help="simple, multiple or two-modes", metavar="SETTING")
    ],
    out: Out,
    seed: Annotated[int, tyro.conf.arg(help="the same seed gives the same episodes", metavar="S")] = 0,
    episodes: Annotated[int, tyro.conf.arg(help="number of episodes", metavar="N")] = 40,
    player: Annotated[
        Literal["planner", "simulated"], option(help="a careful planner, or ten simulated players with mistakes")
    ] = "planner",
) -> None:
    """Write a Marble Maze set played by a planner or by simulated players (a second or two per episode)."""
    setting_id(setting)
    checked_seed(seed)
    if episodes < 1:
        raise ConfigError(f"--episodes {episodes}; want at least 1.")
    refuse_unwritable(out)
    from scopil_bench.marble_maze import generate as planner
    from scopil_bench.marble_maze import simulated_players

    make = simulated_players.play_set if player == "simulated" else planner.generate
    with progress(f"{setting} episodes", episodes) as shown:
        demos = make(setting, seed, episodes, progress=lambda done, _: shown(done))
    storage.write(demos, out)
    print_set(demos)
    print(f"written: {out}")
