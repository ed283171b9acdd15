"""The paper's measures of a game, and their averages.

Violations are counted on every visited state including the initial one; a frequency is violations / steps of that
game. `violations` sums the kinds (the paper's H+C), `avoidable` leaves the initial state out.
"""

from collections.abc import Sequence

import numpy as np

from scopil.evaluate.games import Game

Measures = dict[str, float]


def measure(game: Game) -> Measures:
    kinds = {name.removeprefix("cost_"): v for name, v in game.info.items() if name.startswith("cost_")}
    if not kinds and "cost" in game.info:
        kinds = {"any": game.info["cost"]}
    out = {"reward": float(np.sum(game.rewards, dtype=np.float64)), "steps": float(game.steps)}
    if "position" in game.info:
        moves = np.diff(game.info["position"].astype(np.float64), axis=0)
        out["length"] = float(np.sqrt((moves**2).sum(axis=-1)).sum())
    out["reached"] = float(game.terminated)
    counts = {kind: float(np.sum(v > 0)) for kind, v in kinds.items()}
    if counts:
        out["violations"] = sum(counts.values())
        out["frequency"] = out["violations"] / game.steps
        out["avoidable"] = float(sum(np.sum(v[1:] > 0) for v in kinds.values()))
    for kind, count in counts.items():
        out[f"violations/{kind}"] = count
        out[f"frequency/{kind}"] = count / game.steps
    return out


def average(measures: Sequence[Measures]) -> Measures:
    """The mean of each measure over games."""
    return {name: float(np.mean([m[name] for m in measures])) for name in measures[0]}


def mean_and_std(runs: Sequence[Measures]) -> dict[str, tuple[float, float]]:
    """Mean and (population) standard deviation over independent runs, as the paper prints them."""
    return {k: (float(np.mean([r[k] for r in runs])), float(np.std([r[k] for r in runs]))) for k in runs[0]}


def label(measure_name: str) -> str:
    """The paper's letters: `violations/circle` → C, `frequency/circle` → F(C)."""
    fixed = {"reward": "Rwd", "steps": "Steps", "length": "Length", "reached": "Reached"}
    fixed |= {"violations": "Viol.", "frequency": "F(viol.)", "avoidable": "Avoidable"}
    if measure_name in fixed:
        return fixed[measure_name]
    what, _, kind = measure_name.partition("/")
    return f"F({kind[:1].upper()})" if what == "frequency" else kind[:1].upper()
