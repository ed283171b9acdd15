"""Is SCOPIL anywhere worse than cloning? Three small tasks that others wrote, each with a scripted expert and a rule.

taskset -c 0 .venv/bin/python benchmarks/never_worse.py [--seeds 0 1 2 3 4] [--only cartpole …]

CartPole keeps to the middle (|x| < 0.5), CliffWalking keeps one row away from the cliff, Acrobot keeps its second joint
below a speed. Nobody is told the rule. A result is written after every run and what is there already is not run again.
"""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import scopil
from scopil.demos.dataset import Demonstrations, Episode
from scopil.envs.functional import CompiledEnv, compile_env
from scopil.envs.host import open_env
from scopil.files import write_atomically

RESULT = Path(__file__).parent / "results" / "never_worse.json"
STEPS = (10_000, 20_000, 50_000)
METHODS = {
    "BC": scopil.BC,
    "SCOPIL-ρ": scopil.SCOPILRho,
    "SCOPIL": scopil.SCOPIL,
    "SCOPIL as printed": partial(scopil.SCOPIL, as_printed=True),
}
EPISODES = 100


@dataclass(frozen=True)
class Task:
    make: Callable[[], Any]
    expert: Callable[[np.ndarray], int]
    rule: Callable[[np.ndarray, Any, np.ndarray], float]
    demonstrations: int


# --- CartPole: x, its speed, the angle, its speed ---------------------------------------------------------------------


def balance(obs: np.ndarray) -> int:
    return int(obs @ np.array([0.5, 1.0, 8.0, 2.0]) > 0)


def off_the_middle(obs: np.ndarray, action: Any, next_obs: np.ndarray) -> float:
    return float(abs(next_obs[0]) >= 0.5)


# --- CliffWalking: 4 rows of 12; from the lower left to the lower right, the cliff between them -----------------------


def around(obs: np.ndarray) -> int:
    """Up to the second row, along it, and down: 0 up, 1 right, 2 down, 3 left."""
    row, column = divmod(int(np.argmax(obs)), 12)
    if column == 11:
        return 2
    return 1 if row <= 1 else 0


def beside_the_cliff(obs: np.ndarray, action: Any, next_obs: np.ndarray) -> float:
    row, column = divmod(int(np.argmax(next_obs)), 12)
    return float(row >= 2 and 0 < column < 11)


# --- Acrobot: cos and sin of two angles, two speeds -------------------------------------------------------------------


def pump(obs: np.ndarray) -> int:
    """Torque with the first joint's motion adds energy."""
    return 0 if obs[4] > 0 else 2


def too_fast(obs: np.ndarray, action: Any, next_obs: np.ndarray) -> float:
    return float(abs(next_obs[5]) > 12.5)


TASKS = {
    "cartpole": Task(lambda: compile_env("phys2d/CartPole-v1"), balance, off_the_middle, 10),
    "cliffwalking": Task(
        lambda: CompiledEnv(compile_env("tabular/CliffWalking-v0").env, max_episode_steps=200),
        around,
        beside_the_cliff,
        10,
    ),
    "acrobot": Task(lambda: open_env("Acrobot-v1"), pump, too_fast, 40),
}


def demonstrate(task: Task, env: Any) -> Demonstrations:
    """Played from starts of their own: evaluations have other seeds."""
    advance = jax.jit(env.advance_batch)
    episodes = []
    for number in range(task.demonstrations):
        state, rows = env.reset_batch(jax.random.key(10_000 + number), 1), []
        while not rows or not (rows[-1].terminated[0] or rows[-1].truncated[0]):
            action = np.array([task.expert(np.asarray(state.obs[0]))], np.int32)
            state, transition = advance(state, action, jax.random.key(len(rows)))
            rows.append(jax.tree.map(np.asarray, transition))
        episodes.append(
            Episode(
                observations=np.concatenate([rows[0].obs, *(r.next_obs for r in rows)]),
                actions=np.concatenate([r.action for r in rows]),
                rewards=np.concatenate([r.reward for r in rows]),
                terminated=bool(rows[-1].terminated[0]),
                truncated=bool(rows[-1].truncated[0]),
            )
        )
    return Demonstrations(
        episodes=tuple(episodes),
        observation_space=env.observation_space,
        action_space=env.action_space,
        name="expert",
    )


def scores(episodes: Any, rule: Any) -> dict[str, float]:
    broken = [
        sum(rule(o, a, n) for o, a, n in zip(e.observations[:-1], e.actions, e.observations[1:]))
        for e in episodes
    ]
    return {
        "return": float(np.mean([e.rewards.sum() for e in episodes])),
        "violations": float(np.mean(broken)),
        "episodes with any": float(np.mean([b > 0 for b in broken])),
    }


def main(tasks: list[str], seeds: list[int], result: Path) -> None:
    body = json.loads(result.read_text()) if result.exists() else {}
    for name in tasks:
        task = TASKS[name]
        env = task.make()
        demos = demonstrate(task, env)
        rows = body.setdefault(name, {})
        rows["demonstrator"] = scores(demos, task.rule)
        print(name, "demonstrator", rows["demonstrator"], flush=True)
        for title, method in METHODS.items():
            for seed in seeds:
                key = f"{title}, seed {seed}"
                if key in rows:
                    continue
                agent = method(env, demos, seed=seed)
                at = {}
                for steps in STEPS:
                    agent.learn(steps - agent.num_timesteps)
                    at[str(steps)] = {
                        mode: scores(
                            agent.play("unseen", EPISODES, deterministic=mode == "greedy"), task.rule
                        )
                        for mode in ("greedy", "sampled")
                    }
                rows[key] = at
                write_atomically(result, json.dumps(body, indent=1).encode() + b"\n")
                print(name, key, {s: a["greedy"] for s, a in at.items()}, flush=True)
    print("\n".join(table(body)))


def table(body: dict[str, Any], mode: str = "greedy") -> list[str]:
    """Return and violations per episode, means over seeds, after so many steps."""
    lines = ["| | seeds |" + "".join(f" {steps:,} |" for steps in STEPS), "|---" * (2 + len(STEPS)) + "|"]
    for name, rows in body.items():
        shown = rows["demonstrator"]
        lines += [f"| **{name}**, demonstrator {shown['return']:.4g}, {shown['violations']:.3g} |" + " |" * 4]
        for title in METHODS:
            mine = [at for key, at in rows.items() if key.startswith(f"{title}, seed")]
            if mine:
                cells = [
                    ", ".join(
                        f"{np.mean([at[str(n)][mode][what] for at in mine]):.4g}"
                        for what in ("return", "violations")
                    )
                    for n in STEPS
                ]
                lines += [f"| {title} | {len(mine)} | {' | '.join(cells)} |"]
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--only", nargs="+", choices=sorted(TASKS), default=sorted(TASKS))
    parser.add_argument("--result", type=Path, default=RESULT)
    args = parser.parse_args()
    main(args.only, args.seeds, args.result)
