"""The report of a study, or of a list of runs: report.html and report.md.

The page begins with the question, a picture, a sentence for each setting and a table with a dot per seed. A section per
setting follows, with training curves and episodes to choose from. All other parts are collapsed. report.md has the same
text and tables. Only the HTML page has curves and episodes. A "tray" is a drawing of episodes seen from above.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scopil.eval.tables import cell as figure
from scopil.files import write_atomically
from scopil_bench.report import page, summary, svg
from scopil_bench.report.page import Beside, Block, Command, Drawn, Fold, Grid, Heading, Items, Link, Text
from scopil_bench.report.study_tables import NONE, Layout, shown_tables, table_blocks, tables, verdict_grids
from scopil_bench.report.views import Films, View, Views, median_seed
from scopil_bench.summaries import SAFE, Cell, Results, Timing, Verdict, evaluations_of

SHORT = "These are short runs of {steps} steps that test the software. They are no evidence about the methods."
LESS = "These are runs of {steps} steps (budget {budget!r}). The study's main budget is {full!r}."
QUESTION = (
    "How often does each method break the rules, from demonstrated and from unseen starts, and what reward does it get?"
)
COMPARED = "For each setting: the first method, then the methods that it is compared with, starting with the best:"
ON_THE_PAGE = "Training curves and episodes are drawn on the page report.html."
EVERY_RUN = "Every run, seed by seed"  # left out of the printed page: results.csv has the same numbers
HERO = 4  # maximum number of trays in the first picture


class Answer(NamedTuple):
    """The answer to a question of a study: one sentence, and the numbers that support it."""

    question: str
    verdict: str
    details: Sequence[str] = ()


class StudyReport(NamedTuple):
    """The content of a page."""

    title: str
    layout: Layout
    results: Results
    command: str  # the shell command that makes the page again
    question: str = ""  # empty: QUESTION
    about: str = ""
    budget: str = ""
    full_budget: str = ""  # the budget that counts as evidence
    seeds: int | None = None  # number of seeds wanted per method; None: no number is expected
    missing: Mapping[str, str] = {}  # unfinished run → its progress
    failed: Mapping[str, str] = {}  # failed run → the last line of its log
    answers: Sequence[Answer] = ()
    glossary: Sequence[str] = ()
    method_notes: Sequence[str] = ()
    ranges: Sequence[Verdict] = ()
    targets: Sequence[Verdict] = ()
    timings: Mapping[str, Timing] = {}
    versions: Mapping[str, Sequence[str]] = {}
    tuning: Sequence[Block] = ()  # the section about the search for settings
    views: Views = Views()
    folders: Mapping[Cell, Sequence[str]] = {}  # folders of the runs, relative to the page


def write(out: Path, report: StudyReport) -> None:
    """Write report.md and report.html; for a study also tables.md, which depends only on the results."""
    if report.layout.tables:
        figures = tables(report.layout, report.results, report.ranges, report.targets)
        write_atomically(out / "tables.md", page.to_markdown("Tables", figures, out).encode())
    anchors = summary.anchors_of(report.results)
    links = {cell: f"#{name}" for cell, name in anchors.items()}
    report = report._replace(layout=report.layout._replace(links=links))
    blocks = _page(report, anchors)
    write_atomically(out / "report.md", page.to_markdown(report.title, blocks, out).encode())
    write_atomically(out / "report.html", page.to_html(report.title, blocks, _script_data(report)).encode())


def _page(report: StudyReport, anchors: Mapping[Cell, str]) -> list[Block]:
    layout, results = report.layout, report.results
    compared = summary.compare(layout, results)
    blocks: list[Block] = [Text(report.question or QUESTION, lead=True)]
    if report.budget != report.full_budget and results:
        lengths = {r.steps for runs in results.values() for r in runs}
        steps = " to ".join(f"{n:,}" for n in sorted({min(lengths), max(lengths)}))
        text = SHORT if report.budget == "short" else LESS
        blocks.append(Text(text.format(steps=steps, budget=report.budget, full=report.full_budget)))
    sentences = _sentences(report.answers, summary.verdicts(layout, results, compared))
    if note := summary.how_compared(compared):
        sentences.append(Drawn(f'<p class="note">{escape(note)}</p>', [Text(note)]))
    hero = _hero(report)
    blocks += [Beside(hero, sentences)] if hero and sentences else [*hero, *sentences]
    if results:
        blocks.append(summary.table(layout, results, report.seeds, anchors, _colours(report)))
    blocks += [*_done(report), *_reading(report, compared)]
    for setting, title in summary.settings_of(layout, results).items():
        blocks += [Heading(title), *_section(report, setting, anchors)]
    if report.targets or report.ranges:
        blocks.append(Heading("Expected results"))
    for title, held, grid in verdict_grids(report.ranges, report.targets):
        blocks.append(Fold(f"{title}: {held}", [grid]))
    blocks += report.tuning
    blocks += [Heading("How this was made"), Text("To make this page again:"), Command(report.command)]
    if report.timings:
        blocks.append(Fold("Wall-clock", _clock(report)))
    if report.versions:
        lines = [f"{package}: {', '.join(versions)}" for package, versions in report.versions.items()]
        blocks.append(Fold("Versions", [Items(lines)]))
    return blocks


def _sentences(answers: Sequence[Answer], verdicts: Sequence[str]) -> list[Block]:
    """The answers, and a sentence for each setting."""
    lines = [f"<b>{escape(a.question)}</b> {escape(a.verdict)}" for a in answers] + [*map(escape, verdicts)]
    lines = [line.replace("p = ", "p&nbsp;=&nbsp;") for line in lines]  # no line break inside p = …
    words = Items([*(f"{a.question} {a.verdict}" for a in answers), *verdicts])
    return [Drawn(f"<ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>", [words])] if lines else []


def _done(report: StudyReport) -> list[Block]:
    """The number of finished runs, and a collapsed list of missing runs."""
    finished = sum(map(len, report.results.values()))
    if not (lines := _gaps(report)):
        return [Text(f"All {finished} runs are finished.")] if report.seeds else []
    total = finished + len(set(report.missing) | set(report.failed))
    head = f"{finished} of {total} runs are finished" if total > finished else f"{finished} runs are finished"
    return [Text(f"{head}."), Fold("Missing runs", [Items(lines)], paper=False)]


def _gaps(report: StudyReport) -> list[str]:
    layout, shown = report.layout, shown_tables(report.layout, report.results)
    lines = [f"{t.title}: not run." for t in layout.tables.values() if t not in shown]
    for table in shown:
        cells = [Cell(table.setting, m) for m in table.shown]
        gaps = [c for c in cells if c not in report.results and (c.method in table.trained or layout.printed_row(c))]
        lines += [f"{table.title}: no finished run of {layout.title_of(c.method)}." for c in gaps]
    for where, runs in report.results.items():
        if report.seeds is not None and len(runs) < report.seeds:
            lines.append(f"{layout.cell_title(where)}: {summary.seeds_done(runs, report.seeds)}.")
    lines += [f"{run}: failed ({line})." for run, line in report.failed.items()]
    return lines + [f"{run}: {state}." for run, state in report.missing.items() if run not in report.failed]


def _reading(report: StudyReport, compared: Sequence[summary.Comparison]) -> list[Block]:
    blocks: list[Block] = []
    if report.about:
        blocks.append(Fold("About this study", [Text(report.about)]))
    details: list[Block] = []
    for a in report.answers:
        details += [Text(a.question), Text(a.verdict), Items(a.details)] if a.details else []
    if details:
        blocks.append(Fold("Evidence for the answers", details))
    if compared:
        grid = summary.comparisons_grid(report.layout, report.results, compared)
        blocks.append(Fold("All comparisons", [Text(COMPARED), grid]))
    if report.method_notes:
        blocks.append(Fold("The methods", [Items(report.method_notes)]))
    if report.glossary:
        blocks.append(Fold("How to read the tables", [Items(report.glossary)]))
    return blocks


# --- the first picture, and a section per setting ------------------------------------------------------------------


def _colours(report: StudyReport) -> dict[str, int]:
    """One colour per method on the whole page."""
    titles = _titles(report)
    return dict(zip(titles, svg.colours_of(list(titles.values()))))


def _tray_ids(report: StudyReport) -> dict[str, str]:
    return {setting: f"tray-{i}" for i, setting in enumerate(report.views.trays)}


def _hero(report: StudyReport) -> list[Block]:
    """The first picture: trays of the setting with the most methods, or else the curves of violations."""
    layout, results, views, ids = report.layout, report.results, report.views, _tray_ids(report)
    settings = summary.settings_of(layout, results)
    trays = {setting: _hero_trays(report, setting) for setting in settings if setting in views.trays}
    setting = max(trays, key=lambda s: len(trays[s]), default=None)
    defs = svg.backgrounds(views.trays, ids) if ids else ""
    if setting is not None and trays[setting]:
        figures = []
        for method, seed, view in trays[setting]:
            head = f"{layout.title_of(method)}, seed {seed}"
            many = "" if view["violations"] is None else f"{view['violations']:.3g} violations per episode"
            key = f'<i class="key {svg.colour(_colours(report)[method])}"></i>'
            figures.append(
                f"<figure>{svg.tray(ids[setting], view, f'{head}: {many}')}"
                f"<figcaption>{key}<b>{escape(head)}</b><br>{escape(many)}</figcaption></figure>"
            )
        shown = [view["episodes"] for _, _, view in trays[setting]]
        fewer = f" ({min(shown)} for long episodes)" if len(set(shown)) > 1 else ""
        caption = (
            f"{settings[setting]}: greedy episodes from the first {max(shown)} unseen starts{fewer}. All methods have "
            f"the same starts. The seed shown has the median number of violations. A dot is a state, a red square a "
            f"violation."
        )
        html = f'<div class="hero">{"".join(figures)}</div><p class="note">{escape(caption)}</p>'
        return [Drawn(defs + html, [Text(ON_THE_PAGE)])]
    for setting in settings:
        if panels := views.curves.get(setting):
            wanted = [p for p in panels if p["metric"].startswith("eval/violations")] or panels
            said = f"{settings[setting]}, during training: mean over seeds, with a band of one standard deviation."
            titles = {m: title for m, title in _titles(report).items() if m in wanted[0]["methods"]}
            chart = svg.legend(titles, _colours(report)) + _charts(report, wanted)[0]
            return [Drawn(f'{defs}{chart}<p class="note">{escape(said)}</p>', [Text(ON_THE_PAGE)])]
    return []


def _hero_trays(report: StudyReport, setting: str) -> list[tuple[str, int, View]]:
    """(method, median seed, its episodes from unseen starts) for the first methods that have such episodes."""
    kept, found = report.views.trays[setting]["runs"], []
    for method in summary.methods_of(report.layout, report.results, setting):
        seed = median_seed(report.results[Cell(setting, method)])
        if (view := kept.get(method, {}).get(str(seed), {}).get("unseen")) is not None:
            found.append((method, seed, view))
    return found[:HERO]


def _titles(report: StudyReport) -> dict[str, str]:
    return {cell.method: report.layout.title_of(cell.method) for cell in report.results}


def _section(report: StudyReport, setting: str, anchors: Mapping[Cell, str]) -> list[Block]:
    layout, results, views = report.layout, report.results, report.views
    blocks: list[Block] = []
    if curves := views.curves.get(setting):
        blocks.append(Drawn(_curves(report, setting, curves)))
    if setting in views.trays:
        blocks.append(Drawn(_trays(report, setting)))
    if setting in views.films:
        blocks.append(Drawn(_films(report, views.films[setting])))
    if inner := views.inner.get(setting):
        charts = f'<div class="charts">{"".join(_charts(report, inner, seeds=False))}</div>'
        blocks.append(Drawn(f"<details><summary>Training metrics of the algorithms</summary>{charts}</details>"))
    mine = [t for t in shown_tables(layout, results) if t.setting == setting]
    for table in mine:
        title = "All measures" if len(mine) == 1 else f"All measures: {table.title}"
        blocks.append(Fold(title, table_blocks(layout, table, results)))
    if layout.extra is not None:
        blocks += layout.extra(setting, results)
    return [*blocks, Fold(EVERY_RUN, list(_runs(report, setting, anchors)), paper=False)]


def _curves(report: StudyReport, setting: str, panels: Sequence[View]) -> str:
    colours, titles = _colours(report), _titles(report)
    methods = summary.methods_of(report.layout, report.results, setting)
    ticks = "".join(
        f'<label><input type="checkbox" checked data-method="{escape(m)}">'
        f'<i class="key {svg.colour(colours[m])}"></i>{escape(titles[m])}</label>'
        for m in methods
        if any(m in panel["methods"] for panel in panels)
    )
    seeds = '<label class="every-seed"><input type="checkbox" class="seeds">every seed</label>'
    played = [panel["episodes"] for panel in panels if panel.get("episodes")]
    many = f" of {min(played)} or more episodes" if played else ""
    note = f"Greedy evaluations{many} during training: mean over seeds, with a band of one standard deviation."
    return (
        f'<div class="curves" data-setting="{escape(setting)}"><div class="controls">{ticks}{seeds}</div>'
        f'<div class="charts">{"".join(_charts(report, panels))}</div><p class="note">{note}</p></div>'
    )


def _charts(report: StudyReport, panels: Sequence[View], seeds: bool = True) -> list[str]:
    """SVG charts. If methods were trained for different numbers of steps, each title states the number."""
    several = len({panel["trained"] for panel in panels}) > 1
    titled = [
        panel | {"title": f"{panel['title']}, trained for {panel['trained']:,} steps"} if several else panel
        for panel in panels
    ]
    return [svg.chart(panel, _colours(report), _titles(report), seeds) for panel in titled]


def _trays(report: StudyReport, setting: str) -> str:
    """Up to three trays: the first methods, and the demonstrations if they can be drawn."""
    kept, layout = report.views.trays[setting], report.layout
    shown: list[tuple[str, str, str, str, Mapping[str, Any]]] = []
    methods = [m for m in summary.methods_of(layout, report.results, setting) if m in kept["runs"]]
    for method in methods[: 2 if "demonstrations" in kept else 3]:
        seed, by_starts = next(iter(kept["runs"][method].items()))
        starts = "unseen" if "unseen" in by_starts else next(iter(by_starts))
        title = f"{layout.title_of(method)}, seed {seed}, {starts} starts"
        shown.append((title, method, seed, starts, by_starts[starts]))
    if "demonstrations" in kept:
        shown.append(("Demonstrations", "", "", "unseen", kept["demonstrations"]))
    figures = [
        f'<figure class="play" data-method="{escape(method)}" data-seed="{escape(seed)}" '
        f'data-starts="{escape(starts)}">'
        f"{svg.tray(_tray_ids(report)[setting], view, title)}<figcaption>{escape(title)}</figcaption></figure>"
        for title, method, seed, starts, view in shown
    ]
    note = (
        "Greedy episodes, seen from above. A dot is a state, a red square a violation."
        '<span class="act"> Point at a red square to read which rule is violated.</span>'
    )
    return (
        f'<div class="trays" data-setting="{escape(setting)}"><div class="some">{"".join(figures)}</div>'
        f'<p class="note">{note}</p></div>'
    )


def _films(report: StudyReport, found: Films) -> str:
    if found.why_none:
        return f'<p class="note">No pictures of episodes: {escape(found.why_none)}</p>'
    titles, colours, figures = _titles(report), _colours(report), []
    for film in found.films:
        key = f'<i class="key {svg.colour(colours[film.method])}"></i>' if film.method else ""
        head = f"{titles[film.method]}, seed {film.seed}" if film.method else "Demonstrator"
        many = "" if film.violations is None else f"{film.violations} violation{'s' * (film.violations != 1)}, "
        said = f"{many}reward {figure('reward', film.reward)}"
        image = f'<img src="{film.moving}" alt="{escape(f"{head}: {said}")}">'
        still = f'<source media="(prefers-reduced-motion: reduce)" srcset="{film.still}">'
        caption = f"<figcaption>{key}<b>{escape(head)}</b><br>{escape(said)}</figcaption>"
        figures.append(f"<figure><picture>{still}{image}</picture>{caption}</figure>")
    note = "One greedy episode of each method, from the same unseen start; the seed is the median one."
    if any(film.violations is not None for film in found.films):
        note += " Below the picture is a time line of each rule. A red edge and a red line mark violations."
    return f'<div class="films">{"".join(figures)}</div><p class="note">{note}</p>'


def _runs(report: StudyReport, setting: str, anchors: Mapping[Cell, str]) -> Iterator[Block]:
    """A table of all runs with their results and folders. Every number on the page links to it."""
    for where, runs in report.results.items():
        if where.setting != setting:
            continue
        keys = evaluations_of(runs)
        pairs = [(k, m) for m in ("violations", "reward") for k in keys if any(m in r.means[k] for r in runs)]
        head = ["Run", "Steps", *(f"{m.capitalize()}, {k.replace('/', ', ')}" for k, m in pairs)]
        head += [f"Steps to ≤ {SAFE:g}"]
        rows: list[list[str | Link]] = []
        for run, folder in zip(runs, report.folders.get(where, [""] * len(runs))):
            name = f"seed {run.seed}"
            cells = [figure(m, run.means[k].get(m)) for k, m in pairs]
            safe = NONE if run.first_safe is None else f"{run.first_safe:,}"
            rows.append([Link(name, folder) if folder else name, f"{run.steps:,}", *cells, safe])
        yield Heading(report.layout.title_of(where.method), 4, anchors[where])
        yield Grid(head, rows, ids={i: f"{anchors[where]}-{i}" for i in range(len(runs))})


def _script_data(report: StudyReport) -> dict[str, Any] | None:
    """Data for the page's script: trays to choose from, and means to show at the pointer. None without such data."""
    views = report.views
    if not views.curves and not views.trays:
        return None
    curves: dict[str, list[View]] = {}
    for setting, panels in views.curves.items():
        lines = [panel["methods"].items() for panel in panels]
        curves[setting] = [{m: {key: one[key] for key in ("steps", "mean")} for m, one in each} for each in lines]
    shown = ("runs", "demonstrations")
    trays = {setting: {k: v for k, v in view.items() if k in shown} for setting, view in views.trays.items()}
    return {"titles": _titles(report), "curves": curves, "trays": trays}


def _clock(report: StudyReport) -> list[Block]:
    rows = []
    for where, runs in report.results.items():
        mine = [t for r in runs if (t := report.timings.get(f"{where.setting}/{where.method}-{r.seed}"))]
        if mine:
            safe = np.sort([np.inf if t.to_first_safe is None else t.to_first_safe for t in mine])
            first = f"{np.median(safe):,.0f} s" if np.isfinite(safe[len(safe) // 2]) else "–"
            rows.append([report.layout.cell_title(where), f"{np.median([t.seconds for t in mine]):,.0f} s", first])
    total = sum(t.seconds for t in report.timings.values())
    text = (
        f"Medians over seeds, including compilation. Each run used one core of a machine that may have run other "
        f"processes. All runs together: {total / 3600:.1f} core hours."
    )
    return [Text(text), Grid(["", "Per run", f"To ≤ {SAFE:g} avoidable violations per episode"], rows)]
