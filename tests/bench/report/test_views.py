"""Training curves and episodes as the page draws them."""

import io
from typing import Any

import numpy as np
import pytest

from scopil.data.dataset import Episode
from scopil.eval.pictures import few_colours
from scopil.registry import find
from scopil_bench.report import views


def rows(level: float, until: int = 40, **more: float) -> list[dict[str, Any]]:
    """Every second row has an evaluation."""
    made = []
    for step in range(10, until + 1, 10):
        row = {"env_steps": step, "episode/return": -level * step, **more}
        made.append(row | ({"eval/reward": level * step, "eval/violations/circle": level} if step % 20 == 0 else {}))
    return made


def test_a_line_is_mean_and_deviation_over_the_runs_that_got_there():
    line = views.line_of({"0": rows(1.0), "1": rows(3.0), "2": rows(8.0, until=20)}, "eval/reward")
    assert line is not None
    assert line["steps"] == [20, 40]
    np.testing.assert_allclose(line["mean"], [20 * (1 + 3 + 8) / 3, 40 * (1 + 3) / 2], rtol=1e-3)  # four digits
    np.testing.assert_allclose(line["std"], [20 * np.std([1, 3, 8]), 40 * np.std([1, 3])], rtol=1e-3)
    assert line["seeds"] == {"0": [20.0, 40.0], "1": [60.0, 120.0], "2": [160.0, None]}
    assert views.line_of({"0": rows(1.0)}, "dual/lambda") is None
    logged = {str(s): [{"env_steps": i, "x": float(i * (s + 1))} for i in range(1, 201)] for s in (0, 1)}
    found = views.line_of(logged, "x")
    assert found is not None
    assert 30 < len(found["steps"]) <= views.POINTS
    assert (found["steps"][-1], found["mean"][-1], found["std"][-1]) == (200, 300.0, 100.0)
    assert [values[-1] for values in found["seeds"].values()] == [200.0, 400.0]


def test_panels_show_only_logged_metrics_and_keep_lengths_of_training_apart():
    logged = {"a": {"0": rows(1.0)}, "b": {"0": rows(2.0, until=80)}}
    wanted = [*views.evaluation_curves(logged), *views.learner_curves([find("sac")])]
    found = views.panels(wanted, logged, {"a": 40, "b": 80})
    assert [(panel["metric"], panel["trained"], list(panel["methods"])) for panel in found] == [
        (metric, steps, [method])
        for steps, method in ((40, "a"), (80, "b"))
        for metric in ("eval/reward", "eval/violations/circle", "episode/return")
    ]


def test_violations_while_learning_are_summed_where_they_were_counted():
    logged = [{"env_steps": 0}, *(row | {"episode/violations": 3.0} for row in rows(1.0))]
    assert [row[views.ACCIDENTS] for row in views.counted(logged)] == [0, 3, 6, 9, 12]
    assert views.counted(rows(1.0)) == rows(1.0)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["violations", "violations/a"], ["violations"]),
        (["violations", "violations/a", "violations/b"], ["violations", "violations/a", "violations/b"]),
        (["violations/a"], ["violations/a"]),
        (["reward", "steps", "length"], ["reward", "steps"]),
    ],
)
def test_violations_are_shown_in_all_and_by_rule_if_there_are_several(names, shown):
    logged = {"a": {"0": [{"env_steps": 1} | {f"eval/{name}": 1.0 for name in names}]}}
    assert [curve.metric for curve in views.evaluation_curves(logged)] == [f"eval/{name}" for name in shown]


def test_an_algorithm_declares_its_curves():
    rho, sac = find("scopil-rho"), find("sac")
    found = [curve.metric for curve in views.learner_curves([sac, rho, rho])]
    assert found == list(
        dict.fromkeys(["episode/return", views.ACCIDENTS, *(c.metric for a in (sac, rho) for c in a.curves)])
    )
    assert any(metric.startswith("occupancy/") for metric in found)


def test_violations_on_a_tray_name_the_rules_that_they_break():
    def shown(**info: list[float]) -> list[list[Any]]:
        at = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
        arrays = {"position": at} | {name: np.array(costs) for name, costs in info.items()}
        episode = Episode(observations=at, actions=np.zeros(2), info=arrays)
        return views.paths([episode], [0.0, 1.0, 0.0, 1.0], 100)["broken"]

    far, low = [200, 200, 0, 1, "far, low"], [400, 400, 0, 2, "far"]
    assert shown(cost=[1, 1, 1], cost_far=[0, 1, 1], cost_low=[0, 2, 0]) == [far, low]
    assert shown(cost=[0, 1, 0]) == [[200, 200, 0, 1, ""]]
    assert shown() == []


def test_a_tray_keeps_its_budget_of_states_and_three_episodes():
    at = np.linspace(0, 1, 10).reshape(5, 2)
    episode = Episode(observations=at, actions=np.zeros(4), info={"position": at, "cost": np.ones(5)})
    for budget, kept in ((22, 4), (1, 3), (1000, 8)):
        found = views.paths([episode] * 8, [0.0, 1.0, 0.0, 1.0], budget)
        assert found["episodes"] == found["paths"].count("M") == kept
        assert {mark[2] for mark in found["broken"]} == set(range(kept))


def test_pictures_with_few_colours_keep_the_rare_ones():
    matplotlib = pytest.importorskip("matplotlib.figure")
    from PIL import Image

    figure, before = matplotlib.Figure(figsize=(4, 3)), io.BytesIO()
    axes = figure.subplots()
    for i, colour in enumerate(("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")):
        axes.plot([0, 1], [i, i + 1], color=colour, linewidth=1)
        axes.fill_between([0, 1], [i, i], [i + 3, i + 3], color="#0072B2", alpha=0.1)
    figure.savefig(before, format="png", dpi=160)
    after = few_colours(before.getvalue())
    assert len(after) < len(before.getvalue()) / 1.5
    seen = [np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), int) for png in (before.getvalue(), after)]
    assert np.abs(seen[0] - seen[1]).max() <= 24


def test_integers_beyond_64_bits_are_drawn_as_floats():
    assert views._short(10**30) == 1e30
