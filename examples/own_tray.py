"""Custom rules: define them on the tray, let the planner demonstrate them, and compare SCOPIL with SAC.

python examples/own_tray.py [--steps 100000] [--episodes 20] [--out out/own_tray]
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import scopil
import scopil_bench

TRAY = scopil.MarbleParams(
    (
        scopil.HorizontalLine(-160.0),
        scopil.Rectangle(-60.0, -50.0, 40.0, 25.0),
        scopil.Circle(70.0, 10.0, 35.0),
        scopil.Circle(-90.0, 70.0, 30.0),
    )
)


def main(steps: int, episodes: int, out: Path) -> dict[str, dict[str, float]]:
    env = scopil.CompiledEnv(scopil.MarbleMaze(TRAY))
    demos = scopil_bench.demonstrate_tray(TRAY, episodes)
    played = {"demonstrations": scopil.replay(env, demos)}
    for agent in (scopil.SCOPIL(env, demos, seed=0), scopil.SAC(env, demos, seed=0)):
        agent.learn(steps, progress_bar=True)
        played[agent.algorithm.title] = agent.play("demonstrated")
    rows = {name: scopil.average(scopil.measure_all(mine, env)) for name, mine in played.items()}
    scopil.print_measures(rows, f"{episodes} episodes from the demonstrated starts, greedy, {steps:,} steps")
    scopil.save_episodes(out / "episodes.png", env, played)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("out/own_tray"))
    main(**vars(parser.parse_args()))
