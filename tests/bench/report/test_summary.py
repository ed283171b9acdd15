"""The first screen: figures by seed, comparisons corrected together, and sentences that follow from them."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from made_results import cell_of, measures
from scopil_bench.report import summary
from scopil_bench.report.page import Grid, to_markdown
from scopil_bench.report.study_tables import starts_grid, tables
from scopil_bench.report.svg import Axis
from scopil_bench.stats import holm, permutation_test
from scopil_bench.studies.paper.study import STUDY
from scopil_bench.studies.running import layout_of
from scopil_bench.summaries import EVALUATIONS, Cell

LAYOUT = layout_of(STUDY)
FEW, MANY = [0.1, 0.2, 0.3, 0.4, 0.5], [2.1, 2.2, 2.3, 2.4, 2.5]


def test_comparisons_of_the_whole_page_are_corrected_together():
    results = cell_of("scopil", FEW) | cell_of("sac", MANY) | cell_of("icrl", [0.11, 0.2, 0.3, 0.4, 0.5])
    results |= cell_of("scopil", FEW, setting="multiple") | cell_of("bc", MANY, setting="multiple")
    made = summary.compare(LAYOUT, results)
    assert [(c.setting, c.method, c.rival) for c in made] == [
        ("simple", "scopil", "icrl"),  # in the order of the study's tables
        ("simple", "scopil", "sac"),
        ("multiple", "scopil", "bc"),
    ]
    p = [permutation_test(FEW, [0.11, *FEW[1:]]), 2 / 252, 2 / 252]
    assert [c.p for c in made] == pytest.approx(p)
    assert [c.corrected for c in made] == pytest.approx(holm(p))
    assert holm(p) == pytest.approx([p[0], 6 / 252, 6 / 252])
    five = cell_of("scopil", FEW) | cell_of("sac", MANY) | cell_of("icrl", MANY)
    said = summary.how_compared(summary.compare(LAYOUT, five))
    assert "no p can be below 0.016." in said  # 2 of 252 splits, for two comparisons


def sentences(results, layout=LAYOUT) -> list[str]:
    return summary.verdicts(layout, results, summary.compare(layout, results))


def sentence(results) -> str:
    """The comparison by a test."""
    return sentences(results)[-1]


def test_a_plain_sentence_says_which_methods_kept_the_rules():
    ours, sac = cell_of("scopil", [0.03] * 5), cell_of("sac", MANY)  # 0.025 of them unavoidable
    shown = {"Demonstrator (40 episodes)": measures(0.43), "Demonstrator, unseen starts": measures(0.05)}
    layout = LAYOUT._replace(references={"simple": shown})
    assert sentences(ours | sac)[0] == "SCOPIL kept the rules (0.03 violations per episode); SAC did not (2.3)."
    both = cell_of("scopil", MANY) | cell_of("sac", [v + 9 for v in MANY])
    want = "No method kept the rules: the best, SCOPIL, has 2.3 violations per episode"
    assert sentences(both)[0] == f"{want}."
    assert sentences(both, layout)[0] == f"{want}, the demonstrator 0.05."  # from the same starts
    recorded = LAYOUT._replace(references={"simple": {"Demonstrator (40 episodes)": measures(0.43)}})
    assert sentences(cell_of("sac", MANY), recorded) == [
        "SAC did not keep the rules: 2.3 violations per episode, the demonstrator 0.43."
    ]
    assert sentences(cell_of("sac", FEW), recorded) == [
        "SAC broke the rules no more often than the demonstrator: 0.3 violations per episode, the demonstrator 0.43."
    ]


def test_too_few_seeds_are_one_sentence_and_no_p():
    results = cell_of("scopil", FEW[:2]) | cell_of("sac", MANY[:2]) | cell_of("bc", MANY[:2], setting="multiple")
    results |= cell_of("scopil", FEW[:2], setting="multiple")
    said = sentences(results)
    assert said[-1] == "2 seeds per method are too few to tell methods apart: 5 or more are needed."
    assert len(said) == 3  # and a conclusion for each setting
    assert "p" not in summary.how_compared(summary.compare(LAYOUT, results)).split()
    enough = {cell: (runs * 3)[:5] for cell, runs in results.items()}
    assert "too few" not in " ".join(sentences(enough))


def test_every_mean_has_an_interval_over_seeds_or_over_episodes():
    (runs,) = cell_of("scopil", [0.5]).values()
    one = runs[0]._replace(margins={"greedy/unseen": {"violations": 0.2}}, episodes=dict.fromkeys(runs[0].episodes, 40))
    found = summary.figure_of([one], "greedy/unseen", "violations")
    assert found is not None
    assert found.interval == pytest.approx((0.3, 0.7))
    wide = one._replace(margins={"greedy/unseen": {"violations": 0.9}})
    found = summary.figure_of([wide], "greedy/unseen", "violations")
    assert found is not None
    assert found.interval == pytest.approx((0.0, 1.4))  # a count is not negative
    share = summary.figure_of([one._replace(violating={"greedy/unseen": 4})], "greedy/unseen", "violating")
    assert share is not None
    assert (share.mean, share.words("violating")) == (0.1, "10 %")
    assert share.ends("violating") == "[2.8 %, 24 %]"
    several = summary.figure_of(cell_of("scopil", FEW).popitem()[1], "greedy/unseen", "violations")
    assert several is not None
    assert several.interval is not None
    assert several.interval[0] < 0.3 < several.interval[1]


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_zero_has_its_exact_bound_and_no_interval_of_no_width(seeds):
    lawful = {
        "means": dict.fromkeys(EVALUATIONS, measures(0.0, avoidable=0.0)),
        "violating": dict.fromkeys(EVALUATIONS, 0),
    }
    results = cell_of("scopil", [0.0] * seeds, margins={}, **lawful) | cell_of("sac", [2.0] * seeds)
    bound = f"≤ {'7.2 %' if seeds == 1 else '2.5 %'}"  # of 40 and of 120 episodes
    found = summary.figure_of(results[Cell("simple", "scopil")], "greedy/unseen", "violations")
    assert found is not None
    assert (found.interval, found.words("violations")) == (None, f"0 ({bound})")
    colours = {"scopil": 0, "sac": 1}
    drawn = summary.table(LAYOUT, results, None, summary.anchors_of(results), colours)
    page = to_markdown("", [drawn, *tables(LAYOUT, results, [], [])], Path())
    assert f"0 ({bound})" in page
    assert not re.search(r"\b0\.0+ *±|\[0\.0+, 0\.0+\]", page)
    assert f"at most {bound.removeprefix('≤ ')} have one" in sentences(results)[0]


def rewarded(results, value: float):
    return {
        cell: [r._replace(means={k: m | {"reward": value} for k, m in r.means.items()}) for r in runs]
        for cell, runs in results.items()
    }


def test_a_sentence_says_which_methods_differ_and_which_has_the_best_reward():
    ours, sac, icrl = cell_of("scopil", FEW), cell_of("sac", MANY), cell_of("icrl", [0.11, *FEW[1:]])
    line = sentence(ours | sac | icrl)
    assert "SCOPIL has 0.300 violations per episode, fewer than SAC (2.300, p" in line
    assert "not shown to differ from ICRL (0.302, p = " in line
    assert line.endswith("; none has a better reward (-13.00).")
    assert "fewer than SAC (2.300, p = 0.0079); SAC has the best reward (-7.50" in sentence(ours | rewarded(sac, -7.5))
    assert "2.300 violations per episode, more than SAC (0.300, p = 0.0079)" in sentence(
        cell_of("scopil", MANY) | cell_of("sac", FEW)
    )


MANY_RIVALS = ("icrl", "sac", "bc", "s-dgd", "s-eic")


def test_of_many_methods_a_sentence_names_the_best():
    others = {m: [v + i for v in MANY] for i, m in enumerate(MANY_RIVALS)}
    ahead = cell_of("scopil", FEW) | {k: v for m, each in others.items() for k, v in cell_of(m, each).items()}
    line = sentence(ahead)
    assert "fewer than ICRL (2.300, p = 0.04) and 4 others (the largest p = 0.04);" in line
    assert "SAC" not in line
    alike = {cell: runs if cell.method == "scopil" else cell_of(cell.method, FEW)[cell] for cell, runs in ahead.items()}
    assert "not shown to differ from any of 5 others, the best of them ICRL (0.300, p = 1);" in sentence(alike)
    short = {cell: runs[:2] for cell, runs in ahead.items()}  # too few for a test
    assert "too few to tell methods apart" in sentence(short)
    grid = summary.comparisons_grid(LAYOUT, ahead, summary.compare(LAYOUT, ahead))
    assert [row[0] for row in grid.rows][:3] == ["Simple: SCOPIL", "Simple: ICRL", "Simple: SAC"]
    assert [row[1:] for row in grid.rows][:2] == [["0.300", "-13.00", "–"], ["2.300", "-13.00", "0.04"]]
    assert len(grid.rows) == 6


def test_rewards_are_compared_if_nothing_counts_violations():
    def of(method: str, values: list[float]):
        ((cell, runs),) = cell_of(method, values).items()
        return {cell: [r._replace(means={"greedy/unseen": {"reward": v}}) for r, v in zip(runs, values)]}

    results = of("scopil", MANY) | of("sac", FEW)
    assert [c.measure for c in summary.columns_of(results)] == ["reward"]
    assert "SCOPIL has a reward of 2.30, more than SAC (0.30, p = 0.0079)." in sentence(results)


def test_columns_are_greedy_and_unseen_starts_come_first():
    found = [(c.key.removeprefix("greedy/"), c.measure) for c in summary.columns_of(cell_of("scopil", FEW))]
    counts, shares = [("unseen", "violations"), ("demonstrated", "violations")], ["violating", "reached"]
    assert found == [*counts, *(("unseen", share) for share in shares), ("unseen", "reward")]
    other = {"sampled/unseen": measures(0.5)}
    assert {c.key for c in summary.columns_of(cell_of("scopil", [0.5], means=other))} == {"sampled/unseen"}


def test_a_bent_axis_shows_small_and_large_counts():
    axis = Axis(0.0, 100.0, bent=True)
    assert axis.ticks() == [0.0, 0.1, 1.0, 10.0, 100.0]
    at = [axis.at(v) for v in axis.ticks()]
    assert (at[0], at[-1]) == (0, 1)
    assert min(b - a for a, b in pairwise(at)) > 0.1


def test_a_demonstrators_row_stands_with_its_own_starts():
    results = cell_of("scopil", FEW)
    rows = {"Demonstrator (40 episodes)": measures(0.1), "Demonstrator, unseen starts": measures(0.7)}
    layout = LAYOUT._replace(references={"simple": rows})
    (grid,) = summary.table(layout, results, None, summary.anchors_of(results), {"scopil": 0}).markdown
    assert isinstance(grid, Grid)
    shown = [row[3:5] for row in grid.rows if row[1] in rows]
    assert [title.rpartition(", ")[2] for title in grid.head[3:5]] == ["unseen starts", "demonstrated starts"]
    assert shown == [["–", "0.100"], ["0.700", "–"]]
    for starts, name in zip(("demonstrated", "unseen"), rows):
        found = starts_grid(layout, STUDY.tables["simple"], results, starts)
        assert [row[0] for row in found.rows if str(row[0]).startswith("Demonstrator")] == [name]
