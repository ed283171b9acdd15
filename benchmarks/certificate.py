"""Do the bounds of `scopil certify` hold, and does it refuse shifted starts?

    .venv/bin/python benchmarks/certificate.py [--sets 1000] [--tasks speed flag]

Two clones of 40 demonstrations, one trained for 500 and one for 5 000 steps, play 2 000 episodes on each task; the
demonstrator plays 2 000 too. These pools are the populations: sets of episodes are drawn from them with replacement,
so the true shares are known exactly. A bound holds if it is at least the true share. Tables are made from five sets of
demonstrations of each size. `naive` is the control: the empirical 0.9 quantile is taken for the true one.

Starts of a clone and of the demonstrator are mixed and drawn without replacement. Shifted ones are the half with the
larger first component, or have it moved by one standard deviation. The test has 199 exchanges here, 999 in a
certificate.
"""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import scopil
from scopil.certify import FAMILIAR, SHIFT_LEVEL, novelty_bound, novelty_scores
from scopil.data.dataset import Episode
from scopil.envs.gym_env import open_env
from scopil.eval import shift
from scopil.eval.measures import breaks_a_rule, clopper_pearson_upper
from scopil.eval.starts import unseen_starts
from scopil.files import write_atomically
from scopil_bench.studies.rules import ENVS, demonstrations

RESULT = Path(__file__).parent / "results" / "certificate.json"
SEED, POOL, TABLES, LEVEL = 200, 2_000, 5, 0.95
STEPS = (500, 5_000)  # of the clones
SIZES = ((20, 300), (20, 1_000), (100, 300), (100, 1_000), (500, 1_000))  # held-out demonstrations, episodes
SHOWN, PLAYED = 40, 300  # starts
STARTS = "refused, by shift of the starts"


def pools(task: str) -> tuple[list[Episode], dict[str, list[Episode]]]:
    """Episodes of the demonstrator, and of the clones by their steps."""
    shown = list(demonstrations(task, POOL, SEED))
    clones = {}
    for steps in STEPS:
        agent = scopil.BC(ENVS[task], demonstrations(task, seed=SEED + 1), seed=SEED)
        clones[f"{steps} steps"] = agent.learn(steps).play("unseen", POOL, seed=SEED)
    return shown, clones


def summary(bounds: list[float], true: list[float]) -> dict[str, float]:
    ratio = [b / t for b, t in zip(bounds, true) if t > 0]
    found = {"true": float(np.mean(true)), "holds": float(np.mean([b >= t for b, t in zip(bounds, true)]))}
    found["median bound"] = float(np.median(bounds))
    return {k: round(v, 4) for k, v in found.items()} | {"median ratio": round(float(np.median(ratio)), 3)}


def rules(episodes: list[Episode], sets: int, rng: np.random.Generator) -> dict[str, Any]:
    broken = np.array([breaks_a_rule(e).any() for e in episodes])
    rows = {}
    for count in sorted({n for _, n in SIZES}):
        hits = broken[rng.integers(len(broken), size=(sets, count))].sum(1)
        bounds = [clopper_pearson_upper(int(k), count, LEVEL) for k in hits]
        rows[f"{count} episodes"] = summary(bounds, [float(broken.mean())] * sets)
    return rows


def novelty(
    task: str, shown: list[Episode], clones: dict[str, list[Episode]], sets: int, rng: np.random.Generator
) -> dict[str, Any]:
    found: dict[str, Any] = {name: {} for name in (*clones, "demonstrator")}
    groups = {"demonstrator": shown} | clones
    for held_out in sorted({n for n, _ in SIZES}):
        bounds: dict[tuple[str, int, str], list[float]] = {}
        true: dict[str, list[float]] = {name: [] for name in groups}
        seen: dict[str, list[float]] = {name: [] for name in clones}
        for table in range(TABLES):
            fitted = demonstrations(task, held_out, SEED + 2 + table)
            scores = np.split(novelty_scores([e for g in groups.values() for e in g], fitted), len(groups))
            by_name = dict(zip(groups, scores, strict=True))
            q = np.quantile(by_name["demonstrator"], FAMILIAR, method="inverted_cdf")
            for name, mine in by_name.items():
                true[name] += [float((mine > q).mean())] * (sets // TABLES)
                if name in clones and (broken := np.array([breaks_a_rule(e).any() for e in clones[name]])).any():
                    seen[name].append(float((mine[broken] > q).mean()))
                for count in (n for h, n in SIZES if h == held_out):
                    for _ in range(sets // TABLES):
                        drawn = rng.choice(by_name["demonstrator"], held_out), rng.choice(mine, count)
                        made = novelty_bound(*drawn, LEVEL).share.bound
                        above = int((drawn[1] > np.quantile(drawn[0], FAMILIAR, method="inverted_cdf")).sum())
                        naive = clopper_pearson_upper(above, count, LEVEL)
                        bounds.setdefault((name, count, "bound"), []).append(made)
                        bounds.setdefault((name, count, "naive"), []).append(naive)
        for name, shares in seen.items():
            found[name][f"violating episodes that are novel, {held_out} demonstrations"] = round(
                float(np.mean(shares)), 4
            )
        for (name, count, kind), values in bounds.items():
            cell = found[name].setdefault(f"{held_out} held out, {count} episodes", {})
            cell[kind] = summary(values, true[name])
    return found


def starts(first: np.ndarray, sets: int, rng: np.random.Generator) -> dict[str, float]:
    deviation = np.eye(first.shape[1])[0] * first[:, 0].std()
    upper = first[first[:, 0] > np.median(first[:, 0])]
    names = [f"obs[{i}]" for i in range(first.shape[1])]

    def mixed(by: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda drawn: drawn + by * deviation

    kinds = {"none": mixed(0.0), "1 deviation": mixed(1.0)}
    kinds["upper half"] = lambda drawn: rng.choice(upper, len(drawn), replace=False)
    found = {}
    for name, shifted in kinds.items():
        refused = 0
        for _ in range(sets):
            drawn = rng.choice(first, SHOWN + PLAYED, replace=False)
            refused += shift.shift_of(shifted(drawn[SHOWN:]), drawn[:SHOWN], names, rng).p <= SHIFT_LEVEL
        found[name] = round(refused / sets, 4)
    return found


def main(tasks: list[str], sets: int) -> None:
    body: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    shift.EXCHANGES = 199
    for task in tasks:
        if body.get(task, {}).get("sets") != sets:
            rng = np.random.default_rng(SEED)
            shown, clones = pools(task)
            cell: dict[str, Any] = {"rules": {name: rules(played, sets, rng) for name, played in clones.items()}}
            body[task] = {"sets": sets} | cell | {"novelty": novelty(task, shown, clones, sets, rng)}
            write_atomically(RESULT, json.dumps(body, indent=1).encode() + b"\n")
        if STARTS not in body[task]:
            unseen = np.asarray(unseen_starts(open_env(ENVS[task]), POOL, SEED).obs)  # pyright: ignore[reportAttributeAccessIssue]
            first = np.concatenate([unseen, demonstrations(task, POOL, SEED).first_states().obs])
            body[task][STARTS] = starts(first, sets, np.random.default_rng(SEED + 1))
            write_atomically(RESULT, json.dumps(body, indent=1).encode() + b"\n")
        print(task, json.dumps(body[task], indent=1), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["speed", "flag"])
    parser.add_argument("--sets", type=int, default=1_000)
    main(**vars(parser.parse_args()))
