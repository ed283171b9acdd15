"""Results as runs would leave them, with chosen figures."""

from scopil.evaluate.metrics import Measures
from scopil.experiments.paper import Cell
from scopil.experiments.results import EVALUATIONS, Result


def measures(violations: float, **changes: float) -> Measures:
    """A game starts unlawfully once in forty."""
    kinds = {"horizontal": violations - 0.025, "circle": 0.025}
    out = {"reward": -13.0, "steps": 20.0, "length": 250.0, "reached": 1.0}
    out |= {"violations": violations, "frequency": violations / 20, "avoidable": violations - 0.025}
    out |= {f"violations/{k}": v for k, v in kinds.items()} | {
        f"frequency/{k}": v / 20 for k, v in kinds.items()
    }
    return out | changes


def result(algorithm: str, seed: int, violations: float, setting: str = "simple", **changes) -> Result:
    fields = {
        "cell": Cell(setting, algorithm),
        "seed": seed,
        "steps": 1_000_000,
        "first_safe": 50_000,
        "peaks": {"dual/lambda": 2.0, "alpha/value": 0.3},
        "means": {key: measures(violations) for key in EVALUATIONS},
        "games": dict.fromkeys(EVALUATIONS, 40),
        "bad_games": dict.fromkeys(EVALUATIONS, int(violations > 0.025)),
        "modes": None,
    }
    return Result(**(fields | changes))


def cell_of(algorithm: str, violations: list[float], **changes) -> dict[Cell, list[Result]]:
    runs = [result(algorithm, seed, v, **changes) for seed, v in enumerate(violations)]
    return {runs[0].cell: runs}
