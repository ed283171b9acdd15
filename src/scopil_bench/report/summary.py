"""The first section of a report: a table with a dot per seed, and a sentence for each setting.

Permutation tests over seeds compare the first method of a setting with the others. Holm's method corrects the p-values
of all these comparisons together.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from html import escape
from itertools import count
from typing import NamedTuple

import numpy as np

from scopil.eval.measures import Measures, clopper_pearson_upper, is_never, never, percent, share_interval
from scopil.eval.tables import NEVER, RULES_NOT_KNOWN, cell, missing
from scopil_bench import stats
from scopil_bench.report.page import Drawn, Grid, Link, anchor
from scopil_bench.report.study_tables import NONE, Layout, own_starts, reference_starts
from scopil_bench.report.svg import Axis, Dot, axis_for, colour, strip, strip_axis
from scopil_bench.summaries import SAFE, Cell, Result, Results, evaluations_of

SIGNIFICANT = 0.05
UNSURE = "not shown to differ from"
NAMED = 3  # a sentence names at most this many methods without a significant difference
NOTE = (
    "A dot is a seed and links to its run. The number is the mean, with its 95 % interval: over seeds by bootstrap, "
    "which is too narrow for few seeds (with three it covers the mean in 7 of 10 cases, with ten in 9); for a single "
    "seed, over its episodes; shares have the wider of both. Violations in initial states, which no policy can avoid, "
    f"do not count as an episode with a violation. {NEVER} The axis of violations is logarithmic above 0.1."
)
APART = "As recorded, from other starts:"
UNSEEN, DEMONSTRATED = "greedy/unseen", "greedy/demonstrated"
VIOLATING = "violating"  # share of episodes with an avoidable violation
SUCCESS = ("success", "reached")
SHARES = (VIOLATING, *SUCCESS)


def figure(measure: str, value: float) -> str:
    return percent(value) if measure in SHARES else cell(measure, value)


class Column(NamedTuple):
    title: str
    key: str  # key of the evaluation
    measure: str

    @property
    def starts(self) -> str:
        return self.key.partition("/")[2]


class Figure(NamedTuple):
    """One measure of one method in one evaluation: a value per seed, their mean and its interval."""

    seeds: Sequence[int]
    values: Sequence[float]  # one per seed
    mean: float
    # 95 % interval of the mean: over seeds; for a single seed over its episodes, or None if they are not known. For a
    # share, the interval that covers both. None for a count that is 0 in every episode.
    interval: stats.Interval | None
    episodes: int  # of all seeds

    def words(self, measure: str) -> str:
        return never(self.episodes) if is_never(measure, self.mean) else figure(measure, self.mean)

    def ends(self, measure: str) -> str:
        return "" if self.interval is None else f"[{', '.join(figure(measure, end) for end in self.interval)}]"


class Comparison(NamedTuple):
    """The first method of a setting compared with another method by one measure, with one value per seed."""

    setting: str
    measure: str
    key: str
    method: str
    rival: str
    ours: Figure
    theirs: Figure
    p: float
    corrected: float  # p after correction for all comparisons on the page


def settings_of(layout: Layout, results: Results) -> dict[str, str]:
    """The title of each setting that has results, in the order of the tables."""
    titles: dict[str, str] = {}
    for table in layout.tables.values():
        titles.setdefault(table.setting, table.title)
    order = [s for s in titles if any(c.setting == s for c in results)]
    return {s: titles[s] for s in order} | {c.setting: c.setting for c in results if c.setting not in titles}


def methods_of(layout: Layout, results: Results, setting: str) -> list[str]:
    """The methods that have results in a setting, in the order of its tables."""
    named = [m for t in layout.tables.values() if t.setting == setting for m in t.shown]
    there = [c.method for c in results if c.setting == setting]
    return [m for m in dict.fromkeys([*named, *there]) if m in there]


def figure_of(runs: Sequence[Result], key: str, measure: str) -> Figure | None:
    """The figure of these runs; None if a run lacks the evaluation or the measure."""
    counted = "violations" if measure == VIOLATING else measure
    if any(counted not in run.means.get(key, {}) for run in runs):
        return None
    values = [
        run.violating[key] / run.episodes[key] if measure == VIOLATING else run.means[key][measure] for run in runs
    ]
    found = [_over_episodes(runs, values, key, measure)] if measure in SHARES or len(runs) == 1 else []
    found += [stats.bootstrap_interval(values, np.mean)] if len(runs) > 1 else []
    known = [ends for ends in found if ends is not None and not is_never(measure, max(values))]
    interval = (min(low for low, _ in known), max(high for _, high in known)) if known else None
    episodes = sum(run.episodes[key] for run in runs)
    return Figure([run.seed for run in runs], values, float(np.mean(values)), interval, episodes)


def _over_episodes(runs: Sequence[Result], values: Sequence[float], key: str, measure: str) -> stats.Interval | None:
    """The interval of a share over the episodes of all seeds; of another measure over those of a single seed."""
    if measure in SHARES:
        hits = sum(round(value * run.episodes[key]) for value, run in zip(values, runs))
        return share_interval(hits, sum(run.episodes[key] for run in runs))
    margin = runs[0].margins.get(key, {}).get(measure)
    low = 0.0 if measure == "violations" else -np.inf  # a count is not negative
    return None if margin is None else (max(values[0] - margin, low), values[0] + margin)


def columns_of(results: Results) -> list[Column]:
    """Violations, the shares of episodes with a violation and with success, and reward of greedy episodes: first from
    unseen starts, then from demonstrated ones. If neither was evaluated, the columns show the first evaluation."""
    keys = list(dict.fromkeys(key for runs in results.values() for key in evaluations_of(runs)))
    shown = [k for k in (UNSEEN, DEMONSTRATED) if k in keys] or keys[:1]
    starts = {k: f"{k.partition('/')[2]} starts" for k in shown}
    every = [run for runs in results.values() for run in runs]
    counted = [k for k in shown if any("violations" in run.means.get(k, {}) for run in every)]
    found = [Column(f"Violations per episode, {starts[k]}", k, "violations") for k in counted]
    found += [Column(f"Episodes with a violation, {starts[k]}", k, VIOLATING) for k in counted[:1]]
    for name in SUCCESS:
        if any(name in run.means.get(shown[0], {}) for run in every):
            found.append(Column(f"Success, {starts[shown[0]]}", shown[0], name))
            break
    rewarded = shown[:1] if counted else shown
    return found + [Column(f"Reward, {starts[k]}", k, "reward") for k in rewarded]


def compare(layout: Layout, results: Results) -> list[Comparison]:
    """Permutation tests of the first method of each setting against the others. The first column that the first method
    has is compared: violations from unseen starts if they were counted, else reward."""
    columns = [c for c in columns_of(results) if c.measure not in SHARES] if results else []
    made: list[Comparison] = []
    for setting in settings_of(layout, results):
        first, *others = methods_of(layout, results, setting)
        column = next((c for c in columns if figure_of(results[Cell(setting, first)], c.key, c.measure)), None)
        for rival in others if column else ():
            assert column is not None
            pair = [figure_of(results[Cell(setting, m)], column.key, column.measure) for m in (first, rival)]
            if pair[0] and pair[1]:
                p = stats.permutation_test(pair[0].values, pair[1].values)
                made.append(Comparison(setting, column.measure, column.key, first, rival, pair[0], pair[1], p, p))
    corrected = stats.holm([c.p for c in made])
    return [c._replace(corrected=p) for c, p in zip(made, corrected)]


def verdicts(layout: Layout, results: Results, made: Sequence[Comparison]) -> list[str]:
    """For each setting, which methods kept the rules; if there are enough seeds for a test, a sentence about the first
    method, the best method that differs from it, the methods without a significant difference, and the best reward.
    `comparisons_grid` has all comparisons."""
    lines, enough, several = [], testable(made), len(settings_of(layout, results)) > 1
    for setting, title in settings_of(layout, results).items():
        where = f"{title}: " if several else ""
        if kept := conclusion(layout, results, setting):
            lines.append(where + kept)
        if enough and (mine := _best_first([c for c in made if c.setting == setting])):
            first = mine[0]
            amount = first.ours.words(first.measure)
            has = f"{amount} violations per episode" if _counts(first) else f"a reward of {amount}"
            starts, name = first.key.partition("/")[2], layout.title_of(first.method)
            parts = [f"{title}: from {starts} starts {name} has {has}, {_compared(layout, mine)}"]
            parts += [reward] if (reward := _reward(layout, results, mine)) else []
            lines.append(f"{'; '.join(parts)}.")
    return lines + ([_too_few(made)] if made and not enough else [])


def testable(made: Sequence[Comparison]) -> bool:
    """Whether a difference could be significant with these numbers of seeds."""
    return bool(made) and _smallest(made) < SIGNIFICANT


def _too_few(made: Sequence[Comparison]) -> str:
    fewest = min(len(f.values) for c in made for f in (c.ours, c.theirs))
    needed = next(n for n in count(2) if len(made) * stats.smallest_p(n, n) < SIGNIFICANT)
    seeds = "1 seed per method is" if fewest == 1 else f"{fewest} seeds per method are"
    return f"{seeds} too few to tell methods apart: {needed} or more are needed."


def conclusion(layout: Layout, results: Results, setting: str) -> str:
    """Which methods kept the rules of a setting, in one sentence; empty if violations are not counted."""
    column = next((c for c in columns_of(results) if c.measure == "violations"), None)
    methods = methods_of(layout, results, setting)
    found = {m: figure_of(results[Cell(setting, m)], column.key, "violations") for m in methods} if column else {}
    means = {layout.title_of(m): f.mean for m, f in found.items() if f is not None}
    if column is None or not means:
        return ""
    broken = {layout.title_of(m): figure_of(results[Cell(setting, m)], column.key, "avoidable") for m in methods}
    lawful = [title for title, f in broken.items() if title in means and f is not None and f.mean <= SAFE]
    best = min(means, key=means.__getitem__)
    rows = layout.references.get(setting, {})
    same = [n for n in rows if n.endswith("unseen starts")] if column.starts == "unseen" else []
    shown = next((rows[n]["violations"] for n in [*same, *rows] if "violations" in rows[n]), None)
    against = "" if shown is None else f", the demonstrator {_plain(shown)}"
    count = f"{_plain(means[best])} violations per episode{against}"
    others = [title for title in means if title not in lawful]
    if lawful:
        worst = f"; {listed(others)} did not ({listed([_plain(means[o]) for o in others])})" if others else ""
        most = max(means[title] for title in lawful)
        count = f"{_plain(most)} violations per episode{against}"
        if most == 0:
            least = min(f.episodes for m, f in found.items() if f is not None and layout.title_of(m) in lawful)
            bound = percent(clopper_pearson_upper(0, least))
            count = f"no violation in {least} episodes, so with 95 % confidence at most {bound} have one{against}"
        return f"{listed(lawful)} kept the rules ({count}){worst}."
    if shown is not None and means[best] <= shown:
        return f"{best} broke the rules no more often than the demonstrator: {count}."
    if len(means) == 1:
        return f"{best} did not keep the rules: {count}."
    return f"No method kept the rules: the best, {best}, has {count}."


def _plain(value: float) -> str:
    """Two digits: 2.3, 0.43, 65, 0."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def _counts(comparison: Comparison) -> bool:
    return comparison.measure == "violations"


