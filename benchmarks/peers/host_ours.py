"""An algorithm of scopil on a Gymnasium environment in Python, as a user trains it: one step, one update."""

import argparse
import os

from scopil.xla_flags import XLA_FLAGS

os.environ.setdefault("XLA_FLAGS", XLA_FLAGS)  # as `scopil train` sets it

import gymnasium as gym
import jax
import numpy as np
from protocol import BATCH, REPLAY, serve

import scopil
from scopil.registry import find


def random_demos(env: str, episodes: int = 5) -> scopil.Demonstrations:
    """Episodes of random actions: an update takes the same time with any demonstrations."""
    made, observations, actions = gym.make(env), [], []
    made.action_space.seed(0)
    for seed in range(episodes):
        obs, _ = made.reset(seed=seed)
        seen, taken, over = [obs], [], False
        while not over:
            taken.append(made.action_space.sample())
            obs, _, terminated, truncated, _ = made.step(taken[-1])
            seen.append(obs)
            over = terminated or truncated
        observations.append(np.stack(seen))
        actions.append(np.stack(taken))
    return scopil.Demonstrations.from_arrays(observations, actions, action_space=made.action_space)


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("env")
    cli.add_argument("hidden", type=int, nargs="+")
    cli.add_argument("--algorithm", default="sac")
    cli.add_argument("--overlap", action="store_true")
    args = cli.parse_args()
    algorithm = find(args.algorithm)
    demos = random_demos(args.env) if algorithm.needs_demos else None
    sizes = {"hidden": tuple(args.hidden), "batch_size": BATCH, "replay_size": REPLAY, "overlap": args.overlap}
    agent = scopil.Agent(algorithm, args.env, demos, seed=0, **sizes)

    def run(steps: int) -> None:
        agent.learn(steps)
        jax.block_until_ready(agent.state)

    run(BATCH + 10)
    serve(run, jax=jax.__version__, hidden=args.hidden)


if __name__ == "__main__":
    main()
