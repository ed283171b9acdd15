"""`scopil play`: record demonstrations with the keyboard."""

from pathlib import Path
from typing import Annotated

import tyro

from scopil.cli.options import call, option
from scopil.config import checked_seed
from scopil.envs.naming import setting_id
from scopil.errors import ConfigError
from scopil.terminal import say
from scopil_studio import keyboard
from scopil_studio.keyboard import keys_for, marble_maze_keys


def main(argv: list[str]) -> None:
    call(play, "scopil play", argv)


def play(
    out: Annotated[Path, tyro.conf.arg(help="file to record into; an existing file is extended", metavar="FILE")],
    setting: Annotated[
        str | None, option(help="Marble Maze: simple (default), multiple or two-modes", metavar="SETTING")
    ] = None,
    live: Annotated[bool, option(help="real time; by default the environment waits for every key")] = False,
    episodes: Annotated[int | None, option(help="stop after this many kept episodes", metavar="N")] = None,
    seed: Annotated[int, tyro.conf.arg(help="seed of the starts", metavar="S")] = 0,
    env: Annotated[str | None, option(help="another Gymnasium environment", metavar="ID")] = None,
    keys: Annotated[
        str | None,
        option(help="the keys for --env: a=0,d=1, or a=-1:0,d=1:0 for actions of two numbers", metavar="KEY=ACTION,…"),
    ] = None,
) -> None:
    """Play episodes with the keyboard and choose which ones to keep. Each kept episode is saved immediately."""
    from scopil.envs.jax_env import make_env  # imports JAX

    checked_seed(seed)
    if episodes is not None and episodes < 1:
        raise ConfigError(f"--episodes {episodes}; want at least 1.")
    if env is not None and setting is not None:
        raise ConfigError("--setting is for Marble Maze and --env for another environment; give only one.")
    env_id = env or setting_id(setting or "simple")
    environment = make_env(env_id, render_mode="rgb_array")
    try:
        key_map = marble_maze_keys() if env is None and keys is None else keys_for(environment.action_space, keys)
        demos = keyboard.play(environment, out, keys=key_map, live=live, episodes=episodes, seed=seed, env_id=env_id)
    finally:
        environment.close()
    say("no episode kept" if demos is None else f"{out}: {len(demos)} episodes, {demos.pairs} steps")
