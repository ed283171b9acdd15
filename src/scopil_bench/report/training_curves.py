"""Training curves as the paper draws them: mean over seeds with a band of one standard deviation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scopil.eval.pictures import new_figure, save_figure

Rows = Sequence[Mapping[str, Any]]  # a run's metrics.jsonl
Panel = tuple[str, str]  # metric, title
# Okabe and Ito's colours, which colour-blind readers can distinguish too, in the order methods are given.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
INNER = (
    ("episode/return", "Reward of training episodes"),
    ("dual/lambda", "Multiplier λ"),
    ("dual/constraint", "Constraint G (nats)"),
    ("alpha/value", "Temperature α"),
    ("alpha/entropy", "Entropy of the policy (nats)"),
    ("demo/nll", "−log π of demonstrated actions (nats)"),
    ("cost/mean", "Cost per step, learned or true"),
    ("constraint/steps", "Backward steps made per phase"),
    ("constraint/expert_cost", "Learned cost of demonstrated episodes"),
    ("constraint/nominal_cost", "Learned cost of its own episodes"),
)
NEVER_NEGATIVE = ("eval/violations", "eval/frequency", "dual/lambda", "alpha/value")


@dataclass(frozen=True)
class Series:
    """One line: at each step, over the runs that got that far."""

    steps: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    runs: int


def series(runs: Sequence[Rows], metric: str) -> Series | None:
    """Mean and (population) standard deviation of a metric over runs; None when no run has it."""
    at: dict[int, list[float]] = {}
    having = 0
    for rows in runs:
        values = [(row["env_steps"], row[metric]) for row in rows if row.get(metric) is not None]
        having += bool(values)
        for step, value in values:
            at.setdefault(step, []).append(value)
    if not at:
        return None
    steps = sorted(at)
    mean = np.array([np.mean(at[s]) for s in steps])
    return Series(np.array(steps), mean, np.array([np.std(at[s]) for s in steps]), having)


def behaviour_panels(groups: Mapping[str, Sequence[Rows]]) -> list[list[Panel]]:
    """Reward and steps, then frequency and number of violations: by rule, or in all where no rule is named."""
    seen = {name for runs in groups.values() for rows in runs for row in rows for name in row}
    rules = sorted({n.removeprefix("eval/violations/") for n in seen if n.startswith("eval/violations/")})
    panels = [[("eval/reward", "Reward"), ("eval/steps", "Steps")]]
    for rule in rules or [""] * ("eval/violations" in seen):
        tail, name = (f"/{rule}", f": {rule}") if rule else ("", "")
        panels.append(
            [
                (f"eval/frequency{tail}", f"Violations per step{name}"),
                (f"eval/violations{tail}", f"Violations per episode{name}"),
            ]
        )
    return panels


def inner_panels(groups: Mapping[str, Sequence[Rows]]) -> list[list[Panel]]:
    """What drives the learner, two panels per row; only what some run logged."""
    seen = {name for runs in groups.values() for rows in runs for row in rows for name in row}
    panels = [panel for panel in INNER if panel[0] in seen]
    return [panels[i : i + 2] for i in range(0, len(panels), 2)]


def save_curves(
    path: Path, groups: Mapping[str, Sequence[Rows]], panels: Sequence[Sequence[Panel]], title: str = ""
) -> None:
    """One picture: a colour per method, a panel per metric."""
    figure = new_figure(figsize=(9.0, 0.7 + 2.3 * len(panels)))
    axes = figure.subplots(len(panels), 2, squeeze=False, sharex=True)
    for spare in (axes[i, j] for i in range(len(panels)) for j in range(len(panels[i]), 2)):
        spare.set_axis_off()
    for i, row in enumerate(panels):
        for j, (metric, name) in enumerate(row):
            _draw(axes[i, j], groups, metric)
            axes[i, j].set_title(name, fontsize=9, loc="left")
    for axis in axes[-1, : len(panels[-1])]:
        axis.set_xlabel("environment steps", fontsize=9)
    lines = {label: h for axis in axes.flat for h, label in zip(*axis.get_legend_handles_labels())}
    if lines:
        columns = max(1, min(len(lines), 120 // (8 + max(map(len, lines)))))  # as many as fit the width
        below = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 9}
        figure.legend(lines.values(), lines.keys(), **below)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    save_figure(path, figure)


def _draw(axis: Any, groups: Mapping[str, Sequence[Rows]], metric: str) -> None:
    for colour, (name, runs) in zip(colours(groups), groups.items()):
        line = series(runs, metric)
        if line is None:
            continue
        label = name if len(runs) == 1 else f"{name} ({len(runs)} seeds)"
        marker = "o" if len(line.steps) < 4 else None  # a line of one point is invisible
        axis.plot(line.steps, line.mean, color=colour, linewidth=1.4, marker=marker, markersize=3, label=label)
        if line.runs > 1:
            band = (line.mean - line.std, line.mean + line.std)
            axis.fill_between(line.steps, *band, color=colour, alpha=0.18, linewidth=0)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)
    axis.xaxis.set_major_formatter(lambda value, _: _thousands(value))
    if metric.startswith(NEVER_NEGATIVE):
        axis.set_ylim(bottom=0)


def colours(groups: Mapping[str, Any]) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(len(groups))]


def _thousands(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"
