"""The report of a study from made results: answers, tables, missing runs, and a page without links to other files."""

import re

from made_results import cell_of, report_of
from scopil_bench import stats
from scopil_bench.report.page import Grid, Items, to_html, to_markdown
from scopil_bench.report.study_page import write
from scopil_bench.report.study_tables import overview_grid, starts_grid, statistics_grid
from scopil_bench.studies.paper.answers import answers, most_lawful
from scopil_bench.studies.paper.study import STUDY
from scopil_bench.studies.running import layout_of
from scopil_bench.studies.unseen import questions
from scopil_bench.summaries import Cell

MODES = {"both": 1.0, "divergence": 0.1, "lawful": 0.99}


def texts(results) -> list[str]:
    return [answer.verdict for answer in answers(results)]


def test_answers_follow_the_numbers():
    good = cell_of("scopil", [0.025] * 5) | cell_of("sac", [2.0, 1.9, 2.1, 2.0, 2.2])
    assert texts(good)[0].startswith("Yes: on Simple, SCOPIL's greedy policy has at least 10 times fewer violations")
    bad = cell_of("scopil", [0.5] * 5) | cell_of("sac", [2.0] * 5) | cell_of("icrl", [9.0] * 5)
    assert texts(bad)[0].startswith("No. The criterion, that on Simple")
    assert texts(cell_of("sac", [2.0]))[0].startswith("Not answered")


FEW = [0.01, 0.02, 0.0, 0.03, 0.01, 0.02, 0.04]
MANY = [1.0, 1.1, 0.9, 1.2, 1.3, 1.0, 0.8]


def test_the_most_lawful_has_fewer_violations_than_every_other_method():
    simple = cell_of("scopil-rho", FEW) | cell_of("sac", MANY) | cell_of("bc", [30.0, *MANY[1:]])
    assert most_lawful(simple, "scopil-rho")[0].startswith("Yes")
    close = cell_of("scopil-rho", FEW, setting="multiple") | cell_of("scopil", FEW[::-1], setting="multiple")
    verdict, details = most_lawful(simple | close, "scopil-rho")
    assert verdict.startswith("Not everywhere")
    assert "significantly fewer in 2 (not than SCOPIL on multiple)" in verdict
    assert len(details) == 3
    assert all("corrected for 3 comparisons" in line for line in details)
    # Too few seeds; more violations than others; an oracle is not compared.
    two = cell_of("scopil-rho", FEW[:2]) | cell_of("sac", MANY[:2])
    assert most_lawful(two, "scopil-rho")[0].startswith("Not shown")
    assert most_lawful(simple, "sac")[0].startswith("Not shown")
    with_oracle = simple | cell_of("oracle-sac-lagrangian", [0.0] * 7)
    assert most_lawful(with_oracle, "scopil-rho", ["oracle-sac-lagrangian"])[0].startswith("Yes")
    assert most_lawful(cell_of("sac", MANY), "scopil-rho")[0].startswith("Not answered")


def test_simulated_players_replace_the_papers_simple_in_the_unseen_study():
    shown = {"setting": "simple-simulated"}
    results = cell_of("scopil", [0.025] * 5, **shown) | cell_of("sac", [2.0, 1.9, 2.1, 2.0, 2.2], **shown)
    assert questions(results)[1].verdict.startswith("Yes: on Simple")
    assert answers(results)[0].verdict.startswith("Not answered")


def test_both_modes_must_be_lawful():
    for change, begins in (({}, "Yes"), ({"both": 0.8}, "No"), ({"lawful": 0.7}, "Mostly"), ({"lawful": 0.2}, "No")):
        results = cell_of("scopil", [0.025], setting="two-modes", extra={"modes": MODES | change})
        assert texts(results)[1].startswith(f"{begins}: sampled play passes")


def test_entropy_needs_a_significant_difference():
    ours = cell_of("scopil", [0.025, 0.05, 0.025, 0.05, 0.025])
    assert texts(ours | cell_of("s-eic", [0.5, 0.6, 0.7, 0.5, 0.6]))[2].startswith("With it there are fewer")
    assert texts(ours | cell_of("s-eic", [0.05, 0.025, 0.025, 0.05, 0.05]))[2].startswith("No significant difference")
    lines = [line for answer in answers(ours | cell_of("s-eic", [0.5, 0.6])) for line in answer.details]
    assert any("40% (SCOPIL), 100% (S-EiC)" in line for line in lines)


def simple(results, starts="demonstrated", beside=True, layout=None):
    return starts_grid(layout or layout_of(STUDY), STUDY.tables["simple"], results, starts, beside)


