"""`scopil render`: a game as a picture (its last frame, with the trail) or as an animation."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
import tyro

from scopil.cli.options import option
from scopil.cli.sets import env_id_of, make_drawn
from scopil.demos.dataset import Demonstrations, Episode
from scopil.demos.store import load_demos
from scopil.errors import ConfigError, EnvError
from scopil.images import write_gif, write_png


def main(argv: list[str]) -> None:
    tyro.cli(render, prog="scopil render", args=argv, config=(tyro.conf.FlagCreatePairsOff,))


def render(
    out: Annotated[Path, tyro.conf.arg(help="where to: game.png (last frame) or game.gif", metavar="FILE")],
    setting: Annotated[
        str | None, option(help="simple (default), multiple or two-modes", metavar="SETTING")
    ] = None,
    demos: Annotated[
        str | None,
        option(help="a shipped set, a file or minari:ID; default the setting's own", metavar="NAME"),
    ] = None,
    game: Annotated[int, tyro.conf.arg(help="which game of the set, from 0", metavar="K")] = 0,
    random: Annotated[bool, option(help="random actions instead of a demonstration")] = False,
    seed: Annotated[int, tyro.conf.arg(help="start and actions of the random game", metavar="S")] = 0,
) -> None:
    """Draw a demonstrated or a random game with the environment's own renderer."""
    if out.suffix.lower() not in (".png", ".gif"):
        raise ConfigError(f"{out}: want a name that ends in .png or .gif.")
    if demos is not None and (random or setting is not None):
        raise ConfigError("--demos names the game to draw: leave out --random and --setting.")
    if random:
        frames = list(random_game(env_id_of(setting or "simple"), seed))
    else:
        frames = list(demonstrated_game(load_demos(demos or f"marble-maze/{_known(setting)}-v1"), game))
    if out.suffix.lower() == ".png":
        write_png(out, frames[-1])
    else:
        write_gif(out, frames)
    print(f"{out}: {len(frames) - 1} steps")


def _known(setting: str | None) -> str:
    env_id_of(setting or "simple")
    return setting or "simple"


def demonstrated_game(demos: Demonstrations, index: int) -> Iterator[np.ndarray]:
    if demos.env_id is None or demos.starts is None:
        raise EnvError(
            f"{demos.name} does not say which environment or where its games start: it cannot be drawn."
        )
    if not 0 <= index < len(demos):
        raise ConfigError(f"{demos.name} has no game {index}; want 0 … {len(demos) - 1}.")
    episode: Episode = demos.episodes[index]
    env = make_drawn(demos.env_id)
    env.reset(seed=0, options={"start": episode.start})
    yield _picture(env)
    for action in episode.actions:
        env.step(action)
        yield _picture(env)
    env.close()


def random_game(env_id: str, seed: int) -> Iterator[np.ndarray]:
    env = make_drawn(env_id)
    env.reset(seed=seed)
    env.action_space.seed(seed)
    yield _picture(env)
    over = False
    while not over:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        over = terminated or truncated
        yield _picture(env)
    env.close()


def _picture(env: gym.Env) -> Any:
    return env.render()
