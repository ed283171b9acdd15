"""Tables of results beside the paper's."""

from collections.abc import Mapping, Sequence

import numpy as np

from scopil.evaluate.stats import mean_std
from scopil.experiments.expected import Verdict
from scopil.experiments.paper import GROUPS, PRINTED, Cell, Group
from scopil.experiments.results import EVALUATIONS, SAFE, Result, Summary, summarise
from scopil.report.page import Block, Grid, Heading, Text
from scopil.report.tables import cell, columns, heading

Results = Mapping[Cell, Sequence[Result]]
NONE = "–"


def shown_groups(results: Results) -> list[Group]:
    """The paper's tables of which anything is there."""
    return [g for g in GROUPS.values() if any(Cell(g.setting, a) in results for a in g.trained)]


def size(summary: Summary) -> str:
    seeds = f"{summary.seeds} seed{'s' * (summary.seeds != 1)}"
    return f"{seeds} × {summary.steps:,} steps"


def glance_grid(results: Results) -> Grid:
    """Every method in a line: unlawful states a game, and the reward."""
    rows = []
    for where, runs in results.items():
        by_key = [summarise(runs, key) for key in EVALUATIONS]
        printed = PRINTED[where.setting].get(where.algorithm, {})
        rows.append(
            [
                f"{where.title} on {where.setting}",
                size(by_key[0]).removesuffix(" steps"),
                printed.get("violations", NONE),
                *(_cells(found, ["violations"])[0] for found in by_key),
                printed.get("reward", NONE),
                _cells(by_key[0], ["reward"])[0],
            ]
        )
    starts = [
        f"{p}, {'shown' if s == 'train' else 'fresh'}" for p, _, s in (k.partition("/") for k in EVALUATIONS)
    ]
    return Grid(["", "seeds × steps", "paper", *starts, "Rwd, paper", "Rwd, greedy"], rows)


def paper_grid(group: Group, results: Results) -> Grid:
    """Every method's printed row, then ours from the same kind of starts under both policies."""
    names = _columns(group, results)
    rows, quiet = [], set()
    for algorithm in group.shown:
        where = Cell(group.setting, algorithm)
        if printed := PRINTED[group.setting].get(algorithm):
            quiet.add(len(rows))
            rows.append([f"{where.title}, paper", *(printed.get(n, NONE) for n in names)])
        if where not in results:
            rows.append([f"{where.title}, ours: no finished run", *(NONE for _ in names)])
            continue
        for key in EVALUATIONS[:2]:
            found = summarise(results[where], key)
            rows.append(
                [f"{where.title}, ours, {key.partition('/')[0]}, {size(found)}", *_cells(found, names)]
            )
    return Grid(["", *(heading(n, names) for n in names)], rows, frozenset(quiet))


def fresh_grid(group: Group, results: Results) -> Grid:
    """Ours from fresh starts, of which the paper shows pictures only."""
    names = _columns(group, results)
    rows = []
    for where in _there(group, results):
        for key in EVALUATIONS[2:]:
            found = summarise(results[where], key)
            rows.append([f"{where.title}, {key.partition('/')[0]}, {size(found)}", *_cells(found, names)])
    return Grid(["", *(heading(n, names) for n in names)], rows)


def _measured(group: Group, results: Results) -> dict[str, Mapping[str, tuple[float, float]]]:
    return {
        where.title: summarise(results[where], EVALUATIONS[0]).measures for where in _there(group, results)
    }


def _columns(group: Group, results: Results) -> list[str]:
    """The paper's."""
    printed = PRINTED[group.setting][group.shown[0]]
    return [n for n in columns(_measured(group, results)) if n in printed]


def _cells(found: Summary, names: Sequence[str]) -> list[str]:
    """A deviation over one seed is none."""
    values = [found.measures.get(n) for n in names]
    return [cell(n, v[0] if v and found.seeds == 1 else v) for n, v in zip(names, values)]


def _there(group: Group, results: Results) -> list[Cell]:
    return [c for a in group.shown if (c := Cell(group.setting, a)) in results]


