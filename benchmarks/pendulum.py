"""SAC on Gymnasium's own compiled Pendulum, five seeds; solved means a mean return of −200.

taskset -c 0 .venv/bin/python benchmarks/pendulum.py
"""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
os.environ["JAX_PLATFORMS"] = "cpu"

import json
import time
from pathlib import Path

import scopil
from scopil.files import write_atomically

RESULT = Path(__file__).parent / "results" / "pendulum.json"
SEEDS, STEPS, GAMES = 5, 50_000, 100


def main() -> None:
    rows = []
    for seed in range(SEEDS):
        begun = time.perf_counter()
        agent = scopil.SAC("phys2d/Pendulum-v0", seed=seed)
        agent.learn(STEPS)
        row = {"seconds": round(time.perf_counter() - begun, 1)}
        for mode in ("greedy", "sampled"):
            row[mode] = agent.evaluate(games=GAMES, deterministic=mode == "greedy")["reward"]
        rows.append(row)
        print(f"seed {seed}: {row}", flush=True)
    means = {name: sum(row[name] for row in rows) / SEEDS for name in rows[0]}
    print(f"mean of {SEEDS} seeds after {STEPS:,} steps: {means}")
    body = {"steps": STEPS, "games": GAMES, "mean": means, "seeds": rows}
    write_atomically(RESULT, json.dumps(body, indent=1).encode() + b"\n")


if __name__ == "__main__":
    main()
