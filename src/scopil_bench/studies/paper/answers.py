"""Answers to the three questions of the SCOPIL paper, computed from results. Each answer states its criterion."""

from collections.abc import Sequence

import numpy as np

from scopil.eval.tables import cell
from scopil.registry import find
from scopil_bench.report.study_page import Answer
from scopil_bench.report.study_tables import unavoidable
from scopil_bench.report.summary import listed
from scopil_bench.stats import holm, permutation_test
from scopil_bench.studies.paper.published import PRINTED
from scopil_bench.summaries import EVALUATIONS, Cell, Result, Results, in_words, summarise

KEY = EVALUATIONS[0]  # the greedy policy from demonstrated starts
FEWER = 10  # criterion: smallest ratio of the violations of other methods to those of SCOPIL
# Criterion of "Yes" for two modes: the smallest share of lawful episodes, and the smallest share of starts, among those
# with demonstrations on both sides, from which the policy passes on both sides.
BOTH = 0.9
SIGNIFICANT = 0.05  # a difference is significant if p is smaller
NAMED = 3  # an answer names at most this many comparisons; its details list all


def title(method: str) -> str:
    return find(method).title


def answers(results: Results, simple: str = "simple") -> list[Answer]:
    """The three answers. `simple` is the setting used as the paper's task Simple."""
    return [
        Answer("Does SCOPIL keep constraints that are not modelled?", *_keeps(results, simple)),
        Answer("Does SCOPIL keep both modes of the demonstrations?", *_modes(results)),
        Answer("What does the entropy inside SCOPIL's constraint do?", *_entropy(results, simple)),
    ]


def most_lawful(results: Results, ours: str, yardsticks: Sequence[str] = ()) -> tuple[str, list[str]]:
    """Whether the method `ours` has significantly fewer violations from unseen starts than every other method, in every
    setting with runs of both. Returns the answer and its details. The methods in `yardsticks` learn from the true cost
    and are not compared. Holm's method corrects all tests together."""
    pairs = [
        (where, results[Cell(where.setting, ours)], runs)
        for where, runs in results.items()
        if Cell(where.setting, ours) in results and where.method not in (ours, *yardsticks)
    ]
    if not pairs:
        return f"Not answered: this needs finished runs of {title(ours)} and of other methods.", []
    key = "greedy/unseen"
    tests = holm([permutation_test(_each(mine, key), _each(theirs, key)) for _, mine, theirs in pairs])
    lines, missed, ahead = [], [], 0
    for p, (where, mine, theirs) in zip(tests, pairs):
        fewer = bool(np.mean(_each(mine, key)) < np.mean(_each(theirs, key)))
        ahead += fewer
        if not fewer or p >= SIGNIFICANT:
            missed.append(f"{title(where.method)} on {where.setting}")
        lines.append(
            f"{where.setting}, {in_words(key)}: {_figure(mine, key=key)} ({title(ours)}) against "
            f"{_figure(theirs, key=key)} ({title(where.method)}) violations per episode ({len(mine)} and "
            f"{len(theirs)} seeds, p = {p:.2g}{_by_holm(len(tests))})."
        )
    name, many, sure = title(ours), len(pairs), len(pairs) - len(missed)
    if not missed:
        settings = len({where.setting for where, _, _ in pairs})
        others = f"than every other method{' that is not given the true cost' if yardsticks else ''}"
        where = "in this setting" if settings == 1 else f"in each of {settings} settings"
        return f"Yes: {name} has significantly fewer violations per episode {others}, {where}.", lines
    named = f" (not than {listed(missed)})" if len(missed) <= NAMED else ""
    return (
        f"{'Not everywhere' if sure else 'Not shown'}: {name} has fewer violations per episode in {ahead} of {many} "
        f"comparisons with other methods, significantly fewer in {sure or 'none'}{named}.",
        lines,
    )


def _each(runs: Sequence[Result], key: str = KEY) -> list[float]:
    return [r.means[key]["violations"] for r in runs]


def _figure(runs: Sequence[Result], measure: str = "violations", key: str = KEY) -> str:
    values = summarise(runs, key).measures[measure]
    return cell(measure, values[0] if len(runs) == 1 else values)


