"""The data of a report page's drawings: training curves, and episodes seen from above.

Episodes are drawn if the environment has `draw_episodes` and reports each state's position in the drawing as
`info["position"]`.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from scopil.algos.base import Algorithm, Curve
from scopil.envs.base import Drawing
from scopil.eval.episodes import replay
from scopil.eval.measures import breaks_a_rule, broken_rules
from scopil.eval.pictures import few_colours, new_figure
from scopil.eval.rules import with_rules
from scopil.train.run import Run
from scopil_bench.cache import read_episodes
from scopil_bench.report.page import data_uri
from scopil_bench.report.svg import TRAY
from scopil_bench.results import Evaluator, Rows, Runs
from scopil_bench.summaries import Cell, Results

POINTS = 60  # maximum number of points of a curve
EPISODES = 40  # maximum number of episodes on a tray
STATES = 400_000  # budget of states for all trays of a page: about 2 MB

View = dict[str, Any]
Logged = Mapping[str, Mapping[str, Rows]]  # method → seed → metrics


class Views(NamedTuple):
    """The drawings of a page, by setting."""

    curves: Mapping[str, Sequence[View]] = {}  # panels of evaluations during training
    inner: Mapping[str, Sequence[View]] = {}  # panels of the metrics that the algorithms declare
    trays: Mapping[str, View] = {}  # background, demonstrations, and method → seed → starts → episodes


def views_of(runs: Runs, results: Results, evaluator: Evaluator) -> Views:
    """All drawings of these runs. The runs must have been evaluated."""
    curves: dict[str, list[View]] = {}
    inner: dict[str, list[View]] = {}
    trays: dict[str, View] = {}
    budget = STATES // max(1, 2 * sum(map(len, runs.values())))  # states per tray; a run has one tray per kind of start
    for setting in dict.fromkeys(cell.setting for cell in runs):
        mine = {cell.method: each for cell, each in runs.items() if cell.setting == setting}
        logged = {m: {str(run.spec.seed): evaluator.rows(run) for run in each} for m, each in mine.items()}
        trained = {method: each[0].spec.steps for method, each in mine.items()}
        curves[setting] = panels(evaluation_curves(logged), logged, trained)
        declared = learner_curves(run.spec.algorithm for each in mine.values() for run in each)
        inner[setting] = panels(declared, logged, trained)
        if (tray := _tray(setting, mine, results, evaluator, budget)) is not None:
            trays[setting] = tray
    return Views(curves, inner, trays)


# --- training curves -----------------------------------------------------------------------------------------------


def evaluation_curves(logged: Logged) -> list[Curve]:
    """Total violations, violations by rule, reward and steps of evaluations, if they were logged."""
    seen = {name for each in logged.values() for rows in each.values() for row in rows for name in row}
    rules = sorted(name.removeprefix("eval/violations/") for name in seen if name.startswith("eval/violations/"))
    found = [Curve("eval/violations", "Violations per episode"), Curve("eval/reward", "Reward")]
    if len(rules) > 1 or "eval/violations" not in seen:
        found += [Curve(f"eval/violations/{rule}", f"Violations per episode: {rule}") for rule in rules]
    return [curve for curve in [*found, Curve("eval/steps", "Steps")] if curve.metric in seen]


def learner_curves(algorithms: Iterable[Algorithm]) -> list[Curve]:
    """The return of training episodes, and every metric that one of the algorithms declares."""
    found = {"episode/return": Curve("episode/return", "Reward of training episodes")}
    for algorithm in algorithms:
        for curve in algorithm.curves:
            found.setdefault(curve.metric, curve)
    return list(found.values())


def panels(wanted: Sequence[Curve], logged: Logged, trained: Mapping[str, int]) -> list[View]:
    """A panel for each curve that at least one method has. Methods with different numbers of training steps get
    separate panels: a curve of one million steps is too short on an axis of eight million."""
    found = []
    for steps in sorted(set(trained.values())):
        for curve in wanted:
            lines = {m: line_of(each, curve.metric) for m, each in logged.items() if trained[m] == steps}
            if lines := {method: line for method, line in lines.items() if line}:
                panel = {"metric": curve.metric, "title": curve.title, "trained": steps, "methods": lines}
                found.append(panel)
    return found


def line_of(runs: Mapping[str, Rows], metric: str) -> View | None:
    """Mean and population standard deviation of a metric over the runs that logged it at a step, and the value of each
    seed, at no more than POINTS steps including the last one. None if no run logged it."""
    at = {seed: {row["env_steps"]: row.get(metric) for row in rows} for seed, rows in runs.items()}
    values: dict[int, list[float]] = {}
    for logged in at.values():
        for step, value in logged.items():
            if value is not None:
                values.setdefault(step, []).append(float(value))  # NumPy refuses integers beyond 64 bits
    if not values:
        return None
    every = sorted(values)
    steps = every[:: -max(1, -(-len(every) // POINTS))][::-1]
    return {
        "steps": steps,
        "mean": [_short(np.mean(values[step])) for step in steps],
        "std": [_short(np.std(values[step])) or 0.0 for step in steps],
        "seeds": {seed: [_short(logged.get(step)) for step in steps] for seed, logged in at.items()},
    }


def _short(value: Any) -> float | None:
    """Four digits; None for NaN, which JSON cannot hold."""
    return None if value is None or not np.isfinite(float(value)) else float(f"{float(value):.4g}")


# --- episodes ------------------------------------------------------------------------------------------------------


def _tray(
    setting: str, runs: Mapping[str, Sequence[Run]], results: Results, evaluator: Evaluator, budget: int
) -> View | None:
    """Demonstrations and each run's first greedy episodes by starts; None if the environment cannot draw them."""
    first = next(iter(runs.values()))[0]
    env, rules = evaluator.env(first), evaluator.rules(first, setting)
    if (draw := env.drawing()) is None:
        return None
    background, corners = _background(draw)
    tray: View = {"background": background, "corners": corners, "runs": {}}

    def drawn(episodes: Sequence[Any]) -> View:
        shown = episodes[:EPISODES]
        return paths(shown if rules is None else with_rules(shown, rules, env), corners, budget)

    for method, each in runs.items():
        for run, result in zip(each, results[Cell(setting, method)]):
            kept = {k: e for k, e in read_episodes(run.folder).items() if e and "position" in e[0].info}
            if kept:
                tray["runs"].setdefault(method, {})[str(run.spec.seed)] = {
                    key.partition("/")[2]: drawn(episodes) | {"violations": _short(result.means[key].get("violations"))}
                    for key, episodes in kept.items()
                }
    demos = evaluator.demos(first) if tray["runs"] and env.can_start_at else None
    if demos is not None and demos.starts is not None:
        tray["demonstrations"] = drawn(replay(env, demos))
    return tray if tray["runs"] else None


