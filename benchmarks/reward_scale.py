"""SCOPIL-ρ on the corridor with its reward multiplied by 0.001, 1 and 1 000: violations from unseen starts.

    python benchmarks/reward_scale.py      writes results/reward_scale.json

Three seeds, 20 000 steps, 200 unseen starts.
"""

import json
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import jax
import numpy as np

import scopil
from scopil_bench.studies.rules import ENVS, corridor, demonstrations

OUT = Path(__file__).parents[1] / "results" / "reward_scale.json"
SCALES, SEEDS, STEPS, EPISODES = (0.001, 1.0, 1_000.0), range(3), 20_000, 200


def run(scale: float, seed: int) -> dict[str, float]:
    demos = demonstrations("corridor")
    scaled = tuple(replace(e, rewards=scale * np.asarray(e.rewards)) for e in demos.episodes)
    env = gym.wrappers.TransformReward(gym.make(ENVS["corridor"]), lambda reward: scale * float(reward))
    agent = scopil.SCOPILRho(env, replace(demos, episodes=scaled), seed=seed).learn(STEPS)
    found = {"scale": scale, "seed": seed}
    for name, greedy in (("greedy", True), ("sampled", False)):
        m = agent.evaluate("unseen", EPISODES, deterministic=greedy, rules=corridor.RULES)
        found |= {f"{name}/violations": m["violations"], f"{name}/reward": m["reward"] / scale}
    jax.clear_caches()
    return found


def main() -> None:
    rows = []
    for seed in SEEDS:
        for scale in SCALES:
            rows.append(run(scale, seed))
            print(rows[-1], flush=True)
    OUT.write_text(json.dumps({"version": scopil.__version__, "runs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
