"""Tables of a study's results, beside published figures if there are any."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from scopil.eval.measures import Measures, label
from scopil.eval.tables import NEVER, cell, columns, with_bounds
from scopil_bench.report.page import Block, Grid, Heading, Link, Text
from scopil_bench.summaries import SAFE, Cell, Results, Summary, Table, Verdict, evaluations_of, in_words, summarise

NONE = "–"
UNCERTAINTY = (
    "Uncertainty. P(avoidable) ≤ is a 95 % upper bound on the probability that an episode has an avoidable violation: "
    "the larger of Clopper and Pearson's bound over the episodes of all seeds and Student's over the seeds' shares."
)


class Layout(NamedTuple):
    """Tables, titles and published figures of a study."""

    tables: Mapping[str, Table]
    title_of: Callable[[str], str]  # the title of a method
    source: str = ""  # of the published figures, for example "paper"
    printed: Mapping[str, Mapping[str, Mapping[str, str]]] = {}  # setting → method → measure → text
    references: Mapping[str, Mapping[str, Measures]] = {}  # setting → name → means, for example of a demonstrator
    extra: Callable[[str, Results], Sequence[Block]] | None = None  # blocks to add after the last table of a setting
    links: Mapping[Cell, str] = {}  # links to the list of a method's runs on the page

    def cell_title(self, where: Cell) -> str:
        return f"{self.title_of(where.method)} on {where.setting}"

    def linked(self, where: Cell, row: Sequence[str]) -> list[str | Link]:
        """The row, with a link to the runs in each cell that has a value."""
        to = self.links.get(where)
        return [Link(text, to) if to and text != NONE else text for text in row]

    def printed_row(self, where: Cell) -> Mapping[str, str]:
        return self.printed.get(where.setting, {}).get(where.method, {})


def shown_tables(layout: Layout, results: Results) -> list[Table]:
    """The tables that have at least one finished run."""
    return [t for t in layout.tables.values() if any(Cell(t.setting, m) in results for m in t.trained)]


def size(summary: Summary) -> str:
    return f"{summary.seeds} seed{'s' * (summary.seeds != 1)} × {summary.steps:,} steps"


def overview_grid(layout: Layout, results: Results) -> Grid:
    """One line per method: violations per episode, and the reward."""
    keys = list(dict.fromkeys(key for runs in results.values() for key in evaluations_of(runs)))
    rows = []
    for where, runs in results.items():
        found = {key: summarise(runs, key) for key in evaluations_of(runs)}
        first, printed = next(iter(found.values())), layout.printed_row(where)
        row = [layout.cell_title(where), size(first).removesuffix(" steps")]
        row += [printed.get("violations", NONE)] * bool(layout.printed)
        row += [_cells(found[key], ["violations"])[0] if key in found else NONE for key in keys]
        row += [printed.get("reward", NONE)] * bool(layout.printed)
        rows.append(layout.linked(where, [*row, _cells(first, ["reward"])[0]]))
    source = [f"Violations, {layout.source}"] * bool(layout.printed)
    rewards = [f"Reward, {layout.source}"] * bool(layout.printed) + ["Reward"]
    return Grid(["", "seeds × steps", *source, *(f"Violations, {k.replace('/', ', ')}" for k in keys), *rewards], rows)


def starts_grid(layout: Layout, table: Table, results: Results, starts: str, beside: bool = False) -> Grid:
    """Greedy and sampled evaluations of every method from one kind of starts. With `beside`, the table also has the
    published rows, and it uses their columns and headings."""
    there = _there(table, results)
    measured = {f"{c}{k}": summarise(results[c], k).measures for c in there for k in _keys(results, c, starts)}
    names, printed_of = columns(measured), layout.printed_row
    beside = beside and any(printed_of(Cell(table.setting, m)) for m in table.shown)
    if beside:
        columns_printed = next(row for m in table.shown if (row := printed_of(Cell(table.setting, m))))
        names = [n for n in columns_printed if n in names or n in ("violations", "frequency")]
    rows: list[list[str | Link]] = []
    quiet: set[int] = set()
    kinds = {key.partition("/")[2] for c in there for key in evaluations_of(results[c])}
    for name, means in layout.references.get(table.setting, {}).items():
        if reference_starts(name, kinds) == starts:
            rows.append([name, *(cell(n, means.get(n)) for n in names)])
    for method in table.shown:
        where, title = Cell(table.setting, method), layout.title_of(method)
        if beside and (printed := printed_of(where)):
            quiet.add(len(rows))
            rows.append([f"{title}, {layout.source}", *(printed.get(n, NONE) for n in names)])
        if where not in results and (method in table.trained or (beside and printed_of(where))):
            rows.append([f"{title}: no finished run", *(NONE for _ in names)])
        for key in _keys(results, where, starts):
            found = summarise(results[where], key)
            ours = ", ours" if beside else ""
            row = [f"{title}{ours}, {key.partition('/')[0]}, {size(found)}", *_cells(found, names)]
            rows.append(layout.linked(where, row))
    return Grid(["", *map(label, names)], rows, frozenset(quiet))


def reference_starts(name: str, there: Collection[str]) -> str:
    """The kind of starts of a demonstrator's row, or another kind if the page has no results for that kind."""
    own = own_starts(name)
    return own if own in there or not there else min(there)


def own_starts(name: str) -> str:
    return "unseen" if name.endswith("unseen starts") else "demonstrated"


def _keys(results: Results, where: Cell, starts: str) -> list[str]:
    runs = results.get(where, ())
    return [key for key in evaluations_of(runs) if key.partition("/")[2] == starts] if runs else []


