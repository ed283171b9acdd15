"""How long `agent.predict` takes for one observation: the best of many calls, in microseconds.

python benchmarks/predict.py [--calls 2000]
"""

import argparse
import time

import numpy as np

import scopil

AGENTS = {
    "SAC, CartPole-v1": (scopil.SAC, "CartPole-v1"),
    "PPO, CartPole-v1": (scopil.PPO, "CartPole-v1"),
    "SCOPIL, Pendulum-v1": (scopil.SCOPIL, "Pendulum-v1"),
}


def best_seconds(agent: scopil.Agent, deterministic: bool, calls: int) -> float:
    obs = np.zeros(agent.env.observation_space.shape or (), np.float32)
    taken = []
    for _ in range(calls):
        begun = time.perf_counter()
        agent.predict(obs, deterministic=deterministic)
        taken.append(time.perf_counter() - begun)
    return min(taken)


def main(calls: int) -> None:
    print(f"{'':>22} {'greedy':>8} {'sampled':>8}   µs")
    for name, (cls, env) in AGENTS.items():
        agent = cls(env, seed=0)
        times = [best_seconds(agent, deterministic, calls) for deterministic in (True, False)]
        print(f"{name:>22} " + " ".join(f"{1e6 * t:>8.1f}" for t in times))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    main(**vars(parser.parse_args()))