def _background(draw: Drawing) -> tuple[str, list[float]]:
    """The drawing without episodes, and its limits: x0, x1, y0, y1."""
    figure = new_figure(figsize=(3.0, 3.0))
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    draw(axes, [])
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    return data_uri(few_colours(buffer.getvalue())), [*map(float, axes.get_xlim()), *map(float, axes.get_ylim())]


def paths(episodes: Sequence[Any], corners: Sequence[float], budget: int) -> View:
    """Episodes as the data of one SVG path, with a list [x, y, episode, step, rules] for each violation. At least three
    episodes are kept. More episodes are kept only within `budget` states."""
    x0, x1, y0, y1 = corners
    found, broken, states = [], [], 0
    for number, episode in enumerate(episodes):
        at = np.asarray(episode.info["position"], np.float64)
        states += len(at)
        if number >= 3 and states > budget:
            break
        unit = np.stack([(at[:, 0] - x0) / (x1 - x0), (y1 - at[:, 1]) / (y1 - y0)], axis=1)
        points = np.rint(unit * TRAY).astype(int)
        moves = np.diff(points, axis=0)
        found.append(
            f"M{points[0, 0]} {points[0, 1]}" + "l" * bool(len(moves)) + " ".join(f"{x} {y}" for x, y in moves)
        )
        rules = broken_rules(episode)
        for i in np.flatnonzero(breaks_a_rule(episode)).tolist():
            names = ", ".join(name for name, line in rules.items() if line[i])
            broken.append([*points[i].tolist(), number, i, names])
    return {"paths": "".join(found), "broken": broken, "episodes": len(found)}
