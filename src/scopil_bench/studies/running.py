"""A study from training to its report. Stop it at any time; called again it continues."""

import json
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from scopil.envs.gym_env import open_env
from scopil.envs.jax_env import CompiledEnv
from scopil.errors import ConfigError, DatasetError, EnvError
from scopil.eval.env_hooks import Drawing, drawing
from scopil.eval.episodes import replay
from scopil.eval.measures import Measures, label
from scopil.eval.pictures import new_figure
from scopil.eval.rules import Rules, own_rules, with_rules
from scopil.files import write_atomically
from scopil.train.run import Run
from scopil_bench import planning, results
from scopil_bench.report import kept_views, study_figures, study_page, views
from scopil_bench.report.page import Block, Fold, Grid, Picture, Text
from scopil_bench.report.study_page import StudyReport, hero_caption, hero_methods, median_seed
from scopil_bench.report.study_tables import Layout, shown_tables
from scopil_bench.report.summary import settings_of
from scopil_bench.runner import Engine, execute_with_progress, name
from scopil_bench.studies import find, find_installed
from scopil_bench.studies.base import Study, run_folder
from scopil_bench.summaries import Cell, Results, Timing
from scopil_bench.tuning import read_trials

REFERENCES = "references.json"  # measures of reference episodes, by setting
FROM_UNSEEN = "Episodes from unseen starts."


def run_study(
    study: str | Study,
    out: str | Path,
    *,
    budget: str | None = None,
    only: Sequence[str] = (),
    seeds: int | None = None,
    steps: int | None = None,
    workers: int = 2,
    engine: Engine | None = None,
    console: Console | None = None,
) -> StudyReport:
    """Train, evaluate and report a study.

    Args:
        study: its name, or a `Study` of your own.
        out: where runs, results and the report go.
        budget: one of the study's; by default its first.
        only: some of its tables; by default all.
        seeds: runs per method; by default the budget's.
        steps: environment steps per run, instead of the budget's.
        workers: runs at a time, one core each.
        engine: where runs are trained; by default processes on this machine.
    """
    study = find(study) if isinstance(study, str) else study
    budget, out, console = check_budget(study, budget), Path(out), console or Console()
    seeds = study.budgets[budget].seeds if seeds is None else seeds
    for what, value in (("seeds", seeds), ("workers", workers)):
        if value < 1:
            raise ConfigError(f"{what} = {value}; want at least 1.")
    wanted = study.cells(only)
    new_figure()  # refuses before hours of training when matplotlib is missing
    before = planning.still_planned(study, out, budget, steps, results.earlier(out, study.name, budget))
    kept_views.load(out)  # refuses damaged ones before the training too
    todo = planning.create(study, out, budget, wanted, seeds, steps, _runs_of(before))
    failed = execute_with_progress(todo, workers, console, engine)
    lines = {name(run): line for run in todo if (line := failed.get(run.folder))}
    options = {"--only": ",".join(only), "--seeds": str(seeds), "--budget": budget, "--out": str(out)}
    options |= {} if steps is None else {"--steps": str(steps)}
    return write_report(study, out, command_for(study, options), lines, console)


def report_study(out: Path, console: Console, trust_env: bool = False) -> StudyReport:
    """The report of what is finished in a study's folder; nothing is trained. Where the folder names a study's file,
    that is read, with the code it names, only if the caller trusts it."""
    note = planning.read_note(out)
    if note.source is not None and not trust_env:
        raise ConfigError(
            f"{out} holds a study of the file {note.source}: scopil study {note.source} --out {out} reports it, and "
            f"so does --trust-env."
        )
    study = find_installed(note.study) if note.source is None else find(note.source)
    options = {"--budget": note.budget, "--out": str(out)}
    options |= {} if note.steps is None else {"--steps": str(note.steps)}
    return write_report(study, out, command_for(study, options), {}, console)


def command_for(study: Study, options: Mapping[str, str]) -> str:
    """The command that does it again."""
    words = ["scopil", "study", study.source or study.name]
    return shlex.join([*words, *(word for pair in options.items() if pair[1] for word in pair)])


