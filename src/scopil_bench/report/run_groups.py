"""Several runs seen together: which belong in one group, and how they play. Everything is read from run folders."""

from collections.abc import Mapping, Sequence
from typing import Any

from scopil.eval.measures import Measures, average, mean_and_std
from scopil.eval.tables import Value
from scopil.train.run import Run
from scopil_bench.cache import read_episodes, read_measures
from scopil_bench.summaries import in_words

IN_A_ROW = 4  # as many seeds as the paper's figure shows


def grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs that differ only in their seed, under the algorithm's title. Where one algorithm was run with several
    settings, those that differ are added to the title; steps and demonstrations are among them."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(_name(run, runs), []).append(run)
    return {name: sorted(group, key=lambda run: run.spec.seed) for name, group in groups.items()}


def _name(run: Run, runs: Sequence[Run]) -> str:
    mine, algorithm = _settings(run), run.spec.algorithm
    peers = [_settings(r) for r in runs if r.spec.algorithm.name == algorithm.name]
    differing = [f"{k}={v}" for k, v in mine.items() if any(peer.get(k) != v for peer in peers)]
    title = algorithm.title
    return title if not differing else f"{title}, {', '.join(differing)}"


def _settings(run: Run) -> dict[str, Any]:
    return run.settings | {"demos": run.spec.demos, "steps": run.spec.steps}


def evaluation_rows(groups: Mapping[str, Sequence[Run]]) -> dict[str, Mapping[str, Value]]:
    """A row for each group and evaluation: the mean over its seeds, ± their deviation where there are several."""
    rows: dict[str, Mapping[str, Value]] = {}
    for name, group in groups.items():
        measured: list[dict[str, Measures]] = [
            {key: average(each) for key, each in read_measures(run.folder).items()} for run in group
        ]
        for key in dict.fromkeys(key for each in measured for key in each):
            each = [m[key] for m in measured if key in m]
            rows[f"{name}, {in_words(key)}"] = each[0] if len(each) == 1 else mean_and_std(each)
    return rows


DRAWN = 100  # episodes in a picture at most: of a thousand nobody sees one, and they take a minute


def episode_rows(group: Sequence[Run]) -> dict[str, dict[str, list[Any]]]:
    """Greedy episodes of the first seeds, for `episode_pictures.save_rows`: a row per kind of starts."""
    rows: dict[str, dict[str, list[Any]]] = {}
    for run in group[:IN_A_ROW]:
        measures = read_measures(run.folder)
        for key, episodes in read_episodes(run.folder).items():
            bad = average(measures[key]).get("violations")
            head = f"seed {run.spec.seed}" + ("" if bad is None else f": {bad:.3g} violations per episode")
            rows.setdefault(f"{key.partition('/')[2]} starts", {})[head] = episodes[:DRAWN]
    return rows
