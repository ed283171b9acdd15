"""The report of a study or of a list of runs: one page for somebody who has not seen the code.

First the question, a picture, the table of dots and a sentence for each setting; then a section per setting with curves
and trays to play with. Everything else is folded. The same as Markdown, and its figures as JSON.
"""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scopil.eval.tables import cell as figure
from scopil.files import write_atomically
from scopil_bench.report import summary, svg
from scopil_bench.report.page import (
    Beside,
    Block,
    Command,
    Drawn,
    Fold,
    Grid,
    Heading,
    Items,
    Link,
    Picture,
    Text,
    to_html,
    to_markdown,
)
from scopil_bench.report.study_tables import NONE, Layout, shown_tables, table_blocks, tables, verdicts_grid
from scopil_bench.report.views import Views
from scopil_bench.summaries import SAFE, Cell, Result, Results, Timing, Verdict, evaluations_of

FORMAT = 1  # of report.json
SHORT = "These are short runs to try the machinery, of {steps} steps. They are no evidence about the methods."
LESS = "Runs of {steps} steps, the budget {budget!r}; the study's own is {full!r}."
QUESTION = "How often does each method break the rules, from starts it was not shown too, and what reward does it get?"
COMPARED = "The first method of every setting, then those that it is compared with, the best first:"
EVERY_RUN = "Every run, seed by seed"  # pages of them: not for paper, results.csv has the same
IN_HERO = 4  # trays of the first picture


class Answer(NamedTuple):
    """To a question of the study: a sentence, and what it rests on."""

    question: str
    verdict: str
    details: Sequence[str] = ()


class StudyReport(NamedTuple):
    """Everything the page is made of."""

    title: str
    about: str
    layout: Layout
    budget: str
    full_budget: str  # the one that counts as evidence
    seeds: int | None  # wanted per method; None: whatever was given
    command: str
    results: Results
    missing: Mapping[str, str]  # run → how far it has come
    failed: Mapping[str, str]  # run → the last line of its log
    answers: Sequence[Answer]
    glossary: Sequence[str]
    method_notes: Sequence[str]
    ranges: Sequence[Verdict]
    targets: Sequence[Verdict]
    timings: Mapping[str, Timing]
    versions: Mapping[str, Sequence[str]]
    pictures: Mapping[str, Sequence[Picture]]  # by setting
    tuning: Sequence[Block] = ()  # settings that were searched
    question: str = ""
    views: Views = Views()
    folders: Mapping[Cell, Sequence[str]] = {}  # of the runs, as seen from the page
    first_picture: Picture | None = None  # what Markdown has for the first picture


def write(out: Path, report: StudyReport) -> None:
    """tables.md (figures alone), report.md, report.html and report.json."""
    save_tables(out, report)
    write_page(out, report)


def save_tables(out: Path, report: StudyReport) -> None:
    figures = tables(report.layout, report.results, report.ranges, report.targets)
    write_atomically(out / "tables.md", to_markdown("Tables", figures, out).encode())


def write_page(out: Path, report: StudyReport) -> None:
    """report.html, and the same as Markdown and JSON."""
    anchors = summary.Anchors.of(report.results)
    links = {cell: f"#{name}" for cell, name in anchors.cells.items()}
    report = report._replace(layout=report.layout._replace(links=links))
    blocks = _page(report, anchors)
    write_atomically(out / "report.json", json.dumps(_as_json(report), indent=1).encode() + b"\n")
    write_atomically(out / "report.md", to_markdown(report.title, blocks, out).encode())
    write_atomically(out / "report.html", to_html(report.title, blocks, _script_data(report)).encode())


def _as_json(report: StudyReport) -> dict[str, Any]:
    compared = summary.compare(report.layout, report.results)
    answers = [answer._asdict() for answer in report.answers]
    body = {"format": FORMAT, "title": report.title, "question": report.question or QUESTION, "answers": answers}
    body |= summary.as_json(report.layout, report.results, report.seeds, compared)
    runs = [r._asdict() | r.cell._asdict() for each in report.results.values() for r in each]
    return body | {"runs": [{k: v for k, v in row.items() if k != "cell"} for row in runs]}


