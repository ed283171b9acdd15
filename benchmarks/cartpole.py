"""PPO on Gymnasium's compiled CartPole, five seeds. Target: mean return 475.

.venv/bin/python benchmarks/cartpole.py
"""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
os.environ["JAX_PLATFORMS"] = "cpu"

import json
from pathlib import Path

import scopil
from scopil.files import write_atomically

RESULT = Path(__file__).parent / "results" / "cartpole.json"
SEEDS, STEPS, EPISODES = 5, 300_000, 40


def main() -> None:
    rows = []
    for seed in range(SEEDS):
        agent = scopil.PPO("phys2d/CartPole-v1", seed=seed)
        agent.learn(STEPS)
        rows.append(
            {m: agent.evaluate(episodes=EPISODES, deterministic=m == "greedy")["reward"] for m in ("sampled", "greedy")}
        )
        print(f"seed {seed}: {rows[-1]}", flush=True)
    means = {m: sum(row[m] for row in rows) / SEEDS for m in rows[0]}
    print(f"mean of {SEEDS} seeds after {STEPS:,} steps: {means}")
    body = {"steps": STEPS, "episodes": EPISODES, "mean": means, "seeds": rows}
    write_atomically(RESULT, json.dumps(body, indent=1).encode() + b"\n")


if __name__ == "__main__":
    main()
