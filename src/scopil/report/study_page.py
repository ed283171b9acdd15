"""The report of a study: one page for somebody who has not seen the code."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scopil.evaluate.summaries import SAFE, Cell, Results, Timing, Verdict
from scopil.files import write_atomically
from scopil.report.page import Block, Command, Grid, Heading, Items, Picture, Text, to_html, to_markdown
from scopil.report.study_tables import Layout, shown_tables, tables

SHORT = "These are short runs to try the machinery, of at most {steps:,} steps. They are no evidence about the methods."


class StudyReport(NamedTuple):
    """Everything the page is made of."""

    title: str
    about: str
    layout: Layout
    budget: str
    full_budget: str  # the one that counts as evidence
    seeds: int  # wanted per method
    command: str
    results: Results
    missing: Mapping[str, str]  # run → how far it has come
    failed: Mapping[str, str]  # run → the last line of its log
    answers: Sequence[Block]
    glossary: Sequence[str]
    method_notes: Sequence[str]
    ranges: Sequence[Verdict]
    targets: Sequence[Verdict]
    timings: Mapping[str, Timing]
    versions: Mapping[str, Sequence[str]]
    pictures: Sequence[Picture]
    tuning: Sequence[Block] = ()  # settings that were searched


def write(out: Path, report: StudyReport) -> None:
    """tables.md (figures alone), report.md and report.html."""
    figures = tables(report.layout, report.results, report.ranges, report.targets)
    write_atomically(out / "tables.md", to_markdown("Tables", figures, out).encode())
    page = _page(report, figures)
    write_atomically(out / "report.md", to_markdown(report.title, page, out).encode())
    write_atomically(out / "report.html", to_html(report.title, page).encode())


def _page(report: StudyReport, figures: Sequence[Block]) -> list[Block]:
    blocks: list[Block] = [Text(report.about)] if report.about else []
    short = report.budget != report.full_budget
    if short and report.results:
        steps = max(r.steps for runs in report.results.values() for r in runs)
        blocks.append(Text(SHORT.format(steps=steps)))
    if report.answers:
        blocks += [Heading("Questions" + ", answered from short runs" * short), *report.answers]
    blocks += [Heading("What is missing"), *_gaps(report)]
    if report.glossary or report.method_notes:
        blocks += [Heading("How to read the tables"), Items(report.glossary)]
        blocks += [Text("The methods:"), Items(report.method_notes)] if report.method_notes else []
    blocks += [*figures]
    if report.pictures:
        blocks += [Heading("Pictures"), *report.pictures]
    blocks += report.tuning
    blocks += [Heading("Runs"), _sizes(report)]
    blocks += [Heading("Wall-clock", 3), *_clock(report)]
    if report.versions:
        lines = [f"{package}: {', '.join(versions)}" for package, versions in report.versions.items()]
        blocks += [Heading("Versions", 3), Items(lines)]
    blocks += [Heading("To make this page again", 3), Command(report.command)]
    return blocks


def _gaps(report: StudyReport) -> list[Block]:
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
        if len(runs) < report.seeds:
            lines.append(f"{layout.cell_title(where)}: {len(runs)} of {report.seeds} seeds done.")
    lines += [f"{run}: failed ({line})." for run, line in report.failed.items()]
    lines += [f"{run}: {state}." for run, state in report.missing.items() if run not in report.failed]
    if not lines:
        return [Text("Nothing: every planned run has finished.")]
    return [Text("The figures on this page do not include any of these."), Items(lines)]


def _sizes(report: StudyReport) -> Grid:
    rows = []
    for where, runs in report.results.items():
        steps = ", ".join(f"{s:,}" for s in sorted({r.steps for r in runs}))
        seeds = ", ".join(str(r.seed) for r in runs)
        rows.append([report.layout.cell_title(where), steps, seeds])
    return Grid(["", "Environment steps", "Seeds"], rows)


def _clock(report: StudyReport) -> list[Block]:
    rows = []
    for where, runs in report.results.items():
        mine = [t for r in runs if (t := report.timings.get(f"{where.setting}/{where.method}-{r.seed}"))]
        if mine:
            safe = np.sort([np.inf if t.to_first_safe is None else t.to_first_safe for t in mine])
            first = f"{np.median(safe):,.0f} s" if np.isfinite(safe[len(safe) // 2]) else "–"
            rows.append(
                [report.layout.cell_title(where), f"{np.median([t.seconds for t in mine]):,.0f} s", first]
            )
    total = sum(t.seconds for t in report.timings.values())
    text = (
        f"One core per run, on a machine that may have had other work too; compilation included; medians over seeds. "
        f"All runs together: {total / 3600:.1f} core hours."
    )
    return [Text(text), Grid(["", "Per run", f"To ≤ {SAFE:g} avoidable violations per episode"], rows)]