def test_tables_have_the_published_figures_and_those_of_the_runs():
    grid = simple(cell_of("scopil", [0.025, 0.075]))
    rules = [f"{what} ({rule})" for rule in ("horizontal", "circle") for what in ("Violations", "Violations per step")]
    assert grid.head == ["", "Reward", *rules, "Violations", "Violations per step", "Length", "Steps"]
    rows = {row[0]: row for row in grid.rows}
    assert rows["SCOPIL, paper"][6] == "0.087±0.126"
    assert rows["SCOPIL, ours, greedy, 2 seeds × 1,000,000 steps"][6] == "0.050±0.025"
    assert set(rows["SAC: no finished run"][1:]) == {"–"}
    alone = simple(cell_of("scopil", [0.025]))
    assert alone.rows[1][6] == "0.025"  # one seed has no deviation

    assert not any("BC" in row[0] for row in alone.rows)  # cloning was not run
    both = cell_of("scopil", [0.025]) | cell_of("bc", [0.5, 0.7])
    assert sum(str(row[0]).startswith("BC, ours, ") for row in simple(both).rows) == 2
    assert any(row[0] == "BC on simple" for row in overview_grid(layout_of(STUDY), both).rows)


def test_the_median_of_first_safe_steps_counts_seeds_that_never_were():
    results = cell_of("scopil", [0.025] * 3)
    (runs,) = results.values()
    for second, shown in ((90_000, "90,000 (2 of 3 seeds)"), (None, "1 of 3 seeds")):
        runs[:2] = [run._replace(first_safe=first) for run, first in zip(runs, (None, second))]
        grid = statistics_grid(layout_of(STUDY), STUDY.tables["simple"], results)
        assert grid is not None
        assert grid.rows[0][-1] == shown


def test_an_environment_without_costs_has_rewards_alone():
    means = {"greedy/unseen": {"reward": 5.0, "steps": 9.0}}
    results = cell_of("scopil", [0.0], means=means, episodes={"greedy/unseen": 3}, violating={"greedy/unseen": 0})
    assert statistics_grid(layout_of(STUDY), STUDY.tables["simple"], results) is None
    assert simple(results, "unseen", beside=False).head == ["", "Reward", "Steps"]
    assert overview_grid(layout_of(STUDY), results).rows[0][3] == "rules not known"


def test_the_page_is_self_contained_and_lists_what_is_missing(tmp_path):
    results = cell_of("scopil", [0.025, 0.05]) | cell_of("sac", [2.0, 2.1])
    report = report_of(
        results,
        missing={"simple/icrl-0": "5 of 9 steps", "simple/icrl-1": "not started"},
        failed={"simple/icrl-1": "error: <b> & NaN"},
        folders={Cell("simple", "scopil"): ["runs/simple/scopil-0", "runs/simple/scopil-1"]},
    )
    write(tmp_path, report)
    html, markdown = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    assert not re.findall(r"(?:src|href)=\"(?!data:|#|runs/simple/scopil-[01]\")", html)
    assert "error: &lt;b&gt; &amp; NaN" in html
    lines = ["Two-modes: not run.", "SAC on simple: 2 of 10 seeds done.", "no finished run of ICRL"]
    for line in [*lines, "simple/icrl-0: 5 of 9 steps", "jax: 0.9, 0.10"]:
        assert line in html
        assert line in markdown
    assert "short runs" not in markdown


def test_a_table_in_both_forms(tmp_path):
    grid = Grid(["", "x"], [["a<", "1"], ["b", "2"]], frozenset({1}))
    assert (
        to_markdown("T", [grid, Items(["i"])], tmp_path)
        == "# T\n\n|  | x |\n|---|---|\n| a&lt; | 1 |\n| b | 2 |\n\n- i\n"
    )
    html = to_html("T", [grid])
    assert '<tr><td>a&lt;</td><td>1</td></tr><tr class="quiet"><td>b</td>' in html


def test_permutation_tests_run_once_a_page(tmp_path, monkeypatch):
    """Answers, sentences and tables use the same tests."""
    run, made = stats.scipy_stats.permutation_test, []

    def counting(data, *args, **options):
        made.append(str(data))
        return run(data, *args, **options)

    monkeypatch.setattr(stats.scipy_stats, "permutation_test", counting)
    stats._permutation_test.cache_clear()
    results = cell_of("scopil", [0.01, 0.03]) | cell_of("sac", [2.0, 2.1]) | cell_of("bc", [0.5, 0.7])
    write(tmp_path, report_of(results))
    assert len(made) == 2  # SCOPIL against SAC and BC
    write(tmp_path, report_of(results))
    assert len(made) == 2
