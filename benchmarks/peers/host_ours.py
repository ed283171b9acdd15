"""SAC on a Gymnasium environment in Python, as a user trains it: one step, one update."""

import os
import sys

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")  # as `scopil train` sets it

import jax
from protocol import BATCH, REPLAY, serve

import scopil


def main(env: str, hidden: tuple[int, ...]) -> None:
    agent = scopil.SAC(env, hidden=hidden, batch_size=BATCH, replay_size=REPLAY, seed=0)

    def run(steps: int) -> None:
        agent.learn(steps)
        jax.block_until_ready(agent.state)

    run(BATCH + 10)
    serve(run, jax=jax.__version__, hidden=hidden)


if __name__ == "__main__":
    main(sys.argv[1], tuple(map(int, sys.argv[2:])))
