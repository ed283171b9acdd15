"""Where the processor time of a SAC step goes: the step, the step without one of its parts, and its matrix products.

taskset -c 0 .venv/bin/python benchmarks/step_profile.py [--rounds 8]

All variants run in one process, in alternating rounds; ratios of their best rounds are valid on a machine with other
load. A part's time is the difference between the step and the step without this part.
"""

import os

from scopil.xla_flags import XLA_FLAGS

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {XLA_FLAGS}"
os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from typing import Any
from unittest import mock

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium.experimental.functional import FuncEnv

import scopil
from scopil.algos import sac
from scopil.envs.jax_env import CompiledEnv
from scopil.losses import soft
from scopil.nn import gradient
from scopil.train import loop

OBS, ACTIONS, BATCH = 4, 2, 256
Run = Callable[[int], Any]  # makes a number of steps


class Point(gym.Env):
    """A point mass in Python, with continuous or discrete actions."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
    directions = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]], np.float32)

    def __init__(self, continuous: bool):
        self.action_space = gym.spaces.Box(-1, 1, (ACTIONS,), np.float32) if continuous else gym.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state, self.steps = np.append(self.np_random.uniform(-1, 1, 2), [0.0, 0.0]), 0
        return self.state.astype(np.float32), {}

    def step(self, action: Any) -> Any:
        force = action if np.ndim(action) else self.directions[action]
        speed = 0.9 * self.state[2:] + 0.1 * force
        self.state = np.append(np.clip(self.state[:2] + 0.1 * speed, -2, 2), speed)
        self.steps += 1
        return self.state.astype(np.float32), -float(np.abs(self.state[:2]).sum()), False, self.steps >= 200, {}


class CompiledPoint(FuncEnv):
    """The same point mass in JAX."""

    observation_space = Point.observation_space

    def __init__(self, continuous: bool):
        super().__init__()
        self.action_space = Point(continuous).action_space

    def initial(self, rng: Any, params: Any = None) -> Any:
        return jnp.append(jax.random.uniform(rng, (2,), minval=-1.0), jnp.zeros(2))

    def transition(self, state: Any, action: Any, rng: Any, params: Any = None) -> Any:
        force = action if action.ndim else jnp.asarray(Point.directions)[action]
        speed = 0.9 * state[2:] + 0.1 * force
        return jnp.append(jnp.clip(state[:2] + 0.1 * speed, -2, 2), speed)

    def observation(self, state: Any, rng: Any, params: Any = None) -> Any:
        return state

    def reward(self, state: Any, action: Any, next_state: Any, rng: Any, params: Any = None) -> Any:
        return -jnp.abs(next_state[:2]).sum()

    def terminal(self, state: Any, rng: Any, params: Any = None) -> Any:
        return jnp.array(False)


def step(env: Any, hidden: tuple[int, ...], **settings: Any) -> Run:
    agent = scopil.SAC(env, hidden=hidden, batch_size=BATCH, seed=0, **settings)

    def run(steps: int) -> None:
        agent.learn(steps)

    run(BATCH + 10)
    return run


def no_noise(self: Any, key: Any, rows: int, demo_rows: int, head: Any) -> soft.Noise:
    zeros = jnp.zeros((rows, head.num_actions))
    return soft.Noise(zeros, zeros, zeros[:0])


def newest_rows(key: Any, *wanted: Any) -> Any:
    return tuple(jnp.arange(count, dtype=jnp.int32) for count, _ in wanted)


def variants(continuous: bool, hidden: tuple[int, ...]) -> dict[str, Run]:
    compiled = CompiledEnv(CompiledPoint(continuous), max_episode_steps=200)
    made = {
        "step": step(compiled, hidden),
        "with the environment in Python": step(lambda: Point(continuous), hidden),
        "without statistics of observations": step(compiled, hidden, normalise_obs=False),
    }
    plain = (optax.identity(),)
    parts: dict[str, list[tuple[Any, str, Any]]] = {
        "Adam": [(f, "__defaults__", plain) for f in (gradient.gradient_step, gradient.trainable)],
        "targets": [(sac, "track", lambda targets, critics, cfg: targets)],
        "random rows of the replay": [(loop, "uniform_indices", newest_rows)],
    }
    if continuous:
        parts["noise"] = [(soft.Reparametrised, "noise", no_noise)]
    for name, changes in parts.items():
        with ExitStack() as stack:
            for change in changes:
                stack.enter_context(mock.patch.object(*change))
            made[f"without {name}"] = step(compiled, hidden)
    return made | products(continuous, hidden)


def products(continuous: bool, hidden: tuple[int, ...]) -> dict[str, Run]:
    """The matrix products of a step, in NumPy and in XLA.

    Forward: π(s'), Q_ψ1, Q_ψ2, Q_φ1, Q_φ2, π(s), Q_φ1 and Q_φ2 after their step, and π(s) for α. Backward: Q_φ1, Q_φ2
    and π by weights and inputs; for continuous actions Q_φ1 and Q_φ2 after their step by inputs alone.
    """
    actor = (OBS, *hidden, 2 * ACTIONS if continuous else 4)
    critic = (OBS + ACTIONS, *hidden, 1) if continuous else (OBS, *hidden, 4)
    shapes: list[tuple[int, int, int]] = []  # (m, k) @ (k, n)
    for sizes, forward, backward, through in ((actor, 3, 1, 0), (critic, 6, 2, 2 if continuous else 0)):
        for depth, (n, m) in enumerate(pairwise(sizes)):
            shapes += [(m, n, BATCH)] * forward + [(m, BATCH, n)] * backward
            shapes += [(n, m, BATCH)] * (backward * (depth > 0) + through)
    rng = np.random.default_rng(0)
    pairs = [(rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)) for m, k, n in shapes]
    out = [np.empty((a.shape[0], b.shape[1]), np.float32) for a, b in pairs]

    def blas(steps: int) -> None:
        for _ in range(steps):
            for (a, b), c in zip(pairs, out):
                np.matmul(a, b, out=c)

    @jax.jit
    def looped(pairs: Any, steps: Any) -> Any:
        def body(_: Any, carry: Any) -> Any:
            # Every product is used, and depends on the step before.
            done = [(a + 0 * carry[1]) @ b for a, b in carry[0]]
            return carry[0], sum(c[0, 0] for c in done)

        return jax.lax.fori_loop(0, steps, body, (pairs, jnp.float32(0.0)))[1]

    device = jax.device_put(pairs)

    def xla(steps: int) -> None:
        jax.block_until_ready(looped(device, jnp.int32(steps)))

    for run in (blas, xla):
        run(2)
    return {"products alone, NumPy": blas, "products alone, XLA": xla}


def main(rounds: int) -> None:
    for continuous, hidden, steps in ((False, (32, 32), 1000), (True, (64, 64), 500), (True, (256, 256), 50)):
        runs = variants(continuous, hidden)
        spent: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, run in runs.items():
                begin = time.process_time()
                run(steps)
                spent[name].append((time.process_time() - begin) / steps * 1e6)
        whole = min(spent["step"])
        print(f"SAC, {'continuous' if continuous else 'discrete'}, {hidden}, batch {BATCH}:")
        for name, times in spent.items():
            print(f"  {name:36s} {min(times):8.1f} µs, {min(times) / whole:.2f} of the step")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    main(parser.parse_args().rounds)