def statistics_grid(group: Group, results: Results) -> Grid:
    head = [
        "",
        "violations a game",
        "IQM [95 %]",
        "P(avoidable) ≤",
        "unsafe seeds",
        "floor",
        "hole reached",
        f"steps to ≤ {SAFE:g}",
    ]
    rows = []
    for where in _there(group, results):
        for key in EVALUATIONS:
            found = summarise(results[where], key)
            violations = found.measures["violations"]
            low, high = found.interval
            rows.append(
                [
                    f"{where.title}, {key.replace('/', ', ')} starts",
                    cell("violations", violations[0] if found.seeds == 1 else violations),
                    f"{found.iqm:.3f} [{low:.3f}, {high:.3f}]" if found.seeds > 1 else NONE,
                    f"{found.p_avoidable:.4f}",
                    f"{found.unsafe:.0%}",
                    f"{floor(found):.3f}",
                    f"{found.measures['reached'][0]:.1%}",
                    _first_safe(results[where]) if key == EVALUATIONS[0] else "",
                ]
            )
    return Grid(head, rows)


def floor(found: Summary) -> float:
    """Violations nobody can avoid: those of the initial states."""
    return max(0.0, found.measures["violations"][0] - found.measures["avoidable"][0])


def _first_safe(runs: Sequence[Result]) -> str:
    """Median over seeds; a seed that never got there counts as later than all others."""
    steps = np.sort([np.inf if r.first_safe is None else r.first_safe for r in runs])
    middle = steps[(len(steps) - 1) // 2 : len(steps) // 2 + 1].mean()
    got = sum(r.first_safe is not None for r in runs)
    return (
        f"{middle:,.0f} ({got} of {len(runs)} seeds)"
        if np.isfinite(middle)
        else f"{got} of {len(runs)} seeds"
    )


def modes_grid(results: Results) -> Grid:
    rows = []
    for where, runs in results.items():
        seen = [r.modes for r in runs if r.modes is not None]
        if seen:
            each = {n: mean_std([m[n] for m in seen]) for n in ("both", "divergence", "lawful")}
            name = f"{where.title}, {len(seen)} seed{'s' * (len(seen) != 1)}"
            rows.append(
                [name, *(f"{m:.3f}±{s:.3f}" if len(seen) > 1 else f"{m:.3f}" for m, s in each.values())]
            )
    return Grid(["", "both sides", "divergence", "lawful games"], rows)


def verdicts_grid(verdicts: Sequence[Verdict], yes: str, no: str) -> Grid:
    rows = []
    for v in verdicts:
        value = NONE if v.value is None else f"{v.value:.4g}"
        rows.append(
            [
                v.expectation.words(),
                value,
                yes if v.holds else no if v.value is not None else "no run",
                v.expectation.source
                + (f"; tried: {v.expectation.tried}" * bool(v.expectation.tried and not v.holds)),
            ]
        )
    return Grid(["", "found", "", "from"], rows)


def tables(results: Results, ranges: Sequence[Verdict], targets: Sequence[Verdict]) -> list[Block]:
    """Everything that is numbers. Depends on the runs alone."""
    blocks: list[Block] = [
        Heading("At a glance"),
        Text(
            "Unlawful states a game, greedy or sampled, from the demonstrated (shown) or fresh starts; and the reward."
        ),
        glance_grid(results),
    ]
    for group in shown_groups(results):
        blocks += [
            Heading(group.title),
            Text("From the demonstrated (train) starts: mean over games, then mean ± deviation over seeds."),
            paper_grid(group, results),
            Text("From fresh (test) starts."),
            fresh_grid(group, results),
            Text("How sure that is."),
            statistics_grid(group, results),
        ]
        if group.setting == "two-modes":
            blocks += [
                Text("Sampled play from the starts where both ways round the circle were demonstrated."),
                modes_grid(results),
            ]
    if targets:
        blocks += [Heading("Targets"), verdicts_grid(targets, "met", "missed")]
    if ranges:
        blocks += [Heading("Expected ranges"), verdicts_grid(ranges, "within", "outside")]
    return blocks