def _page(report: StudyReport, anchors: summary.Anchors) -> list[Block]:
    layout, results = report.layout, report.results
    compared = summary.compare(layout, results)
    blocks: list[Block] = [Text(report.question or QUESTION, lead=True)]
    if report.budget != report.full_budget and results:
        lengths = {r.steps for runs in results.values() for r in runs}
        steps = " to ".join(f"{n:,}" for n in sorted({min(lengths), max(lengths)}))
        said_first = SHORT if report.budget == "short" else LESS
        blocks.append(Text(said_first.format(steps=steps, budget=report.budget, full=report.full_budget)))
    said: list[Block] = _said(report.answers, summary.verdicts(layout, results, compared))
    if note := summary.how_compared(compared):
        said.append(Drawn(f'<p class="note">{escape(note)}</p>', [Text(note)]))
    hero = _hero(report)
    blocks += [Beside(hero, said)] if hero and said else [*hero, *said]
    if results:
        blocks.append(summary.table(layout, results, report.seeds, anchors, _colours(report)))
    blocks += [*_done(report), *_reading(report)]
    for setting, title in summary.settings_of(layout, results).items():
        blocks += [Heading(title), *_section(report, setting, anchors)]
    if report.pictures.get("") and (pictures := report.pictures[""]):
        blocks.append(Fold("Further pictures", pictures, paper=False))
    if report.targets or report.ranges:
        blocks.append(Heading("What was expected"))
    if report.targets:
        blocks.append(Fold(f"Targets: {_counted(report.targets)}", [verdicts_grid(report.targets, "met", "not met")]))
    if report.ranges:
        grid = verdicts_grid(report.ranges, "within", "outside")
        blocks.append(Fold(f"Expected ranges: {_counted(report.ranges)}", [grid]))
    blocks += report.tuning
    blocks += [Heading("How this was made"), Text("To make this page again:"), Command(report.command)]
    if report.timings:
        blocks.append(Fold("Wall-clock", _clock(report)))
    if report.versions:
        lines = [f"{package}: {', '.join(versions)}" for package, versions in report.versions.items()]
        blocks.append(Fold("Versions", [Items(lines)]))
    return blocks


def _said(answers: Sequence[Answer], verdicts: Sequence[str]) -> list[Block]:
    """The answers, and a sentence on each setting."""
    lines = [f"<b>{escape(a.question)}</b> {escape(a.verdict)}" for a in answers] + [*map(escape, verdicts)]
    lines = [line.replace("p = ", "p&nbsp;=&nbsp;") for line in lines]  # a line never ends within
    words = Items([*(f"{a.question} {a.verdict}" for a in answers), *verdicts])
    return [Drawn(f"<ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>", [words])] if lines else []


def _counted(verdicts: Sequence[Verdict]) -> str:
    return f"{sum(v.holds for v in verdicts)} of {len(verdicts)} hold"


def _done(report: StudyReport) -> list[Block]:
    """How much of the study is finished; what is not, folded."""
    finished = sum(map(len, report.results.values()))
    lines = _gaps(report)
    if not lines:
        return [Text(f"All {finished} runs are finished.")] if report.seeds else []
    total = finished + len(set(report.missing) | set(report.failed))
    head = f"{finished} of {total} runs are finished" if total > finished else f"{finished} runs are finished"
    return [Text(f"{head}."), Fold("What is still to come", [Items(lines)], paper=False)]


def _gaps(report: StudyReport) -> list[str]:
    layout, shown = report.layout, shown_tables(report.layout, report.results)
    lines = [f"{t.title}: not run." for t in layout.tables.values() if t not in shown]
    for table in shown:
        cells = [
            Cell(table.setting, m)
            for m in table.shown
            if m in table.trained or layout.printed_row(Cell(table.setting, m))
        ]
        titles = [layout.title_of(c.method) for c in cells if c not in report.results]
        lines += [f"{table.title}: no finished run of {title}." for title in titles]
    for where, runs in report.results.items():
        if report.seeds is not None and len(runs) < report.seeds:
            lines.append(f"{layout.cell_title(where)}: {summary.seeds_done(runs, report.seeds)}.")
    lines += [f"{run}: failed ({line})." for run, line in report.failed.items()]
    return lines + [f"{run}: {state}." for run, state in report.missing.items() if run not in report.failed]


def _reading(report: StudyReport) -> list[Block]:
    blocks: list[Block] = []
    if report.about:
        blocks.append(Fold("What this is about", [Text(report.about)]))
    details: list[Block] = [
        b for a in report.answers if a.details for b in (Text(a.question), Text(a.verdict), Items(a.details))
    ]
    if compared := summary.compare(report.layout, report.results):
        details += [Text(COMPARED), summary.comparisons_grid(report.layout, report.results, compared)]
    if details:
        blocks.append(Fold("What the answers rest on", details))
    if report.method_notes:
        blocks.append(Fold("The methods", [Items(report.method_notes)]))
    if report.glossary:
        blocks.append(Fold("How to read the tables", [Items(report.glossary)]))
    return blocks


# --- the first picture, and a section per setting ------------------------------------------------------------------


def _colours(report: StudyReport) -> dict[str, int]:
    """One colour per method on the whole page."""
    return {method: i for i, method in enumerate(dict.fromkeys(cell.method for cell in report.results))}


