"""SCOPIL as a user runs it: the compiled loop on Marble Maze, replay of a million."""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")  # as `scopil train` sets it

import jax
import jax.numpy as jnp
import numpy as np
from protocol import ACTIONS, BATCH, HIDDEN, OBS, REPLAY, serve

from scopil.algos.base import Pairs
from scopil.algos.scopil import ALGORITHM, Config
from scopil.demos.store import load_demos
from scopil.envs.functional import compile_env
from scopil.errors import ScopilError
from scopil.train.offpolicy import OffPolicy


def demonstrations() -> tuple[Pairs, str]:
    """The shipped set; its size and shapes are all that matters here, so random pairs do where there is none."""
    try:
        shipped = load_demos("marble-maze/simple-v1")
        return pairs(shipped.observations, shipped.actions), "marble-maze/simple-v1"
    except ScopilError:
        rng = np.random.default_rng(0)
        obs = rng.uniform(-1, 1, (850, OBS)).astype(np.float32)
        return pairs(obs, rng.integers(ACTIONS, size=850)), "850 random pairs"


def pairs(obs: np.ndarray, action: np.ndarray) -> Pairs:
    return Pairs(jnp.asarray(obs), jnp.asarray(action, jnp.int32))


def main() -> None:
    demos, name = demonstrations()
    env = compile_env("scopil/MarbleMaze-Simple-v0")
    loop = OffPolicy(ALGORITHM, env, demos)
    cfg = Config(hidden=HIDDEN, batch_size=BATCH, demo_batch_size=BATCH, replay_size=REPLAY)
    state = loop.start(jax.random.key(0), cfg)

    def run(blocks: int) -> None:
        nonlocal state
        state, metrics = loop.run_blocks(state, cfg, blocks)
        jax.block_until_ready((state, metrics))

    run(1)  # ready means: the first gradient step is done
    serve(run, jax=jax.__version__, numpy=np.__version__, demos=name, xla_flags=os.environ["XLA_FLAGS"])


if __name__ == "__main__":
    main()
