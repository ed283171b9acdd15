"""Are several seeds in one program (`jax.vmap`) faster than one after the other? Processor time per step and seed.

taskset -c 0 .venv/bin/python benchmarks/seeds_at_once.py [--seeds 1 2 4] [--rounds 6] [--steps 2000]
"""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import scopil  # noqa: F401  registers the environments
from scopil.algos import scopil as printed
from scopil.algos import scopil_rho
from scopil.config import build
from scopil.data.storage import load_demos
from scopil.envs.jax_env import compile_env
from scopil.files import write_atomically
from scopil.train.loop import make_loop

RESULT = Path(__file__).parent / "results" / "seeds_at_once.json"
ENV, DEMOS = "scopil/MarbleMaze-Simple-v0", "marble-maze/simple-v1"
METHODS: dict[str, tuple[Any, dict[str, Any]]] = {"SCOPIL": (printed, {}), "SCOPIL-ρ": (scopil_rho, {})}


def contender(module: Any, settings: dict[str, Any], seeds: int, steps: int):
    """What trains so many seeds for `steps` further steps."""
    cfg = build(module.Config, settings | {"replay_size": 100_000})
    loop = make_loop(module.ALGORITHM, compile_env(ENV), load_demos(DEMOS))

    def start(seed: Any) -> Any:
        return loop.warm_up(loop.init(jax.random.key(seed), cfg), cfg.batch_size)

    def run(state: Any, iterations: Any) -> Any:
        return loop.run(state, cfg, iterations)[0]

    one = seeds == 1
    state = jax.jit(start if one else jax.vmap(start))(0 if one else jnp.arange(seeds))
    advance = jax.jit(run if one else jax.vmap(run, in_axes=(0, None)), donate_argnums=0)
    while True:
        state = jax.block_until_ready(advance(state, steps))
        yield


def main(seeds: list[int], rounds: int, steps: int) -> None:
    racers = {(name, n): contender(*METHODS[name], n, steps) for name in METHODS for n in seeds}
    spent: dict[tuple[str, int], list[float]] = {racer: [] for racer in racers}
    for racer in racers.values():
        next(racer)  # compiled
    for _ in range(rounds):
        for racer, advance in racers.items():
            begin = time.process_time()
            next(advance)
            spent[racer].append((time.process_time() - begin) / steps / racer[1] * 1e6)
    body: dict[str, Any] = {"rounds": rounds, "steps": steps}
    for (name, n), times in spent.items():
        body.setdefault(name, {})[str(n)] = min(times)
        print(f"{name}, {n} at once: {min(times):.0f} µs per step and seed", flush=True)
    write_atomically(RESULT, json.dumps(body, indent=1).encode() + b"\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=2_000)
    main(**vars(parser.parse_args()))