def _tray_ids(report: StudyReport) -> dict[str, str]:
    return {setting: f"tray-{i}" for i, setting in enumerate(report.views.trays)}


def _hero(report: StudyReport) -> list[Block]:
    """Trays of the setting with the most methods, or its curves."""
    layout, results, views = report.layout, report.results, report.views
    otherwise = [report.first_picture] if report.first_picture else []
    settings = summary.settings_of(layout, results)
    ids = _tray_ids(report)
    defs = svg.backgrounds(views.trays, ids) if ids else ""
    setting = hero_setting(report)
    if setting is not None:
        figures, shown = [], []
        for method in hero_methods(report, setting):
            seed = median_seed(results[Cell(setting, method)])
            view = views.trays[setting]["runs"][method][str(seed)]["unseen"]
            shown.append(view["episodes"])
            head = f"{layout.title_of(method)}, seed {seed}"
            many = "" if view["violations"] is None else f"{view['violations']:.3g} violations per episode"
            figures.append(
                f"<figure>{svg.tray(ids[setting], view, f'{head}: {many}')}"
                f"<figcaption><b>{escape(head)}</b><br>{escape(many)}</figcaption></figure>"
            )
        caption = hero_caption(settings[setting], shown)
        return [
            Drawn(f'{defs}<div class="hero">{"".join(figures)}</div><p class="note">{escape(caption)}</p>', otherwise)
        ]
    for setting in settings:
        if panels := views.curves.get(setting):
            wanted = [p for p in panels if p["metric"].startswith("eval/violations")] or panels
            html = _charts(report, wanted)[0]
            return [Drawn(f'{defs}{html}<p class="note">{escape(settings[setting])}, during training.</p>', otherwise)]
    return list(otherwise)


def hero_setting(report: StudyReport) -> str | None:
    """The one with trays of the most methods; None without trays."""
    drawn = [s for s in summary.settings_of(report.layout, report.results) if s in report.views.trays]
    best = max(drawn, key=lambda s: len(hero_methods(report, s)), default=None)
    return best if best is not None and hero_methods(report, best) else None


def hero_methods(report: StudyReport, setting: str) -> list[str]:
    """Those whose median seed has a tray."""
    kept = report.views.trays[setting]["runs"]
    methods = summary.methods_of(report.layout, report.results, setting)
    there = [
        m for m in methods if "unseen" in kept.get(m, {}).get(str(median_seed(report.results[Cell(setting, m)])), {})
    ]
    return there[:IN_HERO]


def hero_caption(title: str, episodes: Sequence[int]) -> str:
    """Of trays with so many episodes each."""
    fewer = f" ({min(episodes)} where episodes are long)" if len(set(episodes)) > 1 else ""
    return (
        f"{title}: the first {max(episodes)} of the unseen starts{fewer}, the same for every method, played greedily "
        f"by the seed with the median number of violations. A dot is a state, a red square a violation."
    )


