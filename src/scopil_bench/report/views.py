"""What the page draws of runs, as plain values: training curves, and episodes on their tray.

An environment has trays when it draws its episodes (`draw_episodes`) and reports where each state lies in that drawing
as `info["position"]`.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from scopil.eval.env_hooks import Drawing
from scopil.eval.measures import average, breaks_a_rule, broken_rules
from scopil.eval.pictures import few_colours, new_figure
from scopil.train.run import Run
from scopil_bench.cache import read_episodes, read_measures
from scopil_bench.report.page import data_uri
from scopil_bench.report.svg import TRAY
from scopil_bench.report.training_curves import INNER, Panel, Rows, series
from scopil_bench.summaries import Cell

POINTS = 60  # of a curve
EPISODES = 40  # on a tray, at most
STATES = 400_000  # on all trays together: about 2 MB of the page

Runs = Mapping[Cell, Sequence[Run]]
Episodes = Sequence[Any]
Judge = Callable[[str, Episodes], Episodes]  # (setting, episodes): by the rules that violations are counted by
View = dict[str, Any]


class Views(NamedTuple):
    curves: Mapping[str, Sequence[View]] = {}  # setting → panels
    trays: Mapping[str, View] = {}  # setting → background, and method → seed → starts → episodes
    inner: Mapping[str, Sequence[View]] = {}  # setting → panels of what drives the learner; not kept in files


def behaviour(seen: set[str]) -> list[Panel]:
    """Of evaluations: violations in all and by rule, reward and steps, as far as they were logged."""
    rules = sorted(n.removeprefix("eval/violations/") for n in seen if n.startswith("eval/violations/"))
    panels = [("eval/violations", "Violations per episode"), ("eval/reward", "Reward")]
    if len(rules) > 1 or "eval/violations" not in seen:
        panels += [(f"eval/violations/{rule}", f"Violations per episode: {rule}") for rule in rules]
    return [panel for panel in [*panels, ("eval/steps", "Steps")] if panel[0] in seen]


def of_the_learner(seen: set[str]) -> list[Panel]:
    """What drives the learner."""
    return [panel for panel in INNER if panel[0] in seen]


def curves(runs: Runs, panels: Callable[[set[str]], list[Panel]] = behaviour) -> dict[str, list[View]]:
    """Panels of every setting; methods trained for another number of steps have panels of their own."""
    found: dict[str, list[View]] = {}
    for setting in dict.fromkeys(cell.setting for cell in runs):
        lengths: dict[int, dict[str, Sequence[Run]]] = {}
        for cell, mine in runs.items():
            if cell.setting == setting:
                lengths.setdefault(mine[0].spec.steps, {})[cell.method] = mine
        for steps in sorted(lengths):
            rows = {
                method: {str(run.spec.seed): run.metrics.rows() for run in mine}
                for method, mine in lengths[steps].items()
            }
            seen = {name for each in rows.values() for logged in each.values() for row in logged for name in row}
            for metric, title in panels(seen):
                lines = {method: line_of(each, metric) for method, each in rows.items()}
                lines = {method: line for method, line in lines.items() if line}
                if lines:
                    panel = {"metric": metric, "title": title, "trained": steps, "methods": lines}
                    found.setdefault(setting, []).append(panel)
    return found


def line_of(runs: Mapping[str, Rows], metric: str) -> View | None:
    mean = series(list(runs.values()), metric)
    if mean is None:
        return None
    every = max(1, -(-len(mean.steps) // POINTS))
    kept = sorted({*range(len(mean.steps) - 1, -1, -every)})  # the last one always
    steps = [int(mean.steps[i]) for i in kept]
    at = {seed: {row["env_steps"]: row.get(metric) for row in rows} for seed, rows in runs.items()}
    return {
        "steps": steps,
        "mean": [_short(mean.mean[i]) for i in kept],
        "std": [_short(mean.std[i]) or 0.0 for i in kept],
        "seeds": {seed: [_short(values.get(s)) for s in steps] for seed, values in at.items()},
    }


def rows_of(panels: Sequence[View], method: str) -> list[Rows]:
    """A method's curves as rows of metrics, a list per seed: what drawing of runs takes."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for panel in panels:
        line = panel["methods"].get(method, {"steps": [], "seeds": {}})
        for seed, values in line["seeds"].items():
            for step, value in zip(line["steps"], values):
                row = found.setdefault(seed, {}).setdefault(step, {"env_steps": step})
                row[panel["metric"]] = value
    return [[rows[step] for step in sorted(rows)] for rows in found.values()]


