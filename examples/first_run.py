"""Train SCOPIL-ρ, SCOPIL, SAC and BC on Marble Maze for about five minutes, and compare their violations from
demonstrated and from unseen starts.

python examples/first_run.py [--steps 150000] [--out out/first_run]
"""

import argparse
from pathlib import Path

import scopil
import scopil_bench

ENV, DEMOS = "scopil/MarbleMaze-Simple-v0", "marble-maze/simple-v1"
METHODS = ["scopil-rho", "scopil", "sac", "bc"]


def main(steps: int, out: Path) -> dict[str, dict[str, float]]:
    print(f"Four trainings of {steps:,} steps. The pictures show the rules; no learner is given them.")
    runs = scopil_bench.train_runs(out, METHODS, ENV, DEMOS, steps=steps, checkpoint_every=20_000)
    env = scopil.open_env(ENV)
    demonstrated = scopil.replay(env, scopil.load_demos(DEMOS))
    rows = {"demonstrations": scopil.average(scopil.measure_all(demonstrated, env))}
    pictures = {"demonstrations": demonstrated}
    for run in runs:
        agent = scopil.load(run.folder)
        for starts in ("demonstrated", "unseen"):
            episodes = agent.play(starts)
            rows[f"{agent.algorithm.title}, {starts} starts"] = scopil.average(scopil.measure_all(episodes, env))
        pictures[f"{agent.algorithm.title}, unseen starts"] = episodes
    hidden = ("frequency", "length")
    few = {name: {k: v for k, v in row.items() if not k.startswith(hidden)} for name, row in rows.items()}
    scopil.print_measures(few, f"40 episodes each, greedy, {steps:,} steps")
    (out / "table.md").write_text(scopil.markdown_table(rows))
    scopil.save_episodes(out / "episodes.png", env, pictures)
    print(f"written: {out}/table.md, {out}/episodes.png")
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150_000)
    parser.add_argument("--out", type=Path, default=Path("out/first_run"))
    main(**vars(parser.parse_args()))
