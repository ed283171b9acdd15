"""The report card from made results: what it answers, what it admits, and that it needs nothing beside it."""

import base64
import re

import pytest

from made_results import cell_of
from scopil.experiments.expected import judge, load
from scopil.experiments.paper import GROUPS
from scopil.report.answers import answers
from scopil.report.card import Report, write
from scopil.report.compare import paper_grid, statistics_grid
from scopil.report.page import Grid, Items, Picture, Text, to_html, to_markdown

MODES = {"both": 1.0, "divergence": 0.1, "lawful": 0.99}


def texts(results) -> list[str]:
    return [b.text for b in answers(results) if isinstance(b, Text)]


def test_answers_follow_the_numbers():
    good = cell_of("scopil", [0.025] * 5) | cell_of("sac", [2.0, 1.9, 2.1, 2.0, 2.2])
    assert texts(good)[0].startswith("Yes: SCOPIL's greedy play from the demonstrated starts breaks")
    bad = cell_of("scopil", [0.5] * 5) | cell_of("sac", [2.0] * 5) | cell_of("icrl", [9.0] * 5)
    assert texts(bad)[0].startswith("No: it is not so that SCOPIL")
    assert texts(cell_of("sac", [2.0]))[0].startswith("Not answered")


def test_both_modes_must_be_lawful_ones():
    for change, begins in (
        ({}, "Yes"),
        ({"both": 0.8}, "No"),
        ({"lawful": 0.7}, "Mostly"),
        ({"lawful": 0.2}, "No"),
    ):
        results = cell_of("scopil", [0.025], setting="two-modes", modes=MODES | change)
        assert texts(results)[1].startswith(f"{begins}: sampled play passes")


def test_entropy_needs_a_difference_that_seeds_can_tell():
    ours = cell_of("scopil", [0.025, 0.05, 0.025, 0.05, 0.025])
    assert texts(ours | cell_of("s-eic", [0.5, 0.6, 0.7, 0.5, 0.6]))[2].startswith("With it there are fewer")
    assert texts(ours | cell_of("s-eic", [0.05, 0.025, 0.025, 0.05, 0.05]))[2].startswith("No difference")
    raced = cell_of("s-eic", [0.5, 0.6], peaks={"dual/lambda": 700.0, "alpha/value": 1e5})
    said = [line for b in answers(ours | raced) if isinstance(b, Items) for line in b.lines]
    assert any("largest α" in line and "0.3 (SCOPIL), 1e+05 (S-EiC)" in line for line in said)


def test_tables_hold_the_papers_digits_and_our_own():
    grid = paper_grid(GROUPS["simple"], cell_of("scopil", [0.025, 0.075]))
    assert grid.head == ["", "Rwd", "H", "F(H)", "C", "F(C)", "H+C", "F(H+C)", "Length", "Steps"]
    rows = {row[0]: row for row in grid.rows}
    assert rows["SCOPIL, paper"][6] == "0.087±0.126"
    assert rows["SCOPIL, ours, greedy, 2 seeds × 1,000,000 steps"][6] == "0.050±0.025"
    assert set(rows["SAC, ours: no finished run"][1:]) == {"–"}
    alone = paper_grid(GROUPS["simple"], cell_of("scopil", [0.025]))
    assert alone.rows[1][6] == "0.025"  # one seed has no deviation


def test_the_median_of_first_safe_steps_counts_those_that_never_were():
    results = cell_of("scopil", [0.025] * 3)
    (runs,) = results.values()
    runs[0], runs[1] = runs[0]._replace(first_safe=None), runs[1]._replace(first_safe=90_000)
    assert statistics_grid(GROUPS["simple"], results).rows[0][-1] == "90,000 (2 of 3 seeds)"
    runs[1] = runs[1]._replace(first_safe=None)
    assert statistics_grid(GROUPS["simple"], results).rows[0][-1] == "1 of 3 seeds"


@pytest.fixture
def written(tmp_path):
    picture = tmp_path / "figures" / "dot.png"
    picture.parent.mkdir()
    picture.write_bytes(b"\x89PNG dot")
    results = cell_of("scopil", [0.025, 0.05]) | cell_of("sac", [2.0, 2.1])
    ranges, targets = (judge(e, results) for e in load("paper"))
    report = Report(
        budget="paper",
        command="scopil reproduce",
        results=results,
        missing={"simple/icrl-0": "5 of 9 steps", "simple/icrl-1": "not begun"},
        failed={"simple/icrl-1": "error: <b> & NaN"},
        ranges=ranges,
        targets=targets,
        timings={},
        versions={"jax": ["0.9", "0.10"]},
        pictures=[Picture(picture, "a dot")],
    )
    write(tmp_path, report)
    return tmp_path


def test_the_page_needs_nothing_beside_it(written):
    html = (written / "report.html").read_text()
    assert not re.findall(r"(?:src|href)=\"(?!data:)", html)
    assert base64.b64encode(b"\x89PNG dot").decode() in html
    assert "error: &lt;b&gt; &amp; NaN" in html


def test_the_page_admits_what_is_missing(written):
    for name in ("report.html", "report.md"):
        page = (written / name).read_text()
        for line in (
            "Two-modes: not run.",
            "SAC on simple: 8 of 10 seeds",
            "no finished run of ICRL",
            "simple/icrl-0: 5 of 9 steps",
        ):
            assert line in page
        assert "jax: 0.9, 0.10" in page
    assert "short runs" not in (written / "report.md").read_text()
    assert "(figures/dot.png)" in (written / "report.md").read_text()


def test_tables_alone_say_no_time(written):
    tables = (written / "tables.md").read_text()
    assert "2.050±0.050" in tables
    assert "Wall-clock" not in tables
    assert "met" in tables
    assert "no run" in tables


def test_a_table_in_both_forms(tmp_path):
    grid = Grid(["", "x"], [["a<", "1"], ["b", "2"]], frozenset({1}))
    assert (
        to_markdown("T", [grid, Items(["i"])], tmp_path)
        == "# T\n\n|  | x |\n|---|---|\n| a< | 1 |\n| b | 2 |\n\n- i\n"
    )
    html = to_html("T", [grid])
    assert '<tr><td>a&lt;</td><td>1</td></tr><tr class="quiet"><td>b</td>' in html