def _cells(found: Summary, names: Sequence[str]) -> list[str]:
    """The cells of a row, without a standard deviation if there is only one seed."""
    values = with_bounds(found.measures, found.episodes)
    return [cell(n, v[0] if isinstance(v := values.get(n), tuple) and found.seeds == 1 else v) for n in names]


def _there(table: Table, results: Results) -> list[Cell]:
    return [c for m in table.shown if (c := Cell(table.setting, m)) in results]


def statistics_grid(layout: Layout, table: Table, results: Results) -> Grid | None:
    """Intervals and bounds; None if no evaluation counts violations."""
    head = ["", "Violations per episode", "IQM [95 %]", "P(avoidable) ≤", "Unsafe seeds", "Unavoidable"]
    rows = []
    for where in _there(table, results):
        for i, key in enumerate(evaluations_of(results[where])):
            found = summarise(results[where], key)
            if found.iqm is None or found.interval is None:
                continue
            low, high = found.interval
            row = [
                f"{layout.title_of(where.method)}, {in_words(key)}",
                *_cells(found, ["violations"]),
                f"{found.iqm:.3f} [{low:.3f}, {high:.3f}]" if found.seeds > 1 and high > 0 else NONE,
                f"{found.p_avoidable:.4f}",
                f"{found.unsafe:.0%}",
                f"{unavoidable(found):.3f}",
                f"{found.measures['reached'][0]:.1%}" if "reached" in found.measures else NONE,
                _first_safe([r.first_safe for r in results[where]]) if i == 0 else "",
            ]
            rows.append(layout.linked(where, row))
    return Grid([*head, "Reached", f"Steps to ≤ {SAFE:g}"], rows) if rows else None


def unavoidable(found: Summary) -> float:
    """Violations per episode in initial states, which no policy can avoid."""
    return max(0.0, found.measures["violations"][0] - found.measures["avoidable"][0])


def _first_safe(seeds: Sequence[int | None]) -> str:
    """The median over seeds. A seed that was never safe counts as infinitely late."""
    steps = np.sort([np.inf if first is None else first for first in seeds])
    middle = steps[(len(steps) - 1) // 2 : len(steps) // 2 + 1].mean()
    counted = f"{np.isfinite(steps).sum()} of {len(steps)} seeds"
    return f"{middle:,.0f} ({counted})" if np.isfinite(middle) else counted


def extra_grid(
    layout: Layout, results: Results, setting: str, name: str, headings: Mapping[str, str] | None = None
) -> Grid | None:
    """The extra measures `name` of a study, for every method of a setting that has them."""
    mine = {where: runs for where, runs in results.items() if where.setting == setting}
    seen = {where: each for where, runs in mine.items() if (each := [r.extra[name] for r in runs if name in r.extra])}
    headings = headings or {n: n for each in seen.values() for measures in each for n in measures}
    rows = []
    for where, each in seen.items():
        found = {n: [m[n] for m in each if n in m] for n in headings}
        several = {n: f"{np.mean(v):.3f}±{np.std(v):.3f}" for n, v in found.items() if len(v) > 1}
        cells = [several.get(n) or (f"{v[0]:.3f}" if v else NONE) for n, v in found.items()]
        rows.append([f"{layout.title_of(where.method)}, {len(each)} seed{'s' * (len(each) != 1)}", *cells])
    return Grid(["", *headings.values()], rows) if rows else None


def verdict_grids(ranges: Sequence[Verdict], targets: Sequence[Verdict]) -> list[tuple[str, str, Grid]]:
    """The title, the number that hold and the table, for targets and for expected ranges. Empty lists are left out."""
    made = []
    both = (("Targets", targets, "met", "not met"), ("Expected ranges", ranges, "within", "outside"))
    for title, each, yes, no in both:
        rows = []
        for v in each:
            value = NONE if v.value is None else f"{v.value:.4g}"
            rows.append([v.text, value, yes if v.holds else no if v.value is not None else "no finished run", v.source])
        if rows:
            held = f"{sum(v.holds for v in each)} of {len(each)} hold"
            made.append((title, held, Grid(["Expected", "Found", "", "Source"], rows)))
    return made


def tables(layout: Layout, results: Results, ranges: Sequence[Verdict], targets: Sequence[Verdict]) -> list[Block]:
    """All tables. They depend only on the results of the study."""
    blocks: list[Block] = []
    if results:
        blocks += [
            Heading("Overview"),
            Text(
                "Violations per episode of greedy and sampled policies from demonstrated and unseen starts; reward. "
                f"{NEVER}"
            ),
            overview_grid(layout, results),
        ]
    shown = shown_tables(layout, results)
    for i, table in enumerate(shown):
        blocks += [Heading(table.title), *table_blocks(layout, table, results)]
        last = all(later.setting != table.setting for later in shown[i + 1 :])
        if last and layout.extra is not None:
            blocks += layout.extra(table.setting, results)
    for title, _, grid in verdict_grids(ranges, targets):
        blocks += [Heading(title), grid]
    return blocks


def table_blocks(layout: Layout, table: Table, results: Results) -> list[Block]:
    keys = dict.fromkeys(k for where in _there(table, results) for k in evaluations_of(results[where]))
    blocks: list[Block] = []
    for i, starts in enumerate(dict.fromkeys(key.partition("/")[2] for key in keys)):
        how = ": mean over episodes, then mean ± population standard deviation over seeds." if i == 0 else "."
        blocks += [Text(f"From {starts} starts{how}"), starts_grid(layout, table, results, starts, beside=i == 0)]
    if (statistics := statistics_grid(layout, table, results)) is not None:
        blocks += [Text(UNCERTAINTY), statistics]
    return blocks
