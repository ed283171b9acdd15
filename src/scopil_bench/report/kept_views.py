"""Views beside the report, a file per setting: the page can be made again without the runs, or when some of them are
gone."""

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from scopil.errors import ConfigError
from scopil.files import parse_json, write_atomically
from scopil_bench.report.views import View, Views, budget_of, line_of
from scopil_bench.summaries import Cell

FOLDER = "views"  # views/<setting>.json


def save(out: Path, views: Views) -> None:
    """A file for each setting; those of other settings are removed. A setting's name is quoted: whatever it is, the
    file lies in this folder."""
    folder, written = out / FOLDER, set()
    for setting in dict.fromkeys([*views.curves, *views.trays]):
        parts: View = {"curves": list(views.curves.get(setting, ()))}
        if setting in views.trays:
            parts["tray"] = views.trays[setting]
        file = folder / f"{quote(setting, safe='')}.json"
        write_atomically(file, json.dumps(parts, separators=(",", ":")).encode() + b"\n")
        written.add(file)
    for file in {*folder.glob("*.json")} - written:
        file.unlink()


def load(out: Path) -> Views:
    """Nothing drawn where there are no such files."""
    curves, trays = {}, {}
    for file in sorted((out / FOLDER).glob("*.json")):
        kept: Any = None
        with suppress(OSError, ValueError):
            kept = parse_json(file.read_bytes())
        if not _fits(kept, _SHAPE) or not _is_drawable(kept):
            raise ConfigError(
                f"{file} is damaged; want the curves and trays of a setting, as scopil study writes them. Delete it "
                f"for a page without them."
            )
        setting = unquote(file.stem)
        if kept["curves"]:
            curves[setting] = kept["curves"]
        if "tray" in kept:
            trays[setting] = kept["tray"]
    return Views(curves, trays)


OPTIONAL = ("tray", "demonstrations")
_NUMBER = (int, float, type(None))
_LINE = {"steps": [int], "mean": [_NUMBER], "std": [(int, float)], "seeds": {str: [_NUMBER]}}
_PANEL = {"metric": str, "title": str, "trained": int, "methods": {str: _LINE}}
_EPISODES = {"paths": str, "broken": [[(int, str)]], "episodes": int}
_TRAY = {
    "background": str,
    "corners": [(int, float)],
    "runs": {str: {str: {str: _EPISODES | {"violations": _NUMBER}}}},
    "demonstrations": _EPISODES,
}
_SHAPE = {"curves": [_PANEL], "tray": _TRAY}
_PATHS = re.compile(r"(?:M-?\d+ -?\d+(?:l-?\d+ -?\d+(?: -?\d+ -?\d+)*)?)*")


def _fits(value: Any, shape: Any) -> bool:
    """Whether a value of JSON has a shape: a type or several, [of each item], {str: of each value} or {name: …}."""
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(item, shape[0]) for item in value)
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return False
        if str in shape:
            return all(_fits(item, shape[str]) for item in value.values())
        return all(_fits(value[name], inner) if name in value else name in OPTIONAL for name, inner in shape.items())
    return isinstance(value, shape) and not (isinstance(value, float) and not math.isfinite(value))


def _is_drawable(kept: View) -> bool:
    """Whether what has the right shape also agrees with itself, as drawing and joining it take for granted."""
    lines = [line for panel in kept["curves"] for line in panel["methods"].values()]
    sound = all(panel["methods"] for panel in kept["curves"]) and all(map(_is_line, lines))
    if "tray" not in kept:
        return sound
    tray = kept["tray"]
    corners = tray["corners"]
    seeds = [by_starts for each in tray["runs"].values() for by_starts in each.values()]
    shown = [view for by_starts in seeds for view in by_starts.values()]
    return (
        sound
        and (len(corners) == 4 and corners[0] != corners[1] and corners[2] != corners[3])
        and tray["background"].startswith("data:image/")
        and all(map(bool, (*tray["runs"].values(), *seeds)))
        and all(seed.isdecimal() for each in tray["runs"].values() for seed in each)
        and all(map(_is_whole, [*shown, *([tray["demonstrations"]] if "demonstrations" in tray else [])]))
    )


def _is_line(line: View) -> bool:
    """Everything at every step."""
    columns = [line["mean"], line["std"], *line["seeds"].values()]
    known = all(seed.isdecimal() for seed in line["seeds"])
    return bool(line["steps"] and line["seeds"]) and known and {len(line["steps"])} == {*map(len, columns)}


def _is_whole(view: View) -> bool:
    """As many paths as episodes, and violations that are of these."""
    return (
        _PATHS.fullmatch(view["paths"]) is not None
        and view["paths"].count("M") == view["episodes"]
        and all(
            [type(part) for part in mark] == [int, int, int, int, str] and 0 <= mark[2] < view["episodes"]
            for mark in view["broken"]
        )
    )


# --- of runs that are gone -----------------------------------------------------------------------------------------


