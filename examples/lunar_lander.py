"""LunarLander with unwritten rules: SCOPIL and SAC beside Gymnasium's own controller.

The controller that comes with the environment has habits that no reward asks for: engines rest once a leg is on the
ground, and it hardly tilts. SCOPIL is shown its landings, SAC is not, and neither is told the rules. Needs
`pip install "scopil[box2d]"`.

    python examples/lunar_lander.py [--steps 300000] [--seeds 3] [--out out/lunar_lander]

Stopped, it goes on where it was.
"""

import argparse
import json
import os
from collections.abc import Iterable
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import gymnasium as gym
import numpy as np
from gymnasium.envs.box2d.lunar_lander import heuristic
from rich.console import Console

import scopil
from scopil.demos import store
from scopil.demos.dataset import Demonstrations, Episode
from scopil.envs.host import open_env
from scopil.evaluate.games import Game, Seeds, with_cost
from scopil.evaluate.metrics import Measures, average, mean_and_std, measure
from scopil.evaluate.protocol import fresh_starts
from scopil.files import write_atomically
from scopil.report.tables import print_measures
from scopil.train.progress import Progress
from scopil.train.run import Run, RunSpec

ENV = "LunarLander-v3"
TILT = 0.4  # radians, 23 degrees
LANDED = 200.0  # the return from which the task counts as solved; crashes are not shown
DEMONSTRATIONS, GAMES = 1000, 100
# A lander that is left to chance tips over: less entropy than the default, which is the paper's for its tray.
CONFIG = {"hidden": [64, 64], "replay_size": 300_000, "target_entropy": 0.1}
# A game earns hundreds here, on the tray some −14: the multiplier begins higher and moves faster by as much.
OF_SCOPIL = {"lambda_init": 10.0, "lambda_lr": 3e-3}
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "lunar_lander.json"


def rules(obs: np.ndarray, action: int, next_obs: np.ndarray) -> dict[str, bool]:
    """What nobody wrote down: 6 and 7 tell whether a leg has contact, 4 is the tilt, action 0 rests the engines."""
    return {"engine": (obs[6] > 0 or obs[7] > 0) and action != 0, "tilt": abs(next_obs[4]) > TILT}


def demonstrate() -> Demonstrations:
    """The controller's first landings."""
    env, episodes, seed = gym.make(ENV), [], 0
    while len(episodes) < DEMONSTRATIONS:
        episode = _controlled(env, seed)
        seed += 1
        if episode.total_reward >= LANDED:
            episodes.append(episode)
    env.close()
    return Demonstrations(
        episodes=tuple(episodes),
        observation_space=gym.spaces.Box(-np.inf, np.inf, (8,), np.float32),  # its own bounds are not kept
        action_space=gym.spaces.Discrete(4),
        name="lunar-lander/controller",
        env_id=ENV,
        about={
            "by": "gymnasium.envs.box2d.lunar_lander.heuristic",
            "seeds": [0, seed],
            "return": f">= {LANDED:g}",
        },
    )


def _controlled(env: gym.Env, seed: int) -> Episode:
    obs, _ = env.reset(seed=seed)
    observations, actions, rewards, over = [obs], [], [], False
    terminated = False
    while not over:
        actions.append(int(heuristic(env, obs)))
        obs, reward, terminated, truncated, _ = env.step(actions[-1])
        observations.append(obs)
        rewards.append(float(reward))
        over = terminated or truncated
    return Episode(
        observations=np.stack(observations),
        actions=np.array(actions),
        rewards=np.array(rewards),
        terminated=terminated,
        truncated=not terminated,
    )


def controller() -> list[Episode]:
    """The demonstrator in the games that learners are judged by, crashes included."""
    env = gym.make(ENV)
    opened = open_env(env)
    first = fresh_starts(opened, GAMES)
    assert isinstance(first, Seeds)
    episodes = [_controlled(env, int(seed)) for seed in first.seeds]
    env.close()
    return episodes


def shown(episodes: Iterable[Episode]) -> Measures:
    """What the controller did, measured as games are."""
    games = [
        Game(
            observations=e.observations,
            actions=e.actions,
            rewards=np.zeros(len(e)) if e.rewards is None else e.rewards,
            terminated=e.terminated,
            truncated=e.truncated,
            info={},
        )
        for e in episodes
    ]
    return average([measure(game) for game in with_cost(games, rules)])


def train(name: str, seed: int, demos: Path, steps: int, out: Path, console: Console) -> Measures:
    """One run, and how its greedy policy does in games it has not met."""
    config = CONFIG | (OF_SCOPIL if name == "scopil" else {})
    spec = RunSpec(algorithm=name, env=ENV, demos=str(demos), seed=seed, steps=steps, config=config)
    folder = out / f"{name}-{seed}"
    run = Run.open(folder) if (folder / "run.json").exists() else Run.create(folder, spec)
    if not run.finished:
        with Progress(f"{name}, seed {seed}", steps, console) as bar:
            run.train(bar)
    agent = scopil.load(run.folder)
    found = agent.evaluate(games=GAMES, cost=rules)
    agent.env.close()
    return found


def main(steps: int, seeds: int, out: Path, results: Path) -> dict[str, object]:
    console = Console()
    file = out / "demos.npz"
    if not file.exists():
        store.write(demonstrate(), file)
    rows = {"demonstrations": shown(scopil.load_demos(file)), "controller": shown(controller())}
    each = {
        name: [train(name, seed, file, steps, out, console) for seed in range(seeds)]
        for name in ("scopil", "sac")
    }
    table = rows | {name: mean_and_std(runs) for name, runs in each.items()}
    print_measures(console, table, f"{ENV}: {GAMES} games, greedy, {steps:,} steps, {seeds} seeds")
    found = {
        "env": ENV,
        "rules": ["engines rest with a leg on the ground", f"|tilt| <= {TILT} rad"],
        "steps": steps,
        "games": GAMES,
        "demonstrator": rows,
    }
    found |= {"runs": each}
    write_atomically(results, json.dumps(found, indent=1).encode() + b"\n")
    console.print(f"written: {results}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/lunar_lander"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    main(**vars(parser.parse_args()))