def _best_first(made: Sequence[Comparison]) -> list[Comparison]:
    return sorted(made, key=lambda c: c.theirs.mean if _counts(c) else -c.theirs.mean)


def _compared(layout: Layout, mine: Sequence[Comparison]) -> str:
    """The methods, grouped by how they differ from the first method; the best method of a group comes first."""
    groups: dict[str, list[Comparison]] = {}
    for c in mine:
        less = "fewer than" if _counts(c) else "less than"
        how = less if c.ours.mean < c.theirs.mean else "more than"
        groups.setdefault(how if c.corrected < SIGNIFICANT else UNSURE, []).append(c)
    order = sorted(groups, key=("fewer than", "less than", "more than", UNSURE).index)
    return ", ".join(f"{how} {_named(layout, groups[how], how == UNSURE)}" for how in order)


def _smallest(made: Sequence[Comparison]) -> float:
    """The smallest corrected p that is possible with these numbers of seeds."""
    return min(stats.holm([stats.smallest_p(len(c.ours.values), len(c.theirs.values)) for c in made]))


def _named(layout: Layout, group: Sequence[Comparison], unsure: bool) -> str:
    """The best method and the number of other methods; all names if there are few methods."""
    each = [f"{layout.title_of(c.rival)} ({c.theirs.words(c.measure)}, p = {c.corrected:.2g})" for c in group]
    if len(each) <= (NAMED if unsure else 1):
        return listed(each)
    if unsure:
        return f"any of {len(each)} others, the best of them {each[0]}"
    largest = max(c.corrected for c in group[1:])
    if len(each) == 2:
        return f"{each[0]} and {layout.title_of(group[1].rival)} (p = {largest:.2g})"
    return f"{each[0]} and {len(each) - 1} others (the largest p = {largest:.2g})"