def _keeps(results: Results, simple: str) -> tuple[str, list[str]]:
    lines = []
    for where, runs in results.items():
        if where.method == "scopil":
            found = summarise(runs, KEY)
            printed = PRINTED[where.setting.removesuffix("-simulated")]["scopil"]["violations"]
            lines.append(
                f"{where.setting}, {in_words(KEY)}: {_figure(runs)} violations per episode (paper: {printed}; "
                f"unavoidable, in initial states: {unavoidable(found):.3g}). With 95 % confidence, at most "
                f"{found.p_avoidable:.2%} of episodes contain an avoidable violation; {found.unsafe:.0%} of seeds have "
                f"an avoidable violation."
            )
    ours = results.get(Cell(simple, "scopil"))
    rivals = {a: results[Cell(simple, a)] for a in ("sac", "icrl", "bc") if Cell(simple, a) in results}
    judged = [a for a in rivals if a != "bc"]
    if ours is None or not judged:
        return "Not answered: this needs finished runs of SCOPIL and of SAC or ICRL on Simple.", lines
    base = float(np.mean(_each(ours)))
    fewer = True
    corrected = holm([permutation_test(_each(ours), _each(runs)) for runs in rivals.values()])
    for p, (method, runs) in zip(corrected, rivals.items()):
        theirs = float(np.mean(_each(runs)))
        ratio = f"{theirs / base:.3g} times SCOPIL's" if base else "SCOPIL has no violations"
        fewer &= method not in judged or base * FEWER <= theirs
        lines.append(
            f"{simple}, {in_words(KEY)}, {title(method)}: {_figure(runs)} violations per episode, {ratio} "
            f"(permutation test over seeds, p = {p:.2g}{_by_holm(len(rivals))})."
        )
    for key in EVALUATIONS[1:]:
        others = ", ".join(f"{_figure(runs, key=key)} ({title(a)})" for a, runs in rivals.items())
        lines.append(f"{simple}, {in_words(key)}, violations per episode: {_figure(ours, key=key)} (SCOPIL), {others}.")
    names = " and ".join(title(a) for a in judged)
    where = simple.capitalize().replace("-simulated", " with simulated players")
    claim = (
        f"on {where}, SCOPIL's greedy policy has at least {FEWER} times fewer violations than the greedy policy of "
        f"{names}, from the demonstrated starts"
    )
    if fewer:
        return f"Yes: {claim}. Results from unseen starts are listed below.", lines
    return f"No. The criterion, that {claim}, is not met.", lines


def _modes(results: Results) -> tuple[str, list[str]]:
    runs = results.get(Cell("two-modes", "scopil"), ())
    seen = [r.extra["modes"] for r in runs if "modes" in r.extra]
    if not seen:
        return "Not answered: this needs finished runs of SCOPIL on Two-modes.", []
    both, apart, lawful = (float(np.mean([m[k] for m in seen])) for k in ("both", "divergence", "lawful"))
    lines = [
        f"The policy's distribution over the two sides differs from the demonstrated one (half and half) by "
        f"{apart:.3f} in total variation (0: the same; 0.5: one side only).",
        "An episode counts for a side if it reaches the hole without an avoidable violation.",
        f"two-modes, greedy: {_figure(runs)} violations per episode (paper: "
        f"{PRINTED['two-modes']['scopil']['violations']}).",
    ]
    found = (
        f"sampled play passes the circle on both sides from {both:.1%} of the starts with demonstrations on both "
        f"sides, and {lawful:.1%} of the sampled episodes are lawful"
    )
    verdict = "No" if both < BOTH or lawful < 0.5 else "Yes" if lawful >= BOTH else "Mostly"
    return f"{verdict}: {found} (criterion: at least {BOTH:.0%} for each).", lines


def _entropy(results: Results, simple: str) -> tuple[str, list[str]]:
    pairs = [("scopil", "s-eic"), ("s-dgd", "s-dgd-eic")]
    found = [
        (p, a, b) for p in pairs if (a := results.get(Cell(simple, p[0]))) and (b := results.get(Cell(simple, p[1])))
    ]
    tests = [permutation_test(_each(a, key), _each(b, key)) for _, a, b in found for key in EVALUATIONS]
    corrected = iter(holm(tests))
    lines, verdict = [], ""
    for (with_it, without), a, b in found:
        names = title(with_it), title(without)
        by_key = {key: next(corrected) for key in EVALUATIONS}
        lines += [
            f"{names[0]} (with) against {names[1]} (without), {in_words(key)}: {_figure(a, key=key)} against "
            f"{_figure(b, key=key)} violations per episode (p = {p:.2g}{_by_holm(len(tests))}); "
            f"steps {_figure(a, 'steps', key)} against {_figure(b, 'steps', key)}."
            for key, p in by_key.items()
        ]
        if with_it == "scopil":
            share = [summarise(runs, KEY).unsafe for runs in (a, b)]
            lines.append(
                f"Seeds with an avoidable violation, {in_words(KEY)}: {share[0]:.0%} ({names[0]}), {share[1]:.0%} "
                f"({names[1]})."
            )
            p, effect = by_key[KEY], "fewer" if np.mean(_each(a)) < np.mean(_each(b)) else "more"
            verdict = f"With it there are {effect} violations, {in_words(KEY)} (p = {p:.2g})."
            if p >= SIGNIFICANT:
                verdict = (
                    f"No significant difference in violations with and without this entropy, {in_words(KEY)} "
                    f"(p = {p:.2g}; significant: p < {SIGNIFICANT:g})."
                )
    return verdict or "Not answered: this needs finished runs of SCOPIL and S-EiC on Simple.", lines


def _by_holm(comparisons: int) -> str:
    return f", corrected for {comparisons} comparisons by Holm's method" if comparisons > 1 else ""
