"""The data of a report page's drawings: training curves, and episodes seen from above.

Episodes are drawn if the environment has `draw_episodes` and reports each state's position in the drawing as
`info["position"]`. For other environments that can be rendered, there is a short film of each method.
"""

import io
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from scopil.algos.base import Algorithm, Curve
from scopil.data.record import choice
from scopil.envs.base import Drawing
from scopil.envs.jax_env import make_env
from scopil.errors import EnvError
from scopil.eval.episodes import replay
from scopil.eval.measures import breaks_a_rule, broken_rules, measure
from scopil.eval.pictures import few_colours, new_figure
from scopil.eval.rules import by_own_rules, with_rules
from scopil.eval.starts import UNSEEN_SEED
from scopil.train.run import Run
from scopil_bench.cache import read_episodes
from scopil_bench.film import play, with_time_lines
from scopil_bench.images import gif_bytes, png_bytes
from scopil_bench.report.page import data_uri
from scopil_bench.report.svg import TRAY
from scopil_bench.results import Evaluator, Rows, Runs
from scopil_bench.summaries import Cell, Result, Results

POINTS = 60  # maximum number of points of a curve
EPISODES = 40  # maximum number of episodes on a tray
FILMS = 8  # maximum number of films of a setting
FRAMES = 40  # maximum number of frames of a film
WIDTH = 240  # maximum width of a film in pixels
STATES = 400_000  # budget of states for all trays of a page: about 2 MB

ACCIDENTS = "accidents"  # violations while learning so far

View = dict[str, Any]
Logged = Mapping[str, Mapping[str, Rows]]  # method → seed → metrics


class Views(NamedTuple):
    """The drawings of a page, by setting."""

    curves: Mapping[str, Sequence[View]] = {}  # panels of evaluations during training
    inner: Mapping[str, Sequence[View]] = {}  # panels of the metrics that the algorithms declare
    trays: Mapping[str, View] = {}  # background, demonstrations, and method → seed → starts → episodes
    films: Mapping[str, "Films"] = {}


class Film(NamedTuple):
    """An episode of one method."""

    method: str  # empty: the demonstrator
    seed: int | None  # of the run
    violations: int | None  # None: not counted
    reward: float
    moving: str  # data: addresses of the animation and of its last frame
    still: str


class Films(NamedTuple):
    films: Sequence[Film] = ()
    why_none: str = ""  # why the environment could not be rendered


def views_of(runs: Runs, results: Results, evaluator: Evaluator) -> Views:
    """All drawings of these runs. The runs must have been evaluated."""
    curves: dict[str, list[View]] = {}
    inner: dict[str, list[View]] = {}
    trays: dict[str, View] = {}
    films: dict[str, Films] = {}
    budget = STATES // max(1, 2 * sum(map(len, runs.values())))  # states per tray; a run has one tray per kind of start
    for setting in dict.fromkeys(cell.setting for cell in runs):
        mine = {cell.method: each for cell, each in runs.items() if cell.setting == setting}
        logged = {
            m: {str(run.spec.seed): counted(evaluator.rows(run, setting)) for run in each} for m, each in mine.items()
        }
        trained = {method: each[0].spec.steps for method, each in mine.items()}
        curves[setting] = panels(evaluation_curves(logged), logged, trained)
        declared = learner_curves(run.spec.algorithm for each in mine.values() for run in each)
        inner[setting] = panels(declared, logged, trained)
        if (tray := _tray(setting, mine, results, evaluator, budget)) is not None:
            trays[setting] = tray
        elif (found := films_of(setting, mine, results, evaluator)) != Films():
            films[setting] = found
    return Views(curves, inner, trays, films)


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
    """The return and the violations of training episodes, and every metric that one of the algorithms declares."""
    training = (
        Curve("episode/return", "Reward of training episodes"),
        Curve(ACCIDENTS, "Violations while learning, so far: training steps that broke a rule"),
    )
    found = {curve.metric: curve for curve in training}
    for algorithm in algorithms:
        for curve in algorithm.curves:
            found.setdefault(curve.metric, curve)
    return list(found.values())


def counted(rows: Rows) -> Rows:
    """The rows with the number of violations while learning so far, if training counted them."""
    if not any("episode/violations" in row for row in rows):
        return rows
    so_far = np.cumsum([row.get("episode/violations") or 0.0 for row in rows])
    return [{**row, ACCIDENTS: float(count)} for row, count in zip(rows, so_far)]