def report_results(out: Path) -> StudyReport:
    """The report from results.json and figures alone, where the run folders are kept elsewhere or were removed."""
    loaded = results.load(out)
    study = find_installed(loaded.study)
    order = {cell: i for i, cell in enumerate(study.cells())}
    played = dict(sorted(loaded.results.items(), key=lambda item: order.get(item[0], len(order))))
    pictures: dict[str, list[Picture]] = {}
    first = out / "figures" / study_figures.FIRST
    for file in sorted({*(out / "figures").glob("*.png")} - {first}):
        pictures.setdefault(_setting_of(study, file.stem), []).append(Picture(file, file.stem.replace("-", " ")))
    command = shlex.join(["scopil", "report", str(out)])
    report = _report(
        study,
        loaded.budget,
        command,
        layout_of(study, _read_references(out)),
        played,
        missing=loaded.missing,
        timings=results.load_timings(out),
        pictures=pictures,
        views=kept_views.of_runs(kept_views.load(out), _runs_of(played)),
    )
    if first.exists():
        report = report._replace(first_picture=Picture(first, FROM_UNSEEN))
    study_page.write(out, report)
    return report


def _setting_of(study: Study, stem: str) -> str:
    """The setting that a picture's name holds; empty where it holds none."""
    named = [setting for setting in study.tasks if f"-{setting}-" in f"{stem}-"]
    return max(named, key=len, default="")


def check_budget(study: Study, budget: str | None) -> str:
    if budget is None:
        return next(iter(study.budgets))
    if budget not in study.budgets:
        raise ConfigError(f"{study.name} has no budget {budget!r}; it has {', '.join(study.budgets)}.")
    return budget


def write_report(study: Study, out: Path, command: str, failed: Mapping[str, str], console: Console) -> StudyReport:
    """Evaluate what is not yet evaluated, and write results, tables, pictures and the page."""
    note = planning.read_note(out)
    budget = check_budget(study, note.budget)
    runs = planning.found(study, out)
    finished = {c: done for c, rs in runs.items() if (done := [r for r in rs if r.finished])}
    missing = {name(r): results.state(r) for rs in runs.values() for r in rs if not r.finished}
    known = results.earlier(out, study.name, budget)
    before = planning.still_planned(study, out, budget, note.steps, known)
    there = {(cell, run.spec.seed) for cell, rs in runs.items() for run in rs}
    if lost := _runs_of(known) - _runs_of(before) - there:
        console.print(
            f"{len(lost)} results of runs that are gone are left out: the study would make these runs otherwise now."
        )
    gone = kept_views.of_runs(kept_views.load(out), _runs_of(before))
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("evaluating", total=sum(map(len, finished.values())))
        played = results.evaluate_study(study, finished, lambda: bar.advance(task))
        played = results.joined(played, before, [*study.cells(), *runs])  # colours follow this order
        here = {cell.setting for cell in finished}
        layout = layout_of(study, _references(study, out, played, here))
        bar.add_task("drawing", total=None)
        with _Scenes(study, finished) as scenes:
            shown = kept_views.joined(views.Views(views.curves(finished), scenes.trays(finished)), gone, order=played)
            pictures = _pictures(scenes, layout, out, played, finished, shown)
    results.save(out, study.name, budget, results.all_of(played), missing)
    kept_views.save(out, shown)
    timings = results.load_timings(out) | results.timings(r for rs in finished.values() for r in rs)
    results.save_timings(out, timings)
    report = _report(
        study,
        budget,
        command,
        layout,
        played,
        missing=missing,
        timings=timings,
        pictures=pictures,
        views=shown,
        folders={cell: [_folder(out, cell, r.seed) for r in each] for cell, each in played.items()},
        failed=failed,
        versions=_versions([r for rs in finished.values() for r in rs]),
        tuning=_tuning(out),
        steps=note.steps,
        cells=list(runs),
    )
    study_page.write(out, report._replace(first_picture=_first_picture(scenes, report, out, finished)))
    return report


def _runs_of(played: Results) -> set[tuple[Cell, int]]:
    return {(cell, r.seed) for cell, each in played.items() for r in each}


def _folder(out: Path, cell: Cell, seed: int) -> str:
    """Of a run, as seen from the page; empty where it is gone."""
    folder = run_folder(out, cell, seed)
    return os.path.relpath(folder, out) if folder.exists() else ""


