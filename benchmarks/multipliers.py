"""Do the multipliers converge with noisy demonstrations? λ and μ over the last quarter of training.

taskset -c 0 .venv/bin/python benchmarks/multipliers.py [--only half-random pendulum s-eic] [--seeds 0 1 2]

half-random: Marble Maze, Simple; every second action of the planner is replaced by a random one after which a lawful
way to the hole remains. pendulum: Pendulum-v1 with a scripted expert whose torque has noise of a quarter of its range.
s-eic: the ablation without entropy in the constraint, on simulated players' demonstrations. A result is written after
every run; results that exist are not computed again.
"""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import simulated_players
from rich.progress import track

import scopil
from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.marble_maze import MarbleMaze
from scopil.envs.marble_maze.constraints import SETTINGS
from scopil.envs.naming import IDS
from scopil.errors import DivergedError
from scopil.files import write_atomically
from scopil_bench.marble_maze.generate import as_set, draw_starts, replay

RESULT = Path(__file__).parent / "results" / "multipliers.json"
MULTIPLIERS = ("dual/lambda", "occupancy/mu")
PIECE = 2_000


def half_random(share: float = 0.5, seed: int = 0) -> Demonstrations:
    """Lawful episodes with a share of random actions."""
    rng = np.random.default_rng(seed)
    habit = simulated_players.draw_crowd("simple", seed)[0]
    starts, made = draw_starts("simple", seed, 40), []
    for planned in track(starts, "demonstrations"):
        taste = simulated_players.make_taste("simple", habit, planned.side)
        state = MarbleMaze(SETTINGS["simple"]).initial_at(planned.start)
        actions: list[int] = []
        ahead: list[int] = []
        fallen = False
        while not fallen:
            ahead = ahead or simulated_players.wished(taste, state) or []
            action = ahead.pop(0)
            if rng.uniform() < share:
                lawful = (a for a in rng.permutation(9).tolist() if simulated_players.keeps_lawful(taste, state, a))
                action, ahead = next(lawful, action), []
            actions.append(action)
            state, fallen, _ = simulated_players._after(taste.planners[-1], state, action)
        made.append(replay("simple", planned, np.array(actions)))
    return as_set("simple", "half-random", starts, made, {"seed": seed, "random": share})


def swing_up(noise: float = 0.5, episodes: int = 20) -> Demonstrations:
    """Scripted expert: adds energy until the top is near, then a spring and a damper; torque with Gaussian noise."""
    env, rng, made = gym.make("Pendulum-v1"), np.random.default_rng(0), []
    for number in range(episodes):
        seen, actions, rewards, over = [env.reset(seed=10_000 + number)[0]], [], [], False
        while not over:
            cos, sin, speed = seen[-1]
            if cos > 0.9:
                torque = -10.0 * np.arctan2(sin, cos) - 2.0 * speed
            else:
                energy = speed**2 / 6.0 + 5.0 * cos - 5.0  # 0 at rest on top
                torque = 2.0 if (speed >= 0) == (energy < 0) else -2.0
            actions.append(np.clip([torque + noise * rng.normal()], -2.0, 2.0).astype(np.float32))
            obs, reward, terminated, over, _ = env.step(actions[-1])
            seen.append(obs)
            rewards.append(reward)
        made.append(
            Episode(
                observations=np.array(seen),
                actions=np.array(actions),
                rewards=np.array(rewards, np.float32),
                terminated=terminated,
                truncated=over,
            )
        )
    return Demonstrations(
        episodes=tuple(made),
        observation_space=env.observation_space,
        action_space=env.action_space,
        name="noisy-swing-up",
    )


@dataclass(frozen=True)
class Task:
    methods: dict[str, Callable[..., Any]]
    env: str
    demos: Callable[[], Any]
    steps: int


TASKS = {
    "half-random": Task({"SCOPIL-ρ": scopil.SCOPILRho, "BC": scopil.BC}, IDS["simple"], half_random, 300_000),
    "pendulum": Task({"SCOPIL-ρ": scopil.SCOPILRho, "BC": scopil.BC}, "Pendulum-v1", swing_up, 50_000),
    "s-eic": Task({"S-EiC": scopil.SEiC}, IDS["simple"], lambda: "marble-maze/simple-simulated-v1", 300_000),
}


def run(task: Task, method: Callable[..., Any], demos: Any, seed: int) -> dict[str, Any]:
    agent = method(task.env, demos, seed=seed)
    if method is scopil.BC:
        agent.learn(20_000)
        return scored(agent)
    late: dict[str, list[float]] = {}
    newest: dict[str, float] = {}
    try:
        while agent.num_timesteps < task.steps:
            agent.learn(PIECE, callback=lambda status: newest.update(status.metrics))
            if agent.num_timesteps > 0.75 * task.steps:
                for name in MULTIPLIERS:
                    if name in newest:
                        late.setdefault(name, []).append(newest[name])
    except DivergedError as error:
        return {"diverged": str(error)}
    return {name: [min(v), float(np.mean(v)), max(v)] for name, v in late.items()} | scored(agent)


def scored(agent: Any) -> dict[str, Any]:
    rows = {}
    for mode in ("greedy", "sampled"):
        figures = agent.evaluate("unseen", episodes=200, deterministic=mode == "greedy")
        rows[mode] = {k: float(figures[k]) for k in ("reward", "violations") if k in figures}
    return rows


def main(only: list[str], seeds: list[int], result: Path) -> None:
    body: dict[str, Any] = json.loads(result.read_text()) if result.exists() else {}
    for name in only:
        task, rows = TASKS[name], body.setdefault(name, {})
        demos = task.demos()
        if isinstance(demos, Demonstrations):
            rows["demonstrator"] = demos.statistics()
            print(name, rows["demonstrator"], flush=True)
        for title, method in task.methods.items():
            for seed in seeds:
                if (key := f"{title}, seed {seed}") not in rows:
                    rows[key] = run(task, method, demos, seed)
                    write_atomically(result, json.dumps(body, indent=1).encode() + b"\n")
                    print(name, key, rows[key], flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(TASKS), default=sorted(TASKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--result", type=Path, default=RESULT)
    main(**vars(parser.parse_args()))
