"""The paper's three questions, answered from results. Each answer states its rule, so that a reader can disagree."""

from collections.abc import Sequence

import numpy as np

from scopil.evaluate.stats import permutation_test
from scopil.experiments.paper import PRINTED, Cell
from scopil.experiments.results import EVALUATIONS, Result, summarise
from scopil.report.compare import Results, floor
from scopil.report.page import Block, Heading, Items, Text
from scopil.report.tables import cell

KEY = EVALUATIONS[0]  # greedy, train starts
FEWER = 10  # times
BOTH = 0.9  # of the paired starts, by policies of whose games as many count
SIGNIFICANT = 0.05


def answers(results: Results) -> list[Block]:
    blocks: list[Block] = []
    for question, answer in (
        ("Does it keep constraints that nobody models?", _keeps),
        ("Does it keep both modes of the demonstrations?", _modes),
        ("What does the entropy inside the constraint do?", _entropy),
    ):
        verdict, lines = answer(results)
        blocks += [Heading(question, 3), Text(verdict), Items(lines)]
    return [b for b in blocks if not (isinstance(b, Items) and not b.lines)]


def _each(runs: Sequence[Result], key: str = KEY) -> list[float]:
    return [r.means[key]["violations"] for r in runs]


def _told(runs: Sequence[Result], measure: str = "violations", key: str = KEY) -> str:
    values = summarise(runs, key).measures[measure]
    return cell(measure, values[0] if len(runs) == 1 else values)


def _where(key: str) -> str:
    policy, _, starts = key.partition("/")
    return f"{policy}, {'demonstrated' if starts == 'train' else 'fresh'} starts"


def _keeps(results: Results) -> tuple[str, list[str]]:
    lines = []
    for where, runs in results.items():
        if where.algorithm == "scopil":
            found = summarise(runs, KEY)
            printed = PRINTED[where.setting]["scopil"]["violations"]
            lines.append(
                f"{where.setting}, {_where(KEY)}: {_told(runs)} unlawful states a game (the paper: {printed}; the "
                f"floor, of games that start unlawfully, is {floor(found):.3g}). With 95 % confidence at most "
                f"{found.p_avoidable:.2%} of games hold an avoidable one; {found.unsafe:.0%} of seeds have any."
            )
    ours = results.get(Cell("simple", "scopil"))
    rivals = {a: results[Cell("simple", a)] for a in ("sac", "icrl") if Cell("simple", a) in results}
    if ours is None or not rivals:
        return "Not answered: it takes finished runs of SCOPIL and of SAC or ICRL on Simple.", lines
    base = float(np.mean(_each(ours)))
    fewer = True
    for algorithm, runs in rivals.items():
        theirs = float(np.mean(_each(runs)))
        ratio = f"{theirs / base:.3g} times SCOPIL's" if base else "SCOPIL has none"
        p = permutation_test(_each(ours), _each(runs))
        fewer &= base * FEWER <= theirs
        lines.append(
            f"simple, {_where(KEY)}, {Cell('simple', algorithm).title}: {_told(runs)}, {ratio} "
            f"(permutation test over seeds, p = {p:.2g})."
        )
    for key in EVALUATIONS[1:]:
        others = ", ".join(
            f"{_told(runs, key=key)} ({Cell('simple', a).title})" for a, runs in rivals.items()
        )
        lines.append(f"simple, {_where(key)}: {_told(ours, key=key)} (SCOPIL), {others}.")
    names = " and ".join(Cell("simple", a).title for a in rivals)
    rule = (
        f"SCOPIL's greedy play from the demonstrated starts breaks the law at least {FEWER} times less often than "
        f"that of {names} on Simple; from fresh starts see below"
    )
    return (f"Yes: {rule}." if fewer else f"No: it is not so that {rule}."), lines


def _modes(results: Results) -> tuple[str, list[str]]:
    runs = results.get(Cell("two-modes", "scopil"), ())
    seen = [r.modes for r in runs if r.modes is not None]
    if not seen:
        return "Not answered: it takes finished runs of SCOPIL on Two-modes.", []
    both, apart, lawful = (float(np.mean([m[k] for m in seen])) for k in ("both", "divergence", "lawful"))
    lines = [
        f"The split between the sides differs from the demonstrated half and half by {apart:.3f} in total variation "
        f"(0: the same; 0.5: one side only).",
        "A game counts for a side when it reaches the hole without an avoidable violation.",
        f"two-modes, greedy: {_told(runs)} unlawful states a game (the paper: "
        f"{PRINTED['two-modes']['scopil']['violations']}).",
    ]
    rule = (
        f"sampled play passes the circle on both sides from {both:.1%} of the starts where both were demonstrated, and "
        f"{lawful:.1%} of its games are lawful"
    )
    verdict = "No" if both < BOTH or lawful < 0.5 else "Yes" if lawful >= BOTH else "Mostly"
    return f"{verdict}: {rule} (we ask for {BOTH:.0%} of both).", lines


def _entropy(results: Results) -> tuple[str, list[str]]:
    lines, verdict = [], ""
    for with_it, without in (("scopil", "s-eic"), ("s-dgd", "s-dgd-eic")):
        a, b = results.get(Cell("simple", with_it)), results.get(Cell("simple", without))
        if not a or not b:
            continue
        p = permutation_test(_each(a), _each(b))
        gap = float(np.mean(_each(a)) - np.mean(_each(b)))
        names = Cell("simple", with_it).title, Cell("simple", without).title
        lines += [
            f"{names[0]} (with) against {names[1]} (without), {_where(key)}: {_told(a, key=key)} against "
            f"{_told(b, key=key)} unlawful states a game (p = {permutation_test(_each(a, key), _each(b, key)):.2g}); "
            f"steps {_told(a, 'steps', key)} against {_told(b, 'steps', key)}."
            for key in EVALUATIONS
        ]
        if with_it == "scopil":
            lines += _duals(*names, a, b)
            effect = "fewer" if gap < 0 else "more"
            verdict = f"With it there are {effect} violations, {_where(KEY)} (p = {p:.2g})."
            if p >= SIGNIFICANT:
                verdict = (
                    f"No difference in violations, {_where(KEY)}, that these seeds can tell (p = {p:.2g}; we ask for "
                    f"{SIGNIFICANT:g})."
                )
    return verdict or "Not answered: it takes finished runs of SCOPIL and S-EiC on Simple.", lines


def _duals(with_it: str, without: str, a: Sequence[Result], b: Sequence[Result]) -> list[str]:
    """Without entropy in the constraint, λ asks for a policy without any, where α asks for some: they can race."""
    share = [summarise(runs, KEY).unsafe for runs in (a, b)]
    lines = [
        f"Seeds with an avoidable violation, {_where(KEY)}: {share[0]:.0%} ({with_it}), {share[1]:.0%} ({without})."
    ]
    for key, sign in (("dual/lambda", "λ"), ("alpha/value", "α")):
        high = [max(r.peaks.get(key, np.nan) for r in runs) for runs in (a, b)]
        if np.isfinite(high).all():
            lines.append(
                f"The largest {sign} of any seed in the second half of training: {high[0]:.3g} ({with_it}), "
                f"{high[1]:.3g} ({without})."
            )
    return lines