def _reward(layout: Layout, results: Results, mine: Sequence[Comparison]) -> str:
    """A clause on the method with the best reward; empty if the comparison is by reward."""
    first = mine[0]
    methods = methods_of(layout, results, first.setting) if _counts(first) else []
    found = {m: figure_of(results[Cell(first.setting, m)], first.key, "reward") for m in methods}
    means = {method: reward.mean for method, reward in found.items() if reward}
    if first.method not in means:
        return ""
    best = max(means, key=means.__getitem__)
    ours, theirs = (figure("reward", means[m]) for m in (first.method, best))
    if theirs == ours:  # after rounding
        return f"none has a better reward ({ours})"
    return f"{layout.title_of(best)} has the best reward ({theirs} against {ours})"


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def comparisons_grid(layout: Layout, results: Results, made: Sequence[Comparison]) -> Grid:
    """A row for each compared method: the first method of a setting, then the others from best to worst."""
    keys = list(dict.fromkeys(c.key for c in made))
    measures = ["violations", "reward"] if any(map(_counts, made)) else ["reward"]
    rows: list[list[str | Link]] = []
    for setting, title in settings_of(layout, results).items():
        mine = _best_first([c for c in made if c.setting == setting])
        pairs = [(mine[0].method, NONE), *((c.rival, f"{c.corrected:.2g}") for c in mine)] if mine else []
        for method, p in pairs:
            found = [figure_of(results[Cell(setting, method)], mine[0].key, m) for m in measures]
            words = [f.words(m) if f else NONE for f, m in zip(found, measures)]
            rows.append(layout.linked(Cell(setting, method), [f"{title}: {layout.title_of(method)}", *words, p]))
    starts = " and ".join(key.partition("/")[2] for key in keys)
    titles = {"violations": "Violations per episode", "reward": "Reward"}
    return Grid(["", *(f"{titles[m]}, {starts} starts" for m in measures), "p, corrected"], rows)


