"""The paper's measures of a game, and their averages.

Violations are counted on every visited state including the initial one; a frequency is violations / steps of that
game. `violations` sums the kinds (the paper's H+C) or, where an environment other than Marble Maze reports one cost
for all, counts that; `avoidable` leaves the initial state out. What a game does not tell is not measured.
"""

from collections.abc import Sequence

import numpy as np

from scopil.evaluate.games import Game

Measures = dict[str, float]


def measure(game: Game) -> Measures:
    kinds = {name.removeprefix("cost_"): v for name, v in game.info.items() if name.startswith("cost_")}
    whole = list(kinds.values())
    if "cost" in game.info and not (kinds and game.kinds_add_up):
        whole = [game.info["cost"]]
        kinds = kinds or {"any": game.info["cost"]}
    out = {"reward": float(np.sum(game.rewards, dtype=np.float64)), "steps": float(game.steps)}
    if "position" in game.info:  # a ball on a tray: its way, and whether it fell into the hole
        moves = np.diff(game.info["position"].astype(np.float64), axis=0)
        out["length"] = float(np.sqrt((moves**2).sum(axis=-1)).sum())
        out["reached"] = float(game.terminated)
    if whole:
        out["violations"] = float(sum(np.sum(v > 0) for v in whole))
        out["frequency"] = out["violations"] / game.steps
        out["avoidable"] = float(sum(np.sum(v[1:] > 0) for v in whole))
    for kind, v in kinds.items():
        count = float(np.sum(v > 0))
        out[f"violations/{kind}"] = count
        out[f"frequency/{kind}"] = count / game.steps
    return out


def average(measures: Sequence[Measures]) -> Measures:
    """The mean of each measure over games."""
    return {name: mean for name, (mean, _) in mean_and_std(measures).items()}


def mean_and_std(runs: Sequence[Measures]) -> dict[str, tuple[float, float]]:
    """Mean and (population) standard deviation over independent runs, as the paper prints them. A kind of violation
    that only some report did not happen to the others."""
    names = dict.fromkeys(name for run in runs for name in run)
    values = {name: [run.get(name, 0.0) for run in runs] for name in names}
    return {name: (float(np.mean(v)), float(np.std(v))) for name, v in values.items()}


def label(measure_name: str) -> str:
    """The paper's letters: `violations/circle` → C, `frequency/circle` → F(C)."""
    fixed = {"reward": "Rwd", "steps": "Steps", "length": "Length", "reached": "Reached"}
    fixed |= {"violations": "Viol.", "frequency": "F(viol.)", "avoidable": "Avoidable"}
    if measure_name in fixed:
        return fixed[measure_name]
    what, _, kind = measure_name.partition("/")
    return f"F({kind[:1].upper()})" if what == "frequency" else kind[:1].upper()
