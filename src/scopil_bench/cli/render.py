"""`scopil render`: draw episodes of a policy or of demonstrations as a picture or a film."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import gymnasium as gym
import numpy as np
import tyro

from scopil.cli.options import RulesOption, TrustEnv, call, option
from scopil.cli.waiting import counting
from scopil.config import checked_seed
from scopil.data.dataset import Demonstrations
from scopil.data.storage import library, load_demos
from scopil.envs.naming import id_in_file
from scopil.errors import ConfigError, EnvError
from scopil.terminal import Console, say
from scopil_bench.images import write_gif, write_mp4, write_png


def main(argv: list[str]) -> None:
    call(render, "scopil render", argv)


def render(
    out: Annotated[Path, tyro.conf.arg(help="film.mp4, film.gif or picture.png (the last frame)", metavar="FILE")],
    run: Annotated[tyro.conf.Positional[Path | None], option("a run folder or a saved agent to play", "RUN")] = None,
    episodes: Annotated[int, tyro.conf.arg(help="episodes of RUN, from unseen starts", metavar="N")] = 1,
    policy: Annotated[Literal["greedy", "sampled"], tyro.conf.arg(help="how RUN chooses actions")] = "greedy",
    rules: RulesOption = None,
    fps: Annotated[float, tyro.conf.arg(help="frames per second", metavar="X")] = 12.0,
    demos: Annotated[str | None, option(help="a shipped set, a file or minari:ID", metavar="NAME")] = None,
    episode: Annotated[int, tyro.conf.arg(help="number of the episode in the set, from 0", metavar="K")] = 0,
    seed: Annotated[int, tyro.conf.arg(help="seed of the unseen starts", metavar="S")] = 0,
    trust_env: TrustEnv = False,
) -> None:
    """Draw episodes with the environment's renderer. Films of a RUN show a time line per rule below the picture, red
    at violations."""
    if out.suffix.lower() not in _WRITERS:
        raise ConfigError(f"--out {out}; want a name that ends in .mp4, .gif or .png.")
    for what, value in (("episodes", episodes), ("fps", fps)):
        if value <= 0:
            raise ConfigError(f"--{what} {value:g}; want more than 0.")
    checked_seed(seed)
    if run is not None:
        if demos is not None:
            raise ConfigError(f"{run} and --demos {demos}; want one of them.")
        if run.suffix in (".npz", ".csv", ".hdf5") or str(run) in library():
            raise ConfigError(f"{run} is a set of demonstrations; want a run. Draw the set with --demos {run}.")
        return _draw_policy(run, out, episodes, policy == "greedy", seed, rules, fps, trust_env)
    if demos is None:
        raise ConfigError("nothing to draw; give a run, or a set of demonstrations with --demos NAME.")
    frames = list(demonstrated_episode(load_demos(demos), episode, trust_env))
    _write(out, frames, fps)
    say(f"{out}: {len(frames) - 1} steps")


_WRITERS = {".png": lambda out, frames, fps: write_png(out, frames[-1]), ".gif": write_gif, ".mp4": write_mp4}


def _write(out: Path, frames: Sequence[np.ndarray], fps: float) -> None:
    _WRITERS[out.suffix.lower()](out, frames, fps)


def _draw_policy(
    path: Path, out: Path, episodes: int, greedy: bool, seed: int, rules: str | None, fps: float, trust_env: bool
) -> None:
    """Draw episodes of a trained policy with their violations, and print their measures."""
    from scopil.eval.measures import average, measure_all
    from scopil.eval.rules import by_own_rules, load_rules, with_rules
    from scopil.eval.starts import UNSEEN_SEED
    from scopil.eval.tables import print_measures, rules_not_known, with_bounds
    from scopil.loading import load
    from scopil_bench import film

    agent = load(path, trust_env=trust_env)
    counted = agent.rules_of_run() if rules is None else load_rules(rules)
    if agent.env_id is None:
        raise EnvError(f"{path} does not name its environment, so it cannot be drawn.")
    env = _make_env(agent.env_id if agent.run is None else agent.run.env_name())
    seeds = np.random.default_rng([UNSEEN_SEED, seed]).integers(2**31, size=episodes).tolist()
    console = Console()
    with counting("episodes played", episodes, console) as advance:
        shots, played = film.play(
            env, agent.env, lambda obs: agent.predict(obs, deterministic=greedy)[0], seeds, lambda: advance(1)
        )
    env.close()
    judged = by_own_rules(agent.env, played) if counted is None else with_rules(played, counted, agent.env)
    _write(out, film.with_time_lines(shots, judged), fps)
    rows = {f"{agent.algorithm.title}, {len(judged)} episodes": average(measure_all(judged, agent.env))}
    print_measures({name: with_bounds(row, len(judged)) for name, row in rows.items()}, console=console)
    if unknown := rules_not_known(rows):
        say(unknown)
    say(f"{out}: {len(shots)} frames of {sum(len(e) for e in judged)} steps")


def demonstrated_episode(demos: Demonstrations, index: int, trust_env: bool = False) -> Iterator[np.ndarray]:
    """The frames of a demonstrated episode, replayed."""
    if demos.env_id is None or demos.starts is None:
        raise EnvError(f"{demos.name} cannot be drawn: want its environment and its starts, as `scopil play` records.")
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


def _make_env(env_id: str) -> gym.Env:
    from scopil.envs.jax_env import make_env  # imports JAX

    return make_env(env_id, render_mode="rgb_array")


def _frame(env: gym.Env) -> np.ndarray:
    from scopil_bench.film import picture_of  # imports JAX

    return picture_of(env)
