"""SCOPIL as a user runs it: the compiled loop on Marble Maze, replay of a million."""

import os

from scopil.xla_flags import XLA_FLAGS

os.environ.setdefault("XLA_FLAGS", XLA_FLAGS)  # as `scopil train` sets it

import jax
import numpy as np
from protocol import BATCH, HIDDEN, REPLAY, serve

from scopil.algos.scopil import ALGORITHM, Config
from scopil.config import build
from scopil.data.storage import load_demos
from scopil.envs.gym_env import compile_env
from scopil.train.loop import make_loop

DEMOS = "marble-maze/simple-v1"


def main() -> None:
    loop = make_loop(ALGORITHM, compile_env("scopil/MarbleMaze-Simple-v0"), load_demos(DEMOS))
    sizes = {"hidden": HIDDEN, "batch_size": BATCH, "demo_batch_size": BATCH, "replay_size": REPLAY}
    cfg = build(Config, sizes)
    state = loop.start(jax.random.key(0), cfg)

    def run(iterations: int) -> None:
        nonlocal state
        state, metrics = loop.run_iterations(state, cfg, iterations)
        jax.block_until_ready((state, metrics))

    run(1)  # ready means: the first gradient step is done
    serve(run, jax=jax.__version__, numpy=np.__version__, demos=DEMOS, xla_flags=os.environ["XLA_FLAGS"])


if __name__ == "__main__":
    main()
