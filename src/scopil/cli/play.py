"""`scopil play`: a person at the keyboard becomes the demonstrator."""

from pathlib import Path
from typing import Annotated

import tyro

from scopil.cli.options import option
from scopil.cli.sets import env_id_of, make_drawn
from scopil.demos import keyboard as record
from scopil.demos.key_map import KeyMap, marble_maze_keys, parse_keys
from scopil.errors import ConfigError


def main(argv: list[str]) -> None:
    tyro.cli(play, prog="scopil play", args=argv, config=(tyro.conf.FlagCreatePairsOff,))


def play(
    out: Annotated[
        Path, tyro.conf.arg(help="file to record into; one that exists is continued", metavar="FILE")
    ],
    setting: Annotated[
        str | None, option(help="Marble Maze: simple (default), multiple or two-modes", metavar="SETTING")
    ] = None,
    live: Annotated[bool, option(help="real time; without it the game waits for every key")] = False,
    games: Annotated[int | None, option(help="stop after this many kept games", metavar="N")] = None,
    seed: Annotated[int, tyro.conf.arg(help="where the games start", metavar="S")] = 0,
    env: Annotated[
        str | None, option(help="another Gymnasium environment with Discrete actions", metavar="ID")
    ] = None,
    keys: Annotated[
        str | None, option(help="its keys, e.g. a=0,d=1 or up+left=4", metavar="KEY=ACTION,…")
    ] = None,
) -> None:
    """Play games by keyboard and keep the good ones. Every kept game is saved at once."""
    if games is not None and games < 1:
        raise ConfigError(f"--games {games}; want at least 1.")
    if env is not None and setting is not None:
        raise ConfigError("--setting is a Marble Maze and --env another environment: give one of them.")
    environment = make_drawn(env or env_id_of(setting or "simple"))
    try:
        key_map = _keys(keys, environment.action_space, own=env is None)
        demos = record.play(environment, out, keys=key_map, live=live, games=games, seed=seed, name=out.stem)
    finally:
        environment.close()
    print("nothing kept" if demos is None else f"{out}: {len(demos)} games, {demos.pairs} steps")


def _keys(text: str | None, actions: object, own: bool) -> KeyMap:
    if text is None and own:
        return marble_maze_keys()
    number = getattr(actions, "n", None)
    if number is None:
        raise ConfigError(f"keyboard play wants Discrete actions; this environment takes {actions}.")
    if text is None:
        raise ConfigError(
            f"--env needs --keys: which key plays which of the actions 0 … {number - 1} (--keys a=0,d=1)."
        )
    return parse_keys(text, int(number))
