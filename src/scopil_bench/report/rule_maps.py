"""Pictures of learned constraints: the novelty, the demonstrated transitions, and the outline of the region that was
found; the true region too, where it is given."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from scopil.eval.pictures import check_ending, new_figure, save_figure
from scopil.explain import FoundRule
from scopil.marginal import Axis, Marginal

Contains = Callable[[np.ndarray], Any]  # points, one row each → bool
FOUND, TRUE, SHOWN, OWN = "#0072b2", "#cf222e", "#24292f", "#cc79a7"
POINTS = 3_000  # of the policy in a map
FINE = 200  # points per axis of an outline


def save_map(path: str | Path, rule: FoundRule, truth: Contains | None = None) -> bool:
    """Draw a rule's table, with a panel for each value of a category. Returns False, without a file, if the table has
    three axes of numbers.

    Args:
        path: a file that ends in .png, .pdf or .svg.
        rule: the rule.
        truth: the true region, in the axes of the rule's marginal.
    """
    path = check_ending(path)
    figure = map_of(rule.marginal, {FOUND: rule.shape.contains} | ({} if truth is None else {TRUE: truth}))
    if figure is not None:
        save_figure(path, figure)
    return figure is not None


def map_of(marginal: Marginal, regions: dict[str, Contains], own: bool = False) -> Any:
    """A figure of a table, with regions by the colour of their outline; with `own`, also the policy's transitions. None
    if the table has three axes of numbers."""
    numbers = [i for i, axis in enumerate(marginal.axes) if axis.edges is not None]
    if len(numbers) > 2:
        return None
    kinds = [i for i in range(len(marginal.axes)) if i not in numbers]
    if not numbers:
        figure = new_figure(figsize=(4.6, 3.2))
        _bars(figure.subplots(), marginal, own)
    else:
        values = marginal.axes[kinds[0]].values or () if kinds else (None,)
        bins = [k for k in range(len(values)) if not kinds or (marginal.own[:, kinds[0]] == k).any()]
        figure = new_figure(figsize=(4.2 * len(bins) + 0.6, 3.8 if len(numbers) == 2 else 2.8))
        for panel, k in zip(figure.subplots(1, len(bins), squeeze=False)[0], bins):
            at = {kinds[0]: k} if kinds else {}
            (_image if len(numbers) == 2 else _curve)(panel, marginal, numbers, at, regions, own)
            if kinds:
                panel.set_title(f"{marginal.axes[kinds[0]].name} = {_value(values[k])}", fontsize=9)
    return figure


def _value(value: Any) -> str:
    return "any other" if value is None else f"{value:g}" if isinstance(value, float | int) else str(value)


def _edges(axis: Axis) -> np.ndarray:
    assert axis.edges is not None
    return axis.edges


def _slice(marginal: Marginal, at: dict[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The table, the demonstrated values and the policy's values for one value of the category."""
    table, demo, own = marginal.novelty, marginal.demo, marginal.own
    for axis, k in at.items():
        table, demo, own = table.take(k, axis), demo[demo[:, axis] == k], own[own[:, axis] == k]
    return table, demo, own


def _image(
    panel: Any, marginal: Marginal, numbers: list[int], at: dict[int, int], regions: dict[str, Contains], own: bool
) -> None:
    table, demo, mine = _slice(marginal, at)
    x, y = (_edges(marginal.axes[i]) for i in numbers)
    panel.pcolormesh(x, y, table.T, cmap="Oranges", vmin=0, vmax=1, rasterized=True)
    if own:
        panel.plot(*mine[:: 1 + len(mine) // POINTS, numbers].T, ".", color=OWN, markersize=1.5)
    panel.plot(demo[:, numbers[0]], demo[:, numbers[1]], ".", color=SHOWN, markersize=1.5)
    ticks = [np.linspace(e[0], e[-1], FINE) for e in (x, y)]
    points = np.zeros((FINE * FINE, len(marginal.axes)))
    points[:, numbers] = np.stack(np.meshgrid(*ticks, indexing="ij"), -1).reshape(-1, 2)
    for axis, k in at.items():
        points[:, axis] = k
    for colour, contains in regions.items():
        inside = np.asarray(contains(points), float).reshape(FINE, FINE).T
        if 0 < inside.mean() < 1:
            panel.contour(*ticks, inside, levels=[0.5], colors=[colour], linestyles="--" if colour == TRUE else "-")
    panel.set_xlabel(marginal.axes[numbers[0]].name)
    panel.set_ylabel(marginal.axes[numbers[1]].name)


def _curve(
    panel: Any, marginal: Marginal, numbers: list[int], at: dict[int, int], regions: dict[str, Contains], own: bool
) -> None:
    table, demo, mine = _slice(marginal, at)
    (i,) = numbers
    edges = _edges(marginal.axes[i])
    count, _ = np.histogram(demo[:, i], np.linspace(edges[0], edges[-1], 61))
    panel.stairs(count / max(count.max(), 1), np.linspace(edges[0], edges[-1], 61), fill=True, color="#d0d7de")
    if own:
        count, _ = np.histogram(mine[:, i], np.linspace(edges[0], edges[-1], 61))
        panel.stairs(count / max(count.max(), 1), np.linspace(edges[0], edges[-1], 61), color=OWN, linewidth=1.5)
    panel.plot((edges[1:] + edges[:-1]) / 2, table, color="#d55e00", linewidth=1.2)
    points = np.zeros((4 * FINE, len(marginal.axes)))
    points[:, i] = np.linspace(edges[0], edges[-1], 4 * FINE)
    for axis, k in at.items():
        points[:, axis] = k
    for height, (colour, contains) in zip((1.06, 1.12), regions.items()):
        inside = np.where(np.asarray(contains(points), bool), height, np.nan)
        panel.plot(points[:, i], inside, color=colour, linewidth=3, solid_capstyle="butt")
    panel.set_ylim(0, 1.18)
    panel.set_xlabel(marginal.axes[i].name)
    panel.set_ylabel("novelty; demonstrated")


def _bars(panel: Any, marginal: Marginal, own: bool) -> None:
    (axis,) = marginal.axes
    values = axis.values or ()
    shown = np.bincount(marginal.demo[:, 0].astype(int), minlength=len(values))
    panel.bar(range(len(values)), shown / max(shown.max(), 1), color="#d0d7de", width=0.8)
    if own:
        mine = np.bincount(marginal.own[:, 0].astype(int), minlength=len(values))
        panel.bar(range(len(values)), mine / max(mine.max(), 1), edgecolor=OWN, width=0.8, fill=False)
    panel.bar(range(len(values)), marginal.novelty, color="#d55e00", width=0.3)
    panel.set_xticks(range(len(values)), [_value(value) for value in values])
    panel.set_xlabel(axis.name)
    panel.set_ylabel("novelty; demonstrated")
