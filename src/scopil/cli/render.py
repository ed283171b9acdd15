"""`scopil render`: an episode as a picture (its last frame, with the trail) or as an animation."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
import tyro

from scopil.cli.options import TrustEnv, call, option
from scopil.cli.play import setting_id
from scopil.demos.dataset import Demonstrations
from scopil.demos.store import load_demos
from scopil.envs.trust import id_in_file
from scopil.errors import ConfigError, EnvError
from scopil.images import write_gif, write_png


def main(argv: list[str]) -> None:
    call(render, "scopil render", argv)


def render(
    out: Annotated[Path, tyro.conf.arg(help="episode.png (last frame) or episode.gif", metavar="FILE")],
    setting: Annotated[
        str | None, option(help="Marble Maze: simple (default), multiple or two-modes", metavar="SETTING")
    ] = None,
    demos: Annotated[
        str | None,
        option(
            help="a shipped set, a file or minari:ID; by default the shipped one of --setting", metavar="NAME"
        ),
    ] = None,
    episode: Annotated[int, tyro.conf.arg(help="which episode of the set, from 0", metavar="K")] = 0,
    random: Annotated[bool, option(help="random actions instead of a demonstration")] = False,
    seed: Annotated[int, tyro.conf.arg(help="start and actions of a random episode", metavar="S")] = 0,
    trust_env: TrustEnv = False,
) -> None:
    """Draw a demonstrated or a random episode with the environment's own renderer."""
    if out.suffix.lower() not in (".png", ".gif"):
        raise ConfigError(f"--out {out}; want a name that ends in .png or .gif.")
    if demos is not None and (random or setting is not None):
        raise ConfigError("--demos names the set to draw from; remove --random and --setting.")
    env_id = setting_id(setting or "simple")
    if random:
        frames = list(random_episode(env_id, seed))
    else:
        shown = load_demos(demos or f"marble-maze/{setting or 'simple'}-v1")
        frames = list(demonstrated_episode(shown, episode, trust_env))
    if out.suffix.lower() == ".png":
        write_png(out, frames[-1])
    else:
        write_gif(out, frames)
    print(f"{out}: {len(frames) - 1} steps")


def demonstrated_episode(demos: Demonstrations, index: int, trust_env: bool = False) -> Iterator[np.ndarray]:
    """The frames of a demonstrated episode, played again."""
    if demos.env_id is None or demos.starts is None:
        raise EnvError(
            f"{demos.name} does not record its environment or its starts, so it cannot be drawn; import it with "
            f"`scopil demos import --env ID`, or record it with `scopil play`."
        )
    if not 0 <= index < len(demos):
        raise ConfigError(f"--episode {index}; {demos.name} has episodes 0 … {len(demos) - 1}.")
    shown = demos.episodes[index]
    env = _make_env(id_in_file(demos.env_id, demos.name, trust_env))
    env.reset(seed=0, options={"start": shown.start})
    yield _frame(env)
    for action in shown.actions:
        env.step(action)
        yield _frame(env)
    env.close()


def random_episode(env_id: str, seed: int) -> Iterator[np.ndarray]:
    """The frames of an episode with random actions."""
    env = _make_env(env_id)
    env.reset(seed=seed)
    env.action_space.seed(seed)
    yield _frame(env)
    over = False
    while not over:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        over = terminated or truncated
        yield _frame(env)
    env.close()


def _make_env(env_id: str) -> gym.Env:
    from scopil.envs.functional import make_env  # imports JAX

    return make_env(env_id, render_mode="rgb_array")


def _frame(env: gym.Env) -> Any:
    return env.render()
