"""Results of a study with chosen numbers."""

from typing import Any

from scopil.eval.measures import Measures
from scopil_bench.report.study_page import StudyReport
from scopil_bench.studies.paper.study import STUDY
from scopil_bench.studies.running import _report, layout_of
from scopil_bench.summaries import EVALUATIONS, Cell, Result, Results


def measures(violations: float, **changes: float) -> Measures:
    """One episode in forty starts in a violation."""
    rules = {"horizontal": violations - 0.025, "circle": 0.025}
    out = {"reward": -13.0, "steps": 20.0, "length": 250.0, "reached": 1.0}
    out |= {"violations": violations, "frequency": violations / 20, "avoidable": violations - 0.025}
    for rule, count in rules.items():
        out |= {f"violations/{rule}": count, f"frequency/{rule}": count / 20}
    return out | changes


def result(method: str, seed: int, violations: float, setting: str = "simple", **changes) -> Result:
    fields = {
        "cell": Cell(setting, method),
        "seed": seed,
        "steps": 1_000_000,
        "first_safe": 50_000,
        "means": {key: measures(violations) for key in EVALUATIONS},
        "episodes": dict.fromkeys(EVALUATIONS, 40),
        "violating": dict.fromkeys(EVALUATIONS, int(violations > 0.025)),
        "extra": {},
    }
    return Result(**(fields | changes))


def cell_of(method: str, violations: list[float], **changes) -> dict[Cell, list[Result]]:
    runs = [result(method, seed, v, **changes) for seed, v in enumerate(violations)]
    return {runs[0].cell: runs}


def report_of(results: Results, **changes) -> StudyReport:
    """The report of the paper's study with these results."""
    more: dict[str, Any] = {"versions": {"jax": ["0.9", "0.10"]}} | changes
    more |= {"command": "scopil study paper", "layout": layout_of(STUDY)}
    return _report(STUDY, "paper", results, STUDY.cells(), **more)