def how_compared(made: Sequence[Comparison]) -> str:
    kept = f"A method that kept the rules has at most {SAFE:g} avoidable violations per episode"
    if not testable(made):
        return f"Greedy policies; means over seeds. {kept}." if made else ""
    n = len(made)
    corrected = f"corrected for the {n} comparisons of these sentences by Holm's method" if n > 1 else "not corrected"
    policies = " and ".join(dict.fromkeys(c.key.partition("/")[0].capitalize() for c in made))
    return (
        f"{policies} policies; means over seeds. p: permutation test over seeds, {corrected}; significant is below "
        f"{SIGNIFICANT:g}. With these numbers of seeds no p can be below {_smallest(made):.2g}. {kept}."
    )


def seeds_done(runs: Sequence[Result], wanted: int | None) -> str:
    n = len(runs)
    return f"{n} seed{'s' * (n != 1)}" if wanted is None or n >= wanted else f"{n} of {wanted} seeds done"


def anchors_of(results: Results) -> dict[Cell, str]:
    """Ids of the lists of runs on the page; run i of a list has the id `{list}-{i}`. The ids contain numbers instead of
    names, because numbers are unique and need no escaping."""
    return {cell: f"runs-{i}" for i, cell in enumerate(results)}


def table(
    layout: Layout, results: Results, wanted: int | None, anchors: Mapping[Cell, str], colours: Mapping[str, int]
) -> Drawn:
    """The table with a dot per seed; in Markdown it has only the numbers."""
    columns, settings = columns_of(results), settings_of(layout, results)
    head, there = ["", "Seeds", *(c.title for c in columns)], {c.starts for c in columns}
    shared = {c: _axis(c, results, layout, list(settings), there) for c in columns if c.measure == "violations"}
    body, rows = [], []
    for setting, title in settings.items():
        axes = {c: shared.get(c) or _axis(c, results, layout, [setting], there) for c in columns}
        drawn = [strip_axis(axes[c]) if c.measure not in SHARES else "" for c in columns]
        scales = "".join(f'<td><div class="cell">{scale}<span></span></div></td>' for scale in drawn)
        body.append(f'<tr class="setting"><th colspan="2" scope="rowgroup">{escape(title)}</th>{scales}</tr>')
        known = layout.references.get(setting, {})
        apart = [name for name in known if own_starts(name) not in there]
        for name in (n for n in known if n not in apart):
            _add_reference(body, rows, title, name, known[name], axes, there)
        methods = methods_of(layout, results, setting)
        longest = {m: max(run.steps for run in results[Cell(setting, m)]) for m in methods}
        usual = Counter(longest.values()).most_common(1)[0][0]
        for method in methods:
            where = Cell(setting, method)
            runs, cells, words = results[where], [], []
            for c in columns:
                found = figure_of(runs, c.key, c.measure)
                printed = layout.printed_row(where).get(c.measure) if c.key == DEMONSTRATED else None
                said = "" if printed is None else f"<small>{escape(f'{layout.source}: {printed}')}</small>"
                cells.append(_dots(c, found, axes[c], anchors[where], colour(colours[method]), said, _missing(c, runs)))
                words.append(
                    _missing(c, runs) if found is None else f"{found.words(c.measure)} {found.ends(c.measure)}".strip()
                )
            done, name = seeds_done(runs, wanted), layout.title_of(method)
            steps = "" if longest[method] == usual else f"{longest[method]:,} steps"
            body.append(
                f'<tr><th scope="row"><i class="key {colour(colours[method])}"></i>{escape(name)}</th>'
                f'<td class="done">{done}{f"<small>{steps}</small>" * bool(steps)}</td>{"".join(cells)}</tr>'
            )
            rows.append([title, name, ", ".join(filter(None, [done, steps])), *words])
        if apart:
            span = f'<th colspan="{len(head)}" scope="rowgroup">{APART}</th>'
            body.append(f'<tr class="apart">{span}</tr>')
        for name in apart:
            _add_reference(body, rows, title, name, known[name], axes, there)
            rows[-1][1] += ", other starts"
    top = "".join(f'<th scope="col">{escape(h)}</th>' for h in head)
    html = f'<table class="overview"><thead><tr>{top}</tr></thead><tbody>{"".join(body)}</tbody></table>'
    return Drawn(f'{html}<p class="note">{NOTE}</p>', [Grid(["Setting", "Method", *head[1:]], rows)])


