"""Six SCOPIL runs as one compiled program: 2 seeds × 3 values of the slack δ.

The training loop is pure functions and a config's numbers are ordinary leaves, so `jax.vmap` sweeps both.

    python examples/sweep.py [STEPS]
"""

import itertools
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp

import scopil  # noqa: F401 (registers the environments)
from scopil.algos.scopil import ALGORITHM, Config
from scopil.config import build
from scopil.data.storage import load_demos
from scopil.envs.gym_env import compile_env
from scopil.train.loop import make_loop

SEEDS = (0, 1)
SLACKS = (0.0, 0.5, 1.5)  # nats of −log π(a|s) − αH that the policy may spend
SHOWN = {"dual/lambda": "lambda", "dual/constraint": "G", "demo/nll": "-log pi", "env/reward": "reward"}


def main(steps: int = 4_000) -> list[dict[str, float]]:
    """Train all six for `steps` steps each; the mean metrics of the last quarter."""
    env = compile_env("scopil/MarbleMaze-Simple-v0")
    loop = make_loop(ALGORITHM, env, load_demos("marble-maze/simple-v1"))
    sizes = {"batch_size": 64, "demo_batch_size": 64, "replay_size": 10_000}
    base = build(Config, sizes)

    def start(seed, slack):
        state = loop.init(jax.random.key(seed), replace(base, slack=slack))
        return loop.warm_up(state, base.batch_size)

    def run(state, slack, iterations):
        return loop.run(state, replace(base, slack=slack), iterations)

    grid = list(itertools.product(SEEDS, SLACKS))
    seeds, slacks = map(jnp.array, zip(*grid))
    run_all = jax.jit(jax.vmap(run, in_axes=(0, 0, None)))
    states = jax.jit(jax.vmap(start))(seeds, slacks)
    states, _ = run_all(states, slacks, steps - steps // 4)
    states, metrics = run_all(states, slacks, steps // 4)

    rows = []
    print(f"{'seed':>8} {'slack':>8} " + " ".join(f"{title:>8}" for title in SHOWN.values()))
    for i, (seed, slack) in enumerate(grid):
        rows.append({"seed": seed, "slack": slack} | {name: float(metrics[name][i]) for name in SHOWN})
        print(f"{seed:>8} {slack:>8.2f} " + " ".join(f"{rows[-1][name]:>8.3f}" for name in SHOWN))
    return rows


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
