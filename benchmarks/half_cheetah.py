"""Half-cheetah with a wall: SCOPIL from the ICRL authors' expert games, SAC beside it.

python benchmarks/half_cheetah.py --data hc_with_pos_expert.npz [--steps 100000] [--seeds 3] [--workers 2]

The data file holds observations and actions [episodes, steps, ·], float32; it is not ours to ship. Its observations are
those *after* each step, and the last one of an episode is a reset: pairs are (observations[k], actions[k + 1]).
Stop it at any time; called again it goes on. Figures go to results/half_cheetah.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from rich.console import Console

import scopil
from scopil.demos import store
from scopil.demos.dataset import Demonstrations, Episode
from scopil.evaluate.metrics import Measures, mean_and_std
from scopil.experiments.execute import execute_with_progress, prepare
from scopil.files import write_atomically
from scopil.report.tables import print_measures
from scopil.train.run import Run, RunSpec

ENV = "scopil/HalfCheetahWall-v0"
GAMES = 20
RETURN, RATE = 3400.0, 0.005  # wanted: at least, at most
# δ between the 1.32 nats a component that cloning reaches on its own games and the 1.41 on others; tried on seed 100.
CONFIGS: dict[str, dict[str, Any]] = {"scopil": {"slack": 1.4}, "sac": {}}
RESULTS = Path(__file__).parent / "results" / "half_cheetah.json"


def demonstrations(data: Path) -> Demonstrations:
    with np.load(data, allow_pickle=False) as file:
        observations, actions = file["observations"], file["actions"]
    episodes = [
        Episode(observations=o[:-1], actions=a[1:-1], terminated=False, truncated=True)
        for o, a in zip(observations, actions)
    ]
    return Demonstrations(
        episodes=tuple(episodes),
        observation_space=gym.spaces.Box(-np.inf, np.inf, observations.shape[2:], np.float32),
        action_space=gym.spaces.Box(-1.0, 1.0, actions.shape[2:], np.float32),
        name="half-cheetah-wall/icrl-expert",
        env_id=ENV,
        about={"by": "the expert of Malik et al. (ICML 2021), 50 games of 500 steps"},
    )


def runs(name: str, demos: Path, steps: int, seeds: int, out: Path) -> list[Run]:
    return [
        prepare(
            out / f"{name}-{seed}",
            RunSpec(
                algorithm=name,
                env=ENV,
                demos=str(demos),
                seed=seed,
                steps=steps,
                eval_every=25_000,
                config={"replay_size": min(steps, 1_000_000)} | CONFIGS[name],
            ),
        )
        for seed in range(seeds)
    ]


def first_good(run: Run) -> dict[str, float] | None:
    """Steps and seconds until a first evaluation in training that met both wishes."""
    seconds = {row["env_steps"]: row["seconds"] for row in run.timing.rows()}
    for row in run.metrics.rows():
        if row.get("eval/reward", -np.inf) >= RETURN and row.get("eval/frequency", 1.0) <= RATE:
            return {"env_steps": row["env_steps"], "seconds": seconds[row["env_steps"]]}
    return None


def judge(run: Run) -> dict[str, Any]:
    """Greedy and sampled games where the wall is only law."""
    agent = scopil.load(run.folder)
    seconds = run.timing.rows()[-1]["seconds"]
    played = {
        policy: agent.evaluate(games=GAMES, deterministic=policy == "greedy")
        for policy in ("greedy", "sampled")
    }
    return played | {"first_good": first_good(run), "seconds": seconds}


def main(data: Path, steps: int, seeds: int, workers: int, out: Path) -> None:
    console = Console()
    demos = out / "demos.npz"
    if not demos.exists():
        store.write(demonstrations(data), demos)
    groups = {name: runs(name, demos, steps, seeds, out) for name in ("scopil", "sac")}
    todo = sorted((run for group in groups.values() for run in group), key=lambda run: run.spec.seed)
    failed = execute_with_progress(todo, workers, console)
    if failed:
        raise SystemExit("\n".join(f"{folder}: {words}" for folder, words in failed.items()))
    found = {name: {run.spec.seed: judge(run) for run in group} for name, group in groups.items()}
    table: dict[str, Any] = {}
    for name, each in found.items():
        for policy in ("greedy", "sampled"):
            rows: list[Measures] = [result[policy] for result in each.values()]
            table[f"{name}, {policy} ×{len(rows)}"] = mean_and_std(rows)
    print_measures(console, table, f"{ENV}, {steps:,} steps, {GAMES} games")
    body = {"steps": steps, "games": GAMES, "wanted": {"return": RETURN, "rate": RATE}, "results": found}
    write_atomically(RESULTS, json.dumps(body, indent=1).encode() + b"\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/half_cheetah"))
    main(**vars(parser.parse_args()))