def of_runs(views: Views, runs: Collection[tuple[Cell, int]]) -> Views:
    """Only what shows these runs, by cell and seed."""
    curves: dict[str, list[View]] = {}
    for setting, panels in views.curves.items():
        for panel in panels:
            lines = {m: _of_seeds(line, _seeds(runs, setting, m)) for m, line in panel["methods"].items()}
            if lines := {method: line for method, line in lines.items() if line}:
                curves.setdefault(setting, []).append(panel | {"methods": lines})
    trays: dict[str, View] = {}
    for setting, tray in views.trays.items():
        kept = {
            method: {seed: view for seed, view in each.items() if seed in _seeds(runs, setting, method)}
            for method, each in tray["runs"].items()
        }
        if kept := {method: each for method, each in kept.items() if each}:
            trays[setting] = tray | {"runs": kept}
    return Views(curves, trays)


def _seeds(runs: Collection[tuple[Cell, int]], setting: str, method: str) -> set[str]:
    return {str(seed) for cell, seed in runs if cell == (setting, method)}


def _of_seeds(line: View, seeds: Collection[str]) -> View | None:
    """The line of some of its seeds, with their mean and deviation."""
    kept = {seed: values for seed, values in line["seeds"].items() if seed in seeds}
    return line if len(kept) == len(line["seeds"]) else _averaged(line["steps"], kept)


def _averaged(steps: Sequence[int], seeds: Mapping[str, Sequence[float | None]]) -> View | None:
    """The line of these seeds, as of runs that logged nothing else."""
    return line_of(
        {seed: [{"env_steps": s, "": v} for s, v in zip(steps, values)] for seed, values in seeds.items()}, ""
    )


def joined(new: Views, earlier: Views, order: Iterable[Cell]) -> Views:
    """Views of runs that are there, and of others that are gone; methods in the order of these cells. `earlier` shows
    no run that `new` shows: `of_runs` leaves such out."""
    order = list(order)
    settings = dict.fromkeys([*(cell.setting for cell in order), *new.curves, *new.trays])
    rank = {setting: [cell.method for cell in order if cell.setting == setting] for setting in settings}
    curves = {s: _panels(new.curves.get(s, ()), earlier.curves.get(s, ()), rank[s]) for s in settings}
    trays = {s: _tray(new.trays.get(s), earlier.trays.get(s), rank[s]) for s in settings}
    found = {setting: tray for setting, tray in trays.items() if tray}
    return Views({s: panels for s, panels in curves.items() if panels}, _within_budget(found), new.inner)


def _panels(new: Sequence[View], earlier: Sequence[View], methods: Sequence[str]) -> list[View]:
    """By metric and length of training."""
    found: dict[tuple[str, int], View] = {}
    for panel in (*new, *earlier):
        there = found.setdefault((panel["metric"], panel["trained"]), panel | {"methods": {}})["methods"]
        for method, line in panel["methods"].items():
            there[method] = _both(there[method], line) if method in there else line
    panels = sorted(found.values(), key=lambda panel: panel["trained"])
    return [panel | {"methods": _sorted(panel["methods"], methods)} for panel in panels]


def _both(new: View, earlier: View) -> View:
    """The seeds of both, at the steps at which both were evaluated; the line with more seeds, where there are none."""
    steps = sorted({*new["steps"]} & {*earlier["steps"]})
    if not steps:
        return max(new, earlier, key=lambda line: len(line["seeds"]))
    seeds = {
        seed: [values[line["steps"].index(step)] for step in steps]
        for line in (earlier, new)
        for seed, values in line["seeds"].items()
    }
    return _averaged(steps, _by_seed(seeds)) or new


def _tray(new: View | None, earlier: View | None, methods: Sequence[str]) -> View | None:
    """The same tray with the runs of both. Earlier runs are left out where the environment is drawn otherwise now."""
    if new is None or earlier is None:
        return new or earlier
    if not np.allclose(new["corners"], earlier["corners"]):
        return new
    runs = {
        method: _by_seed(earlier["runs"].get(method, {}) | new["runs"].get(method, {}))
        for method in (*new["runs"], *earlier["runs"])
    }
    return earlier | new | {"runs": _sorted(runs, methods)}


def _by_seed(each: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(each.items(), key=lambda item: int(item[0])))


def _sorted(by_method: Mapping[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    return {m: by_method[m] for m in dict.fromkeys([*methods, *by_method]) if m in by_method}


def _within_budget(trays: Mapping[str, View]) -> dict[str, View]:
    """Episodes cut from trays so that the states of all of them stay below STATES."""
    budget = budget_of(sum(len(each) for tray in trays.values() for each in tray["runs"].values()))
    return {
        setting: tray
        | {
            "runs": {
                method: {
                    seed: {starts: _cut(view, budget) for starts, view in by_starts.items()}
                    for seed, by_starts in each.items()
                }
                for method, each in tray["runs"].items()
            }
        }
        for setting, tray in trays.items()
    }


def _cut(view: View, budget: int) -> View:
    """As many episodes as the budget of states allows, three at least."""
    paths = view["paths"].split("M")[1:]
    states = np.cumsum([(path.count(" ") + path.count("l") + 1) // 2 for path in paths])
    kept = max(3, int(np.searchsorted(states, budget, side="right")))
    if kept >= len(paths):
        return view
    broken = [mark for mark in view["broken"] if mark[2] < kept]
    return view | {"paths": "M" + "M".join(paths[:kept]), "broken": broken, "episodes": kept}