def median_seed(runs: Sequence[Result]) -> int:
    """The seed that neither flatters nor hurts: the lower median by violations from unseen starts, or by reward."""

    def rank(run: Result) -> float:
        means = run.means.get(summary.UNSEEN) or next(iter(run.means.values()))
        return means.get("violations", -means["reward"])

    return sorted(runs, key=rank)[(len(runs) - 1) // 2].seed


def _titles(report: StudyReport) -> dict[str, str]:
    return {cell.method: report.layout.title_of(cell.method) for cell in report.results}


def _section(report: StudyReport, setting: str, anchors: summary.Anchors) -> list[Block]:
    layout, results = report.layout, report.results
    curves, trays = report.views.curves.get(setting), report.views.trays.get(setting)
    pictures = list(report.pictures.get(setting, ()))
    blocks: list[Block] = []
    if curves:
        blocks.append(Drawn(_curves(report, setting, curves)))
    if trays:
        blocks.append(Drawn(_trays(report, setting)))
    if inner := report.views.inner.get(setting):
        charts = f'<div class="charts">{"".join(_charts(report, inner))}</div>'
        blocks.append(Drawn(f"<details><summary>Inside the learner</summary>{charts}</details>"))
    if curves and (trays or not any(p.file.name.startswith("episodes") for p in pictures)):
        blocks.append(Drawn("", pictures))  # drawn above; Markdown has the pictures
    elif pictures:
        blocks.append(Fold("Pictures", pictures))
    mine = [t for t in shown_tables(layout, results) if t.setting == setting]
    for table in mine:
        title = "All measures" if len(mine) == 1 else f"All measures: {table.title}"
        blocks.append(Fold(title, table_blocks(layout, table, results)))
    if layout.extra is not None:
        blocks += layout.extra(setting, results)
    return [*blocks, Fold(EVERY_RUN, list(_runs(report, setting, anchors)), paper=False)]


def _curves(report: StudyReport, setting: str, panels: Sequence[Mapping[str, Any]]) -> str:
    colours, titles = _colours(report), _titles(report)
    methods = summary.methods_of(report.layout, report.results, setting)
    ticks = "".join(
        f'<label><input type="checkbox" checked data-method="{escape(m)}">'
        f'<i class="key {svg.colour(colours[m])}"></i>{escape(titles[m])}</label>'
        for m in methods
        if any(m in panel["methods"] for panel in panels)
    )
    seeds = '<label class="every-seed"><input type="checkbox" class="seeds">every seed</label>'
    note = "Greedy evaluations during training: mean over seeds, with a band of one standard deviation."
    return (
        f'<div class="curves" data-setting="{escape(setting)}"><div class="controls">{ticks}{seeds}</div>'
        f'<div class="charts">{"".join(_charts(report, panels))}</div>'
        f'<p class="note">{note}{escape(_fewer_seeds(report, setting, panels))}</p></div>'
    )


def _charts(report: StudyReport, panels: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where methods were trained for different numbers of steps, a chart's title says for how many."""
    several = len({panel["trained"] for panel in panels}) > 1
    titled = [
        {**panel, "title": f"{panel['title']}, trained for {panel['trained']:,} steps"} if several else panel
        for panel in panels
    ]
    return [svg.chart(panel, _colours(report), _titles(report)) for panel in titled]


def _fewer_seeds(report: StudyReport, setting: str, panels: Sequence[Mapping[str, Any]]) -> str:
    """A sentence where the curves of some seeds are not there: their runs are gone."""
    fewer = []
    for method in summary.methods_of(report.layout, report.results, setting):
        lines = [panel["methods"][method] for panel in panels if method in panel["methods"]]
        drawn, played = (
            max((len(line["seeds"]) for line in lines), default=0),
            len(report.results[Cell(setting, method)]),
        )
        if drawn < played:
            fewer.append(f"{report.layout.title_of(method)} {drawn} of {played}")
    return f" Curves are there of fewer seeds than results: {', '.join(fewer)}." if fewer else ""


def _trays(report: StudyReport, setting: str) -> str:
    """Trays to compare: the first methods, and the demonstrations where there is room."""
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
        "Greedy episodes from above. A dot is a state, a red square a violation."
        '<span class="act"> Point at one to read which rule it breaks.</span>'
    )
    return (
        f'<div class="trays" data-setting="{escape(setting)}"><div class="some">{"".join(figures)}</div>'
        f'<p class="note">{note}</p></div>'
    )


def _runs(report: StudyReport, setting: str, anchors: summary.Anchors):
    """Where every number of the page leads: each run with its own figures and its folder."""
    for where, runs in report.results.items():
        if where.setting != setting:
            continue
        keys = evaluations_of(runs)
        pairs = [(k, m) for m in ("violations", "reward") for k in keys if any(m in r.means[k] for r in runs)]
        head = ["Run", "Steps", *(f"{m.capitalize()}, {k.replace('/', ', ')}" for k, m in pairs)]
        head += [f"Steps to ≤ {SAFE:g}"]
        rows: list[list[str | Link]] = []
        folders = report.folders.get(where, [""] * len(runs))
        for run, folder in zip(runs, folders):
            name = f"seed {run.seed}"
            cells = [figure(m, run.means[k].get(m)) for k, m in pairs]
            safe = NONE if run.first_safe is None else f"{run.first_safe:,}"
            rows.append([Link(name, folder) if folder else name, f"{run.steps:,}", *cells, safe])
        yield Heading(report.layout.title_of(where.method), 4, anchors.cells[where])
        yield Grid(head, rows, ids={i: anchors.run(where, i) for i in range(len(runs))})


def _script_data(report: StudyReport) -> dict[str, Any] | None:
    """What the script reads: trays to choose from, and means to read off curves."""
    views = report.views
    if not views.curves and not views.trays:
        return None
    curves = {
        setting: [
            {m: {"steps": one["steps"], "mean": one["mean"]} for m, one in panel["methods"].items()} for panel in panels
        ]
        for setting, panels in views.curves.items()
    }
    trays = {
        setting: {k: v for k, v in view.items() if k in ("runs", "demonstrations")}
        for setting, view in views.trays.items()
    }
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
        f"One core per run, on a machine that may have had other work too; compilation included; medians over seeds. "
        f"All runs together: {total / 3600:.1f} core hours."
    )
    return [Text(text), Grid(["", "Per run", f"To ≤ {SAFE:g} avoidable violations per episode"], rows)]
