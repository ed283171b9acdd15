"""Train SCOPIL and SAC on Marble Maze for about two minutes, and look at what they do with an unwritten law.

python examples/first_run.py [--steps 100000] [--out out/first_run]
"""

import argparse
from pathlib import Path

from rich.console import Console

import scopil
from scopil.envs.functional import compile_env
from scopil.evaluate.games import replay
from scopil.evaluate.metrics import average, measure
from scopil.experiments.execute import execute_with_progress, prepare
from scopil.report.paths import save_panels
from scopil.report.tables import markdown_table, print_measures
from scopil.train.run import RunSpec

ENV, DEMOS = "scopil/MarbleMaze-Simple-v0", "marble-maze/simple-v1"


def main(steps: int, out: Path) -> None:
    console = Console()
    console.print(
        f"Two trainings of {steps:,} steps, one a core. The law is drawn on the tray; neither is told it."
    )
    runs = {
        name: prepare(
            out / name, RunSpec(algorithm=name, env=ENV, demos=DEMOS, steps=steps, checkpoint_every=20_000)
        )
        for name in ("scopil", "sac")
    }
    failed = execute_with_progress(list(runs.values()), workers=2)
    for folder, words in failed.items():
        console.print(f"{folder} failed: {words}")
    if failed:
        raise SystemExit(1)

    env, demos = compile_env(ENV), scopil.load_demos(DEMOS)
    games = {"demonstrations": replay(env, demos)}
    for run in runs.values():
        agent = scopil.load(run.folder)
        games[agent.algorithm.title] = agent.play("train")
    rows = {name: average([measure(g) for g in played]) for name, played in games.items()}
    print_measures(console, rows, f"40 games from the demonstrated starts, greedy, {steps:,} steps")
    (out / "table.md").write_text(markdown_table(rows))
    save_panels(out / "games.png", env.params, games)
    console.print(
        f"H and C count states across the line and in the circle. Written: {out}/table.md, {out}/games.png"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path("out/first_run"))
    main(**vars(parser.parse_args()))
