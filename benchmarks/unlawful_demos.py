"""Effect of unlawful demonstrations: six of the forty of Simple are replaced.

taskset -c 0 .venv/bin/python benchmarks/unlawful_demos.py [--seeds 0 1 2] [--steps 300000]

The six are planned from the same starts on a tray without the circle: those with the most steps in it. A result is
written after every run; results that exist are not computed again.
"""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import scopil
from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.marble_maze import MarbleMaze, MarbleParams
from scopil.envs.marble_maze.constraints import SIMPLE
from scopil.files import write_atomically
from scopil_bench.marble_maze.generate import RECIPES
from scopil_bench.marble_maze.planner import make_planner, plan

RESULT = Path(__file__).parent / "results" / "unlawful_demos.json"
ENV, DEMOS = "scopil/MarbleMaze-Simple-v0", "marble-maze/simple-v1"
REPLACED, EPISODES = 6, 1_000
METHODS = {"SCOPIL-ρ": scopil.SCOPILRho, "BC": scopil.BC}


def careless(demos: Demonstrations) -> list[Episode]:
    """One episode from every demonstrated start, planned without the circle and played with it."""
    line = SIMPLE.constraints[0]
    planner = make_planner(MarbleParams((line,)), RECIPES["simple"].care)
    env = scopil.open_env(ENV)
    made = []
    for shown in demos:
        assert shown.start is not None
        actions = plan(planner, MarbleMaze(SIMPLE).initial_at(shown.start))
        made.append(replace(shown, actions=actions.astype(shown.actions.dtype)))
    (played,) = [scopil.replay(env, replace(demos, episodes=tuple(_stretched(e) for e in made)))]
    return list(played)


def _stretched(episode: Episode) -> Episode:
    """An episode with enough observations for the new actions; `replay` computes the true ones."""
    rows = np.repeat(episode.observations[:1], len(episode.actions) + 1, axis=0)
    return replace(episode, observations=rows, rewards=np.zeros(len(episode.actions), np.float32))


def with_unlawful(demos: Demonstrations) -> tuple[Demonstrations, list[int]]:
    """The set with `REPLACED` episodes replaced, and their indices."""
    other = careless(demos)
    broken = np.array([np.sum(e.info["cost"][1:] > 0) for e in other])
    worst = np.argsort(-broken, kind="stable")[:REPLACED]
    episodes = [
        replace(other[i], info={}, start=shown.start) if i in worst else shown for i, shown in enumerate(demos.episodes)
    ]
    print(f"replaced {sorted(worst.tolist())}: {broken[worst].tolist()} violations")
    return replace(demos, episodes=tuple(episodes), name="six-unlawful"), sorted(worst.tolist())


def main(seeds: list[int], steps: int) -> None:
    demos, which = with_unlawful(scopil.load_demos(DEMOS))
    body: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    body |= {"replaced": which, "steps": steps, "episodes": EPISODES}
    rows = body.setdefault("runs", {})
    for title, method in METHODS.items():
        for seed in seeds:
            if (key := f"{title}, seed {seed}") in rows:
                continue
            agent = method(ENV, demos, seed=seed)
            agent.learn(steps if title != "BC" else 20_000, progress_bar=True)
            rows[key] = {}
            for starts in ("unseen", "demonstrated"):
                for mode in ("greedy", "sampled"):
                    count = EPISODES if starts == "unseen" else None
                    played = agent.play(starts, count, deterministic=mode == "greedy")
                    broken = np.array([np.sum(e.info["cost"] > 0) for e in played])
                    rows[key][f"{mode}/{starts}"] = {
                        "violations": float(broken.mean()),
                        "episodes with any": float((broken > 0).mean()),
                        "reward": float(np.mean([np.sum(e.rewards) for e in played])),
                    }
            write_atomically(RESULT, json.dumps(body, indent=1).encode() + b"\n")
            print(key, rows[key], flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=300_000)
    args = parser.parse_args()
    main(args.seeds, args.steps)
