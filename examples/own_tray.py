"""A law of your own: draw it on the tray, let the careful player show it, and see who keeps it.

python examples/own_tray.py [--steps 100000] [--games 20] [--out out/own_tray]
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import numpy as np
from rich.console import Console
from rich.progress import track

import scopil
from scopil import (
    Circle,
    CompiledEnv,
    Demonstrations,
    Episode,
    HorizontalLine,
    MarbleMaze,
    MarbleParams,
    Rectangle,
)
from scopil.envs.gym import FunctionalEnv
from scopil.evaluate.games import replay
from scopil.evaluate.metrics import average, measure
from scopil.report.paths import save_panels
from scopil.report.tables import print_measures
from scopil.studies.marble_maze.planner import Care, make_player, plan

TRAY = MarbleParams(
    (
        HorizontalLine(-160.0),
        Rectangle(-60.0, -50.0, 40.0, 25.0),
        Circle(70.0, 10.0, 35.0),
        Circle(-90.0, 70.0, 30.0),
    )
)
CARE = Care(clearance=12.0, speed=2.5, comfort=20.0)


def demonstrate(tray: MarbleParams, games: int) -> Demonstrations:
    """Careful games from random lawful starts."""
    maze, player = MarbleMaze(tray), make_player(tray, CARE)
    env, episodes = FunctionalEnv(CompiledEnv(maze)), []
    for key in track(jax.random.split(jax.random.key(0), games), "demonstrating", transient=True):
        first = maze.initial(key)
        start = np.asarray(first.position)
        observations, rewards = [env.reset(options={"start": start})[0]], []
        actions = plan(player, first)
        for action in actions:
            obs, reward, terminated, _, _ = env.step(int(action))
            observations.append(obs)
            rewards.append(reward)
        assert terminated, "a plan ends in the hole"
        episodes.append(
            Episode(
                observations=np.stack(observations), actions=actions, rewards=np.array(rewards), start=start
            )
        )
    return Demonstrations(
        episodes=tuple(episodes),
        observation_space=maze.observation_space,
        action_space=maze.action_space,
        name="own-tray",
    )


def main(steps: int, games: int, out: Path) -> dict[str, dict[str, float]]:
    env, demos = CompiledEnv(MarbleMaze(TRAY)), demonstrate(TRAY, games)
    played = {"demonstrations": replay(env, demos)}
    for agent in (scopil.SCOPIL(env, demos, seed=0), scopil.SAC(env, demos, seed=0)):
        agent.learn(steps, progress_bar=True)
        played[agent.algorithm.title] = agent.play("train")
    rows = {name: average([measure(game) for game in mine]) for name, mine in played.items()}
    print_measures(Console(), rows, f"{games} games from the demonstrated starts, greedy, {steps:,} steps")
    save_panels(out / "games.png", TRAY, played)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--games", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("out/own_tray"))
    main(**vars(parser.parse_args()))