def panels(wanted: Sequence[Curve], logged: Logged, trained: Mapping[str, int]) -> list[View]:
    """A panel for each curve that at least one method has. Methods with different numbers of training steps get
    separate panels: a curve of one million steps is too short on an axis of eight million."""
    found = []
    for steps in sorted(set(trained.values())):
        for curve in wanted:
            lines = {m: line_of(each, curve.metric) for m, each in logged.items() if trained[m] == steps}
            if lines := {method: line for method, line in lines.items() if line}:
                panel = {"metric": curve.metric, "title": curve.title, "trained": steps, "methods": lines}
                panel["episodes"] = _fewest_episodes(logged)
                found.append(panel)
    return found


def _fewest_episodes(logged: Logged) -> int | None:
    """The smallest number of episodes of an evaluation during training; None if it was not logged."""
    rows = (row for each in logged.values() for rows in each.values() for row in rows)
    return min((int(row["eval/episodes"]) for row in rows if row.get("eval/episodes")), default=None)


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


def films_of(setting: str, runs: Mapping[str, Sequence[Run]], results: Results, evaluator: Evaluator) -> Films:
    """A film of each method's median seed, and of the demonstrator if it is a program, all from the same unseen start.

    Empty if the environment declares no `rgb_array` pictures."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium's, about metadata that films do not need
        return _films(setting, runs, results, evaluator)


def _films(setting: str, runs: Mapping[str, Sequence[Run]], results: Results, evaluator: Evaluator) -> Films:
    first = next(iter(runs.values()))[0]
    env, rules = evaluator.env(first), evaluator.rules(first, setting)
    try:
        plain = make_env(first.env_name())
        plain.close()
        if "rgb_array" not in plain.metadata.get("render_modes", ()):
            return Films()
        shown = make_env(first.env_name(), render_mode="rgb_array")
    except EnvError as error:
        return Films(why_none=str(error))
    start = np.random.default_rng([UNSEEN_SEED]).integers(2**31, size=1).tolist()  # the first unseen start

    def film(method: str, seed: int | None, choose: Any) -> Film:
        shots, played = play(shown, env, choose, start, most=FRAMES)
        (judged,) = by_own_rules(env, played) if rules is None else with_rules(played, rules, env)
        shots = [shot._replace(picture=_small(shot.picture)) for shot in shots]
        frames = with_time_lines(shots, [judged])
        found = measure(judged)
        count = int(found["violations"]) if "violations" in found else None
        gif, png = gif_bytes(frames, fps=10), few_colours(png_bytes(frames[-1]))
        return Film(method, seed, count, found["reward"], data_uri(gif, "gif"), data_uri(png))

    def greedy(run: Run) -> Any:
        act = run.policy()[0].in_numpy()

        def choose(obs: Any) -> Any:
            action = act(env.spaces.flatten(obs), None)
            return env.spaces.to_env(int(action) if action.ndim == 0 else action)

        return choose

    films = []
    try:
        if (expert := evaluator.demonstrator(setting)) is not None:
            getattr(expert, "reset", lambda: None)()
            films.append(film("", None, choice(expert)))
        for method, each in list(runs.items())[:FILMS]:
            seed = median_seed(results[Cell(setting, method)])
            films.append(film(method, seed, greedy(next(run for run in each if run.spec.seed == seed))))
    except Exception as error:  # a renderer of the user's may raise anything
        return Films(why_none=f"{type(error).__name__}: {error}" if not isinstance(error, EnvError) else str(error))
    finally:
        shown.close()
    return Films(films)


def median_seed(runs: Sequence[Result]) -> int:
    """The seed with the median violations from unseen starts (the lower median if the number of seeds is even).

    If violations are not counted, reward is used instead."""

    def rank(run: Result) -> float:
        means = run.means.get("greedy/unseen") or next(iter(run.means.values()))
        return means.get("violations", -means["reward"])

    return sorted(runs, key=rank)[(len(runs) - 1) // 2].seed


def _small(picture: np.ndarray) -> np.ndarray:
    """The picture with at most WIDTH columns."""
    height, width, _ = picture.shape
    if width <= WIDTH:
        return picture
    from PIL import Image as Pillow  # comes with matplotlib

    size = WIDTH, max(1, round(height * WIDTH / width))
    return np.asarray(Pillow.fromarray(picture).resize(size))


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