def _report(
    study: Study,
    budget: str,
    command: str,
    layout: Layout,
    played: Results,
    *,
    missing: Mapping[str, str],
    timings: Mapping[str, Timing],
    pictures: Mapping[str, Sequence[Picture]],
    views: views.Views,
    folders: Mapping[Cell, Sequence[str]] | None = None,
    failed: Mapping[str, str] | None = None,
    versions: Mapping[str, Sequence[str]] | None = None,
    tuning: Sequence[Block] = (),
    steps: int | None = None,
    cells: Sequence[Cell] = (),
) -> StudyReport:
    ranges, targets = study.expectations(budget, played) if study.expectations else ([], [])
    judged = set(cells) | set(played)
    return StudyReport(
        title=study.title,
        about=study.about,
        layout=layout,
        budget=budget if steps is None else f"{budget}, {steps:,} steps",
        full_budget=next(iter(study.budgets)),
        seeds=study.budgets[budget].seeds,
        command=command,
        results=played,
        missing=missing,
        failed=failed or {},
        answers=study.answers(played) if study.answers else [],
        glossary=study.glossary,
        method_notes=study.method_notes,
        ranges=[v for v in ranges if v.cell in judged],
        targets=[v for v in targets if v.cell in judged],
        timings=timings,
        versions=versions or {},
        pictures=pictures,
        tuning=tuning,
        question=study.question,
        views=views,
        folders=folders or {},
    )


def _tuning(out: Path) -> list[Block]:
    """What `scopil tune` found in this folder, the best first."""
    trials = sorted((t for t in read_trials(out) if t.done), key=lambda t: -t["value"])
    if not trials:
        return []
    names, measures = list(trials[0]["settings"]), list(trials[0]["measures"])[:4]
    text = (
        f"{len(trials)} trials by scopil tune, the best first. They were trained from seeds of their own and judged "
        f"from starts of their own; no other figure on this page comes from these."
    )
    rows = []
    for number, trial in enumerate(trials[:10], 1):
        chosen = [str(trial["settings"][n]) for n in names]
        found = [f"{trial['measures'][m]:.4g}" for m in measures]
        rows.append([str(number), f"{trial['value']:.4g}", *chosen, *found])
    head = ["", "Value", *names, *map(label, measures)]
    return [Fold("Settings that were searched", [Text(text), Grid(head, rows)])]


def layout_of(study: Study, references: Mapping[str, Mapping[str, Measures]] | None = None) -> Layout:
    published = study.published
    return Layout(
        tables=study.tables,
        title_of=study.title_of,
        source=published.source if published else "",
        printed=published.printed if published else {},
        heading=published.heading if published else None,
        references=references or {},
        extra=study.extra_tables,
    )


def _references(study: Study, out: Path, played: Results, here: Collection[str]) -> dict[str, dict[str, Measures]]:
    """The demonstrators' measures, made once per folder and kept there; of a study's file every time, for what it names
    may change. Of a setting whose runs are all gone, what they need may be missing: then it has none."""
    file, kept = out / REFERENCES, _read_references(out)
    settings = dict.fromkeys(cell.setting for cell in played)
    if study.source is not None:
        return {setting: results.demonstrator_measures(study, setting) for setting in settings}
    for setting in settings:
        if setting not in kept:
            try:
                kept[setting] = results.demonstrator_measures(study, setting)
            except (EnvError, DatasetError):
                if setting in here:
                    raise
                continue
            write_atomically(file, json.dumps(kept, indent=1, sort_keys=True).encode() + b"\n")
    return {setting: kept[setting] for setting in settings if setting in kept}


def _read_references(out: Path) -> dict[str, dict[str, Measures]]:
    try:
        return json.loads((out / REFERENCES).read_text())
    except (OSError, ValueError):
        return {}


