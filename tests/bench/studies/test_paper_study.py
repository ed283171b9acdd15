"""The paper's tables are complete, and every run of every budget can be created; so can those of the other studies."""

from pathlib import Path

import pytest

from scopil.config import build
from scopil.errors import ConfigError
from scopil.registry import find, registered
from scopil_bench import studies
from scopil_bench.planning import plan
from scopil_bench.studies.paper.published import PRINTED, heading, number
from scopil_bench.studies.paper.study import STUDY
from scopil_bench.summaries import Cell


def test_numbers_are_read_as_printed():
    assert number("simple", "scopil", "violations") == (0.087, 0.126)
    assert number("simple", "ppo-dgd", "reward") == (-10.94, 0.11)
    assert number("multiple", "scopil", "violations/vertical") == (0.55, 1.37)
    assert number("two-modes", "scopil", "frequency") == (0.0035, 0.0)


@pytest.mark.parametrize("setting", PRINTED)
def test_rules_add_up_to_the_printed_sums(setting):
    """A digit mistyped in one of them would show. The paper rounds to two digits in places."""
    for method, row in PRINTED[setting].items():
        rules = [number(setting, method, m)[0] for m in row if m.startswith("violations/")]
        total = number(setting, method, "violations")[0]
        assert sum(rules) == pytest.approx(total, abs=0.011), method


def test_the_papers_letters():
    names = list(PRINTED["multiple"]["scopil"])
    wanted = ["Rwd", "H", "F(H)", "V", "F(V)", "C", "F(C)", "H+V+C", "F(H+V+C)", "Length", "Steps"]
    assert [heading(n, names) for n in names] == wanted


def test_every_cell_has_a_printed_row_and_an_algorithm():
    assert STUDY.cells() == [
        *(Cell("simple", a) for a in ("scopil", "icrl", "sac")),
        *(Cell(s, "scopil") for s in ("multiple", "two-modes")),
        *(Cell("simple", a) for a in ("s-dgd", "s-eic", "s-dgd-eic", "ppo-dgd")),
        *(Cell("simple", a) for a in ("bc", "oracle-ppo-lagrangian", "oracle-sac-lagrangian")),
    ]
    for name, table in STUDY.tables.items():
        assert set(table.trained) <= set(table.shown) <= set(registered())
        assert name == "yardsticks" or set(table.trained) <= set(PRINTED[table.setting])


def test_some_tables_or_an_unknown_one():
    assert STUDY.cells(["two-modes"]) == [Cell("two-modes", "scopil")]
    with pytest.raises(ConfigError, match=r"no table simpel in paper; there are simple, multiple"):
        STUDY.cells(["simpel"])


def test_first_seeds_come_first():
    order = plan(STUDY, Path("out"), "paper", STUDY.cells(["simple"]), 2)
    names = ["scopil-0", "icrl-0", "sac-0", "scopil-1", "icrl-1", "sac-1"]
    assert [folder.name for folder, _ in order] == names
    assert [spec.seed for _, spec in order] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("budget", STUDY.budgets)
def test_every_config_is_valid(budget):
    for (_, spec), cell in zip(plan(STUDY, Path("out"), budget, STUDY.cells(), 1), STUDY.cells()):
        build(spec.algorithm.config, spec.config)  # refuses what is out of range
        assert spec.demos == f"marble-maze/{cell.setting}-v1"


def test_the_papers_budget():
    steps = {cell: STUDY.spec("paper", cell, 0, None).steps for cell in STUDY.cells()}
    assert {s for cell, s in steps.items() if cell.method != "icrl"} == {1_000_000}
    assert steps[Cell("simple", "icrl")] == find("icrl").budget > 8_000_000
    assert STUDY.budgets["paper"].seeds == 10


def test_studies_are_found_by_name():
    found = {name: studies.find(name) for name in studies.names()}
    assert [found[name].name for name in found] == list(found) == studies.names()
    assert set(found) >= {"paper", "half-cheetah-wall", "lunar-lander", "lap-grid-world"}
    with pytest.raises(ConfigError, match="no study 'papre'; there are paper, "):
        studies.find("papre")


@pytest.mark.parametrize("name", ["lunar-lander", "lap-grid-world", "half-cheetah-wall"])
def test_other_studies_are_whole(name):
    study = studies.find(name)
    for table in study.tables.values():
        assert table.setting in study.tasks
        assert set(table.trained) <= set(table.shown)
        assert all(study.title_of(method) for method in table.shown)
    for budget in study.budgets:
        for _, spec in plan(study, Path("out"), budget, study.cells(), 1):
            assert spec.env == next(iter(study.tasks.values())).env
            assert spec.steps > 0


def test_a_study_of_another_package(monkeypatch):
    class Point:
        name, value = "theirs", "their.module:STUDY"

        def load(self):
            return STUDY

    monkeypatch.setattr(studies, "entry_points", lambda group: [Point()])
    assert studies.find("theirs") is STUDY
    assert "theirs" in studies.names()
    monkeypatch.setattr(Point, "load", lambda self: "nothing")
    with pytest.raises(ConfigError, match=r"their\.module:STUDY is a str; want"):
        studies.find("theirs")
