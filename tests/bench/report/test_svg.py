"""Colours and axes of the report's drawings."""

import re

from scopil_bench.report import svg


def test_a_method_has_the_same_colour_on_every_page():
    alone, together = svg.colours_of(["SAC"]), svg.colours_of(["BC", "SAC", "My own", "SCOPIL-ρ"])
    assert together[1] == alone[0]
    assert together[3] == svg.colours_of(["SCOPIL-ρ, steps=5"])[0]
    assert len(set(together)) == 4
    many = svg.colours_of([*svg.FIXED, *(f"SAC, steps={n}" for n in range(5)), "other"])
    assert len(set(many)) == len(many)
    assert [many[i] for i in range(len(svg.FIXED))] == list(svg.FIXED.values())


def test_a_chart_names_its_unit_and_begins_at_step_0():
    line = {"steps": [0, 1000, 2000], "mean": [40.0, 5.0, 1.0], "std": [0.0] * 3, "seeds": {"0": [40.0, 5.0, 1.0]}}
    panel = {"metric": "eval/violations", "title": "Violations", "trained": 2000, "methods": {"sac": line}}
    drawn = svg.chart(panel, {"sac": 0}, {"sac": "SAC"})
    assert re.findall(r'<text class="x[^>]*>([^<]*)', drawn) == ["0", "500", "1k", "1.5k", "2k steps"]
    assert re.findall(r'<text class="y[^>]*>([^<]*)', drawn) == ["0", "0.1", "1", "10", "30"]
    left = re.search(r'data-left="(\d+)"', drawn)
    assert left is not None
    assert f'class="mean" d="M{left[1]}.0 ' in drawn