def _add_reference(
    body: list[str],
    rows: list[list[str]],
    title: str,
    name: str,
    means: Measures,
    axes: Mapping[Column, Axis],
    there: Collection[str],
) -> None:
    """Add a demonstrator's row to the table as HTML and as text."""
    cells, words = [], []
    for c, axis in axes.items():
        value = means.get(c.measure) if c.starts == reference_starts(name, there) else None
        words.append(NONE if value is None else figure(c.measure, value))
        dot = (
            ""
            if value is None or c.measure in SHARES
            else strip([Dot(value, f"{name}: {words[-1]}")], None, axis, "ref")
        )
        cells.append(_td(c, dot, escape(words[-1])))
    body.append(f'<tr class="quiet"><th scope="row">{escape(name)}</th><td></td>{"".join(cells)}</tr>')
    rows.append([title, name, "", *words])


def _axis(column: Column, results: Results, layout: Layout, settings: Sequence[str], there: Collection[str]) -> Axis:
    values = [
        run.means[column.key][column.measure]
        for cell, runs in results.items()
        for run in runs
        if cell.setting in settings and column.measure in run.means.get(column.key, {})
    ]
    for s in settings:
        for name, means in layout.references.get(s, {}).items():
            if column.measure in means and column.starts == reference_starts(name, there):
                values.append(means[column.measure])
    return axis_for(values, column.measure == "violations")


def _dots(
    column: Column, found: Figure | None, axis: Axis, runs: str, kind: str, said: str, nothing: str = NONE
) -> str:
    """A table cell: the dots of a method, linked to the list `runs`, and their mean with `said` below it."""
    if found is None:
        return _td(column, "", nothing)
    dots = [
        Dot(value, f"seed {seed}: {figure(column.measure, value)}", f"#{runs}-{i}")
        for i, (seed, value) in enumerate(zip(found.seeds, found.values))
    ]
    number = anchor(f"#{runs}", escape(found.words(column.measure)))
    ends = f"<small>{found.ends(column.measure)}</small>" * (found.interval is not None)
    drawn = "" if column.measure in SHARES else strip(dots, found.interval, axis, kind)
    return _td(column, drawn, number + ends + said)


def _missing(column: Column, runs: Sequence[Result]) -> str:
    """The text of a cell without a figure."""
    played = all(column.key in run.means for run in runs)
    return missing("violations" if column.measure == VIOLATING else column.measure) if played else NONE


def _td(column: Column, drawn: str, number: str) -> str:
    kind = ' class="none"' if number in (NONE, RULES_NOT_KNOWN) else ""
    inner = f'<div class="cell">{drawn}<span>{number}</span></div>'
    return f'<td{kind} data-label="{escape(column.title)}">{inner}</td>'