class _Scenes:
    """The environments of the settings that have runs here, as far as they draw episodes."""

    def __init__(self, study: Study, finished: Mapping[Cell, Sequence[Run]]) -> None:
        self._study = study
        self._envs = {s: open_env(study.tasks[s].env) for s in dict.fromkeys(c.setting for c in finished)}
        found = {setting: drawing(env) for setting, env in self._envs.items()}
        self.draws: dict[str, Drawing] = {setting: draw for setting, draw in found.items() if draw is not None}
        self.demonstrated = {s: run for s in self.draws if (run := self._with_demos(s, finished)) is not None}

    def __enter__(self) -> "_Scenes":
        return self

    def __exit__(self, *_: object) -> None:
        for env in self._envs.values():
            env.close()

    def _with_demos(self, setting: str, finished: Mapping[Cell, Sequence[Run]]) -> Run | None:
        """A run whose demonstrations can be replayed."""
        run = next(mine[0] for cell, mine in finished.items() if cell.setting == setting)
        demos = run.demos()
        replays = isinstance(self._envs[setting], CompiledEnv)
        return run if replays and demos is not None and demos.starts is not None else None

    def shown(self, setting: str) -> study_figures.Shown | None:
        if (run := self.demonstrated.get(setting)) is None:
            return None
        return study_figures.Shown(run.demos_file, self.draws[setting], lambda: self.demonstrations(setting))

    def demonstrations(self, setting: str) -> list[Any]:
        env, demos = self._envs[setting], self.demonstrated[setting].demos()
        assert isinstance(env, CompiledEnv)
        assert demos is not None
        return replay(env, demos)

    def trays(self, finished: Mapping[Cell, Sequence[Run]]) -> dict[str, views.View]:
        demonstrated = {s: lambda s=s: self._judged(s, self.demonstrations(s)) for s in self.demonstrated}
        return views.trays(finished, self.draws, self._judged, demonstrated)

    def _judged(self, setting: str, episodes: Sequence[Any]) -> Sequence[Any]:
        given = self._study.tasks[setting].rules
        rules = own_rules(self._envs[setting]) if given is None else Rules.of(given)
        return episodes if rules is None else with_rules(episodes, rules, self._envs[setting])


def _pictures(
    scenes: _Scenes,
    layout: Layout,
    out: Path,
    played: Results,
    finished: Mapping[Cell, Sequence[Run]],
    shown: views.Views,
) -> dict[str, list[Picture]]:
    """By setting, for Markdown; the page draws them itself where it can."""
    gallery = study_figures.Gallery(out / "figures")
    found: dict[str, list[Picture | None]] = {}
    for setting in settings_of(layout, played):
        found[setting] = [study_figures.demonstrations(gallery, setting, scenes.shown(setting))]
        for key, table in layout.tables.items():
            if table.setting == setting and table in shown_tables(layout, played):
                panels = shown.curves.get(setting, ())
                found[setting] += study_figures.curves(gallery, layout, key, panels)
    for cell in played:
        draw = scenes.draws.get(cell.setting)
        seeds = [result.seed for result in played[cell]]
        drawn = study_figures.episodes(gallery, layout, cell, seeds, finished.get(cell, ()), draw)
        found[cell.setting].append(drawn)
    return {setting: [picture for picture in each if picture] for setting, each in found.items()}


def _first_picture(
    scenes: _Scenes, report: StudyReport, out: Path, finished: Mapping[Cell, Sequence[Run]]
) -> Picture | None:
    """The trays of the first screen, for Markdown. Where a run of them is gone, the picture of before stays: it shows
    more than the others alone would."""
    gallery, setting = study_figures.Gallery(out / "figures"), study_page.hero_setting(report)
    if setting is None:
        return gallery.kept(study_figures.FIRST, FROM_UNSEEN)
    methods, runs = hero_methods(report, setting), {}
    for cell in (Cell(setting, method) for method in methods):
        seed = median_seed(report.results[cell])
        there = [run for run in finished.get(cell, ()) if run.spec.seed == seed]
        runs |= {f"{report.layout.title_of(cell.method)}, seed {seed}": run for run in there}
    before = gallery.kept(study_figures.FIRST, FROM_UNSEEN) if len(runs) < len(methods) else None
    draw = scenes.draws.get(setting)
    if before or draw is None or not runs:
        return before
    caption = hero_caption(settings_of(report.layout, report.results)[setting], [views.EPISODES])
    return study_figures.unseen(gallery, caption, draw, runs, views.EPISODES)


def _versions(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Of every package, all versions that runs were created with."""
    seen: dict[str, set[str]] = {}
    for run in runs:
        for package, version in json.loads((run.folder / "versions.json").read_text()).items():
            seen.setdefault(package, set()).add(version)
    return {package: sorted(versions) for package, versions in seen.items()}
