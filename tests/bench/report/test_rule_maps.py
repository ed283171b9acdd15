"""Pictures of learned constraints, and their part of a report."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from made_marginals import ACTION, FLAG, SPEED, X, Y, marginal_of
from scopil.explain import FoundRule
from scopil.shapes import Box, Disc, When
from scopil.train.run import Run
from scopil_bench.cli import report
from scopil_bench.report.page import Fold, Picture, Text
from scopil_bench.report.rule_maps import save_map

plt = pytest.importorskip("matplotlib.image")
INF = float("inf")


def rule_of(axes, shape) -> FoundRule:
    marginal = marginal_of(0, axes, lambda p: shape.contains(p))
    return FoundRule(shape.words(marginal.axes), shape, "evidence", marginal)


RULES = {
    "one axis": ((SPEED,), Box((0.5,), (INF,))),
    "two axes": ((X, Y), Disc((0, 1), (0.5, 0.5), 0.2)),
    "a category": ((X, Y, FLAG), When(2, (1,), Box((0.3, 0.4, -INF), (0.6, 0.8, INF)), (0.0, 1.0))),
    "an action": ((X, ACTION), When(1, (3,), Box((0.4, -INF), (0.7, INF)), ACTION.values)),  # pyright: ignore[reportArgumentType]
    "actions alone": ((ACTION,), When(0, (3,), Box((-INF,), (INF,)), ACTION.values)),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("kind", RULES)
def test_a_map_shows_the_found_region(kind, tmp_path):
    rule = rule_of(*RULES[kind])
    assert save_map(tmp_path / "map.png", rule)
    image = plt.imread(tmp_path / "map.png")[..., :3]
    blue = np.abs(image - np.array([0, 0x72, 0xB2]) / 255).max(-1) < 0.05
    assert blue.any() == (kind != "actions alone")


def test_the_true_region_is_outlined_too(tmp_path):
    save_map(tmp_path / "map.png", rule_of(*RULES["two axes"]), Disc((0, 1), (0.5, 0.5), 0.3).contains)
    image = plt.imread(tmp_path / "map.png")[..., :3]
    assert (np.abs(image - np.array([0xCF, 0x22, 0x2E]) / 255).max(-1) < 0.05).any()


def test_a_table_of_three_numbers_has_no_map(tmp_path):
    rule = rule_of(*RULES["two axes"])
    axes = (*rule.marginal.axes, rule.marginal.axes[0])
    assert not save_map(tmp_path / "map.png", replace(rule, marginal=replace(rule.marginal, axes=axes)))
    assert not (tmp_path / "map.png").exists()


def test_a_report_shows_each_rule_with_its_map(tmp_path, monkeypatch):
    found = {"one": [rule_of(*RULES["one axis"])], "none": []}
    monkeypatch.setattr(report, "found_rules", lambda folder, trust_env: found[folder])
    (tmp_path / "demos.npz").touch()

    def run(folder, learns=True):
        spec = SimpleNamespace(algorithm=SimpleNamespace(marginals=print if learns else None), seed=0)
        made = Mock(spec=Run, folder=folder, trust_env=False, demos_file=tmp_path / "demos.npz")
        made.spec = spec
        return made

    (fold,) = report._learned_rules({"SCOPIL-ρ": [run("one")], "Other": [run("none")]}, tmp_path, "")
    assert isinstance(fold, Fold)
    assert [type(block) for block in fold.blocks] == [Picture, Text, Text]
    assert "speed ≤ 0.5 everywhere" in fold.blocks[0].caption  # pyright: ignore[reportAttributeAccessIssue]
    assert fold.blocks[0].file.exists()  # pyright: ignore[reportAttributeAccessIssue]
    assert report._learned_rules({"SAC": [run("one", learns=False)]}, tmp_path, "") == []
