"""The paper's tables are complete, and every run of every study and budget can be created."""

from pathlib import Path

import pytest

from scopil.config import build
from scopil.errors import ConfigError
from scopil.registry import find, registered
from scopil_bench import studies
from scopil_bench.planning import plan
from scopil_bench.studies.paper.published import PRINTED
from scopil_bench.studies.paper.study import STUDY
from scopil_bench.summaries import Cell


@pytest.mark.parametrize("setting", PRINTED)
def test_rules_add_up_to_the_printed_sums(setting):
    """Finds mistyped digits. The paper rounds some numbers to two digits."""
    for method, row in PRINTED[setting].items():
        means = {measure: float(text.split("±")[0]) for measure, text in row.items()}
        rules = [mean for measure, mean in means.items() if measure.startswith("violations/")]
        assert sum(rules) == pytest.approx(means["violations"], abs=0.011), method


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
    with pytest.raises(ConfigError, match="simpel"):
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
    assert set(found) >= {"paper", "unseen", "external"}
    with pytest.raises(ConfigError, match="papre"):
        studies.find("papre")


@pytest.mark.parametrize("name", ["unseen", "external"])
def test_other_studies_are_whole(name):
    study = studies.find(name)
    for table in study.tables.values():
        assert table.setting in study.tasks
        assert set(table.trained) <= set(table.shown)
        assert all(study.title_of(method) for method in table.shown)
    for budget in study.budgets:
        for _, spec in plan(study, Path("out"), budget, study.cells(), 1):
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
    with pytest.raises(ConfigError, match="is a str"):
        studies.find("theirs")
