"""Careful demonstrations on a tray of one's own."""

import jax
import numpy as np

from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.as_gym import FunctionalEnv
from scopil.envs.jax_env import CompiledEnv
from scopil.envs.marble_maze import MarbleMaze, MarbleParams
from scopil_bench.marble_maze.planner import Care, make_planner, plan


def demonstrate_tray(
    tray: MarbleParams,
    episodes: int = 20,
    *,
    clearance: float = 12.0,
    speed: float = 2.5,
    comfort: float = 20.0,
    seed: int = 0,
) -> Demonstrations:
    """Episodes of a careful player from random lawful starts on a tray.

    Args:
        tray: hole and constraints.
        episodes: how many; each takes about a second to plan.
        clearance: distance in px that the ball keeps to every forbidden region.
        speed: px per update that the ball does not exceed near one.
        comfort: distance in px below which being near a forbidden region is avoided.
        seed: of the starts.
    """
    maze = MarbleMaze(tray)
    player = make_planner(tray, Care(clearance=clearance, speed=speed, comfort=comfort))
    env, made = FunctionalEnv(CompiledEnv(maze)), []
    for key in jax.random.split(jax.random.key(seed), episodes):
        first = maze.initial(key)
        start = np.asarray(first.position)
        observations, rewards = [env.reset(options={"start": start})[0]], []
        actions, terminated = plan(player, first), False
        for action in actions:
            obs, reward, terminated, _, _ = env.step(int(action))
            observations.append(obs)
            rewards.append(reward)
        assert terminated, "a plan ends in the hole"
        made.append(
            Episode(observations=np.stack(observations), actions=actions, rewards=np.array(rewards), start=start)
        )
    return Demonstrations(
        episodes=tuple(made),
        observation_space=maze.observation_space,  # pyright: ignore[reportArgumentType]
        action_space=maze.action_space,  # pyright: ignore[reportArgumentType]
        name="own-tray",
    )
