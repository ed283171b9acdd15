"""Steps per second of Marble Maze on one core: compiled batches, one Gymnasium environment, and a Python loop.

.venv/bin/python benchmarks/environment.py
"""

import os

# One core for everything; must be set before JAX starts its threads.
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
os.environ["JAX_PLATFORMS"] = "cpu"

import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym
import jax
import jaxlib
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rich.console import Console
from rich.table import Table

import scopil
from scopil.envs.gym_env import compile_env
from scopil.files import write_atomically

ENV_ID = "scopil/MarbleMaze-Simple-v0"
RESULT = Path(__file__).parent / "results" / "environment.json"
REPEATS = 60  # many short runs: the best are undisturbed
BATCH, BATCH_STEPS = 1024, 100
SINGLE_STEPS = 300
LOOP_ENVS, LOOP_STEPS = 64, 5
WANTED = {"compiled": 5e6, "single": 5e3}


class Rate(NamedTuple):
    """Steps per second of wall time and of processor time."""

    wall: float
    cpu: float


def best_rate(steps: int, run: Callable[[], object]) -> Rate:
    """The fastest of many runs: other load only slows a run down."""
    run()  # compiles
    wall, cpu = [], []
    for _ in range(REPEATS):
        begin = time.perf_counter(), time.process_time()
        run()
        wall.append(time.perf_counter() - begin[0])
        cpu.append(time.process_time() - begin[1])
    return Rate(steps / min(wall), steps / min(cpu))


def compiled_rate() -> Rate:
    """Batched stepping with random actions and autoreset, inside one compiled scan."""
    env = compile_env(ENV_ID)

    @jax.jit
    def play(state, key):
        def body(state, key):
            k_action, k_step = jax.random.split(key)
            action = jax.random.randint(k_action, (BATCH,), 0, 9)
            state, t, _ = env.step_batch(state, action, k_step)
            return state, t.reward.sum()  # used, so that the loop is not optimised away

        return jax.lax.scan(body, state, jax.random.split(key, BATCH_STEPS))

    state = jax.jit(lambda key: env.reset_batch(key, BATCH))(jax.random.key(0))
    return best_rate(BATCH * BATCH_STEPS, lambda: jax.block_until_ready(play(state, jax.random.key(1))))


def single_rate() -> Rate:
    """`gym.make(id)` with its wrappers, NumPy output and info at every step."""
    env = gym.make(ENV_ID)
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(9, size=SINGLE_STEPS)

    def run():
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return best_rate(SINGLE_STEPS, run)


def loop_rate() -> Rate:
    """Gymnasium's SyncVectorEnv: a Python loop over environments."""
    env = SyncVectorEnv([lambda: gym.make(ENV_ID)] * LOOP_ENVS, autoreset_mode=AutoresetMode.SAME_STEP)
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(9, size=(LOOP_STEPS, LOOP_ENVS))
    return best_rate(LOOP_ENVS * LOOP_STEPS, lambda: [env.step(row) for row in actions])


def main() -> None:
    load = os.getloadavg()[0]
    compiled, single, loop = compiled_rate(), single_rate(), loop_rate()
    table = Table("what", "environments", "steps / s", "steps / CPU s", "wanted", title="Marble Maze on one core")
    rows = [("compiled batches", BATCH, compiled, f"{WANTED['compiled']:,.0f}")]
    rows += [("gym.make, one env", 1, single, f"{WANTED['single']:,.0f}")]
    rows += [("SyncVectorEnv, Python loop", LOOP_ENVS, loop, "")]
    for what, count, rate, wanted in rows:
        table.add_row(what, str(count), f"{rate.wall:,.0f}", f"{rate.cpu:,.0f}", wanted)
    ratios = (f"{compiled.wall / loop.wall:,.0f} ×", f"{compiled.cpu / loop.cpu:,.0f} ×")
    table.add_row("compiled / Python loop", "", *ratios, "")
    Console().print(table)
    rates = {"compiled": compiled, "single": single, "loop": loop}
    result = {
        "env": ENV_ID,
        "steps_per_second": {name: round(rate.wall) for name, rate in rates.items()},
        "steps_per_cpu_second": {name: round(rate.cpu) for name, rate in rates.items()},
        "compiled_over_loop_cpu": round(compiled.cpu / loop.cpu),
        "environments": {"compiled": BATCH, "single": 1, "loop": LOOP_ENVS},
        "repeats": REPEATS,
        "load_average_at_start": round(load, 1),
        "cores_used": 1,
        "cores_in_machine": os.cpu_count(),
        "machine": platform.machine(),
        "versions": {
            "python": platform.python_version(),
            "scopil": scopil.__version__,
            "jax": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "numpy": np.__version__,
            "gymnasium": gym.__version__,
        },
    }
    write_atomically(RESULT, (json.dumps(result, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
