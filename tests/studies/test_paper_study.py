"""The paper's tables are whole, and every run of every budget can be begun."""

from pathlib import Path

import pytest
from scopil.experiments.paper import BUDGETS, GROUPS, PRINTED, Cell, cells, number, plan

from scopil.algos import ALGORITHMS
from scopil.errors import ConfigError
from scopil.train.trainer import check


def test_numbers_are_read_as_printed():
    assert number("simple", "scopil", "violations") == (0.087, 0.126)
    assert number("simple", "ppo-dgd", "reward") == (-10.94, 0.11)
    assert number("multiple", "scopil", "violations/vertical") == (0.55, 1.37)
    assert number("two-modes", "scopil", "frequency") == (0.0035, 0.0)


@pytest.mark.parametrize("setting", PRINTED)
def test_kinds_add_up_to_the_printed_sums(setting):
    """A digit mistyped in one of them would show. The paper rounds to two digits here and there."""
    for algorithm, row in PRINTED[setting].items():
        kinds = [number(setting, algorithm, m)[0] for m in row if m.startswith("violations/")]
        total = number(setting, algorithm, "violations")[0]
        assert sum(kinds) == pytest.approx(total, abs=0.011), algorithm


def test_every_cell_has_a_printed_row_and_an_algorithm():
    assert cells() == [
        *(Cell("simple", a) for a in ("scopil", "icrl", "sac")),
        *(Cell(s, "scopil") for s in ("multiple", "two-modes")),
        *(Cell("simple", a) for a in ("s-dgd", "s-eic", "s-dgd-eic", "ppo-dgd")),
        *(Cell("simple", a) for a in ("bc", "oracle-ppo-lagrangian", "oracle-sac-lagrangian")),
    ]
    for name, group in GROUPS.items():
        assert set(group.trained) <= set(group.shown) <= set(ALGORITHMS)
        assert name == "yardsticks" or set(group.shown) <= set(PRINTED[group.setting])


def test_some_groups_or_an_unknown_one():
    assert cells(["two-modes"]) == [Cell("two-modes", "scopil")]
    with pytest.raises(ConfigError, match=r"no experiment simpel; there are simple, multiple"):
        cells(["simpel"])


def test_first_seeds_come_first():
    order = [
        (folder.name, spec.seed)
        for _, folder, spec in plan(Path("out"), BUDGETS["paper"], cells(["simple"]), 2)
    ]
    assert [name for name, _ in order] == ["scopil-0", "icrl-0", "sac-0", "scopil-1", "icrl-1", "sac-1"]
    assert [seed for _, seed in order] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("budget", BUDGETS)
def test_every_config_is_sound(budget):
    for cell in cells():
        spec = BUDGETS[budget].spec(cell, 0)
        check(spec.build_config())
        assert spec.demos == f"marble-maze/{cell.setting}-v1"


def test_the_papers_budget():
    steps = {cell: BUDGETS["paper"].spec(cell, 0).steps for cell in cells()}
    assert {s for cell, s in steps.items() if cell.algorithm != "icrl"} == {1_000_000}
    assert steps[Cell("simple", "icrl")] == ALGORITHMS["icrl"].budget > 8_000_000
    assert BUDGETS["paper"].seeds == 10