def _short(value: float | None) -> float | None:
    """Four digits, and no NaN, which JSON has not."""
    return None if value is None or not np.isfinite(value) else float(f"{value:.4g}")


def trays(
    runs: Runs, draws: Mapping[str, Drawing], judged: Judge, demonstrations: Mapping[str, Callable[[], Episodes]]
) -> dict[str, View]:
    """The first greedy episodes of every run, by starts: the same starts for every run of a setting. And its
    demonstrations."""
    found: dict[str, View] = {}
    shown = {cell: mine for cell, mine in runs.items() if cell.setting in draws}
    budget = budget_of(sum(map(len, shown.values())))
    for cell, mine in shown.items():
        for run in mine:
            kept = {k: e[:EPISODES] for k, e in read_episodes(run.folder).items()}
            kept = {k: e for k, e in kept.items() if e and "position" in e[0].info}
            if not kept:
                continue
            if cell.setting not in found:
                background, corners = _background(draws[cell.setting])
                found[cell.setting] = {"background": background, "corners": corners, "runs": {}}
                if cell.setting in demonstrations:
                    shown_to_it = demonstrations[cell.setting]()[:EPISODES]
                    found[cell.setting]["demonstrations"] = _episodes(shown_to_it, corners, budget)
            view = found[cell.setting]
            measures = read_measures(run.folder)
            view["runs"].setdefault(cell.method, {})[str(run.spec.seed)] = {
                key.partition("/")[2]: _episodes(judged(cell.setting, each), view["corners"], budget)
                | {"violations": _short(average(measures[key]).get("violations"))}
                for key, each in kept.items()
            }
    return found


def budget_of(runs: int) -> int:
    """States on the tray of one run, from one kind of starts; there are two."""
    return STATES // max(1, 2 * runs)


def _background(draw: Drawing) -> tuple[str, list[float]]:
    """The drawing without episodes, and the corners of what it spans: x0, x1, y0, y1."""
    figure = new_figure(figsize=(3.0, 3.0))
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    draw(axes, [])
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    return data_uri(few_colours(buffer.getvalue())), [*map(float, axes.get_xlim()), *map(float, axes.get_ylim())]


def _episodes(episodes: Episodes, corners: Sequence[float], budget: int) -> View:
    """Paths as the data of an SVG path. As many episodes as the budget of states allows, three at least."""
    x0, x1, y0, y1 = corners
    paths, broken, states = [], [], 0
    for number, episode in enumerate(episodes):
        at = np.asarray(episode.info["position"], np.float64)
        states += len(at)
        if number >= 3 and states > budget:
            return {"paths": "".join(paths), "broken": broken, "episodes": number}
        unit = np.stack([(at[:, 0] - x0) / (x1 - x0), (y1 - at[:, 1]) / (y1 - y0)], axis=1)
        points = np.rint(unit * TRAY).astype(int)
        moves = np.diff(points, axis=0)
        paths.append(
            f"M{points[0, 0]} {points[0, 1]}" + "l" * bool(len(moves)) + " ".join(f"{x} {y}" for x, y in moves)
        )
        rules = broken_rules(episode)
        for i in np.flatnonzero(breaks_a_rule(episode)).tolist():
            names = ", ".join(name for name, line in rules.items() if line[i])
            broken.append([*points[i].tolist(), number, i, names])
    return {"paths": "".join(paths), "broken": broken, "episodes": len(episodes)}
