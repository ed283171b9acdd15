"""Views: kept by setting, refused when damaged, and joined with those of runs that are gone."""

import copy
import json
from typing import Any

import numpy as np
import pytest

from scopil.data.dataset import Episode
from scopil.errors import ConfigError
from scopil_bench.report import kept_views, views
from scopil_bench.report.views import Views
from scopil_bench.summaries import Cell

RHO, SAC = Cell("simple", "scopil-rho"), Cell("simple", "sac")
CORNERS = [0.0, 1.0, 0.0, 1.0]


def line(**seeds: list[float | None]) -> views.View:
    """Mean and deviation by another way than the code's."""
    values = np.array([[np.nan if v is None else v for v in each] for each in seeds.values()])
    mean, std = np.nanmean(values, 0).tolist(), np.nanstd(values, 0).tolist()
    by_seed = {name.removeprefix("s"): each for name, each in seeds.items()}
    return {"steps": [10, 20], "mean": mean, "std": std, "seeds": by_seed}


def panel(trained: int = 20, metric: str = "eval/reward", **methods: Any) -> views.View:
    return {"metric": metric, "title": "Reward", "trained": trained, "methods": methods}


def episodes(many: int = 2, states: int = 3) -> views.View:
    """The last state of every episode breaks a rule."""
    path = "M1 1" + "l" * (states > 1) + " ".join(["2 -2"] * (states - 1))
    broken = [[1, 1, i, states - 1, "circle"] for i in range(many)]
    return {"paths": path * many, "broken": broken, "episodes": many, "violations": 0.5}


def tray(runs: dict[str, list[int]], corners=CORNERS, **more: int) -> views.View:
    shown = {m: {str(s): {"unseen": episodes(**more)} for s in seeds} for m, seeds in runs.items()}
    demonstrated = {k: v for k, v in episodes().items() if k != "violations"}
    return {"background": "data:image/png;base64,", "corners": corners, "runs": shown, "demonstrations": demonstrated}


WHOLE = {"curves": [panel(sac=line(s0=[1.0, 2.0]))], "tray": tray({"sac": [0]})}


def test_a_file_for_each_setting_whatever_its_name(tmp_path):
    names = ("simple", "two-modes", "../up", "a/b c", ".", "ρ: 1")
    kept = Views(dict.fromkeys(names, WHOLE["curves"]), dict.fromkeys(names[:2], WHOLE["tray"]))
    kept_views.save(tmp_path, kept)
    assert len(list((tmp_path / "views").iterdir())) == len(names)
    assert [file.name for file in tmp_path.iterdir()] == ["views"]
    assert kept_views.load(tmp_path) == kept
    kept_views.save(tmp_path, Views(trays={"simple": WHOLE["tray"]}))  # the others have nothing to show any more
    assert [file.name for file in (tmp_path / "views").iterdir()] == ["simple.json"]
    assert kept_views.load(tmp_path / "none") == Views()


def spoilt(*path: str | int, value: object) -> str:
    body = copy.deepcopy(WHOLE)
    inner: object = body
    for step in path[:-1]:
        inner = inner[step]  # type: ignore[index]
    inner[path[-1]] = value  # type: ignore[index]
    return json.dumps(body)


ONE = ("tray", "runs", "sac", "0", "unseen")
LINE = ("curves", 0, "methods", "sac")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"curves": 1}',
        '{"curves": [{}]}',
        "[" * 100_000,
        spoilt("curves", 0, "methods", value={}),
        spoilt("curves", 0, "trained", value="20"),
        spoilt(*LINE, "steps", value=[]),
        spoilt(*LINE, "mean", value=[1.0]),
        spoilt(*LINE, "mean", value=[1.0, float("nan")]),
        spoilt(*LINE, "std", value=[None, None]),
        spoilt(*LINE, "seeds", value={"zero": [1.0, 2.0]}),
        spoilt("tray", "background", value="https://elsewhere/"),
        spoilt("tray", "corners", value=[0.0, 1.0, 0.0]),
        spoilt("tray", "corners", value=[0.0, 1.0, 2.0, 2.0]),
        spoilt("tray", "demonstrations", "paths", value="M1 1M2"),
        spoilt("tray", "runs", "sac", value={}),
        spoilt(*ONE, "paths", value="M1 1lx y"),
        spoilt(*ONE, "episodes", value=3),
        spoilt(*ONE, "broken", value=[[1, 1]]),
        spoilt(*ONE, "broken", value=[[1, 1, 2, 0, "circle"]]),
        spoilt(*ONE, "violations", value="many"),
    ],
)
def test_damaged_views_are_refused_in_one_line(text, tmp_path):
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "simple.json").write_text(json.dumps(WHOLE))
    assert kept_views.load(tmp_path).trays.keys() == {"simple"}
    (tmp_path / "views" / "simple.json").write_text(text)
    with pytest.raises(ConfigError, match=r"simple\.json is damaged; want .* Delete it"):
        kept_views.load(tmp_path)


def test_curves_keep_their_last_point_and_few_others():
    rows = {str(s): [{"env_steps": i, "x": float(i * (s + 1))} for i in range(1, 201)] for s in (0, 1)}
    found = views.line_of(rows, "x")
    assert found is not None
    assert len(found["steps"]) <= views.POINTS
    assert (found["steps"][-1], found["mean"][-1], found["std"][-1]) == (200, 300.0, 100.0)
    assert [values[-1] for values in found["seeds"].values()] == [200.0, 400.0]


def test_states_on_a_tray_name_the_rules_they_break():
    def shown(**info: list[float]) -> list[list[Any]]:
        at = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
        arrays = {"position": at} | {name: np.array(costs) for name, costs in info.items()}
        episode = Episode(observations=at, actions=np.zeros(2), info=arrays)
        return [[*row[2:]] for row in views._episodes([episode], CORNERS, 100)["broken"]]

    assert shown(cost=[1, 1, 1], cost_far=[0, 1, 1], cost_low=[0, 2, 0]) == [[0, 1, "far, low"], [0, 2, "far"]]
    assert shown(cost=[0, 1, 0]) == [[0, 1, ""]]
    assert shown() == []


def test_only_runs_that_have_results_are_shown():
    kept = Views(
        {"simple": [panel(sac=line(s0=[1.0, 2.0], s1=[3.0, 5.0]), bc=line(s0=[1.0, 1.0]))]},
        {"simple": tray({"sac": [0, 1], "bc": [0]}), "multiple": tray({"sac": [1]})},
    )
    found = kept_views.of_runs(kept, {(SAC, 1), (Cell("multiple", "bc"), 0)})
    assert found.curves == {"simple": [panel(sac=line(s1=[3.0, 5.0]))]}
    assert found.trays == {"simple": tray({"sac": [1]})}
    assert kept_views.of_runs(kept, set()) == Views()


def test_curves_are_joined_by_seed():
    new = Views({"simple": [panel(sac=line(s10=[4.0, 8.0]))]})
    before = panel() | {"methods": {"sac": line(s2=[1.0, None], s0=[7.0, 3.0]), "scopil-rho": line(s0=[1.0, 2.0])}}
    earlier = Views({"simple": [before]})
    (found,) = kept_views.joined(new, earlier, [RHO, SAC]).curves["simple"]
    assert list(found["methods"]) == ["scopil-rho", "sac"]  # in the order of the results
    wanted = line(s0=[7.0, 3.0], s2=[1.0, None], s10=[4.0, 8.0])
    assert list(found["methods"]["sac"]["seeds"]) == ["0", "2", "10"]
    assert found["methods"]["sac"]["seeds"] == wanted["seeds"]
    for key in ("mean", "std"):
        assert found["methods"]["sac"][key] == pytest.approx(wanted[key], rel=1e-3)  # four digits are kept
    assert found["methods"]["scopil-rho"] == line(s0=[1.0, 2.0])


def test_curves_are_joined_at_the_steps_of_both_and_lengths_stay_apart():
    other = line(s0=[1.0, 2.0]) | {"steps": [10, 15]}
    new, longer = panel(sac=line(s1=[4.0, 8.0])), panel(5, sac=line(s0=[1.0, 2.0]))
    found = kept_views.joined(Views({"simple": [new]}), Views({"simple": [panel(sac=other), longer]}), [SAC])
    both = {"steps": [10], "mean": [2.5], "std": [1.5], "seeds": {"0": [1.0], "1": [4.0]}}
    assert found.curves["simple"] == [longer, panel(sac=both)]


def test_where_no_step_is_shared_the_line_with_more_seeds_stays():
    elsewhere = line(s0=[1.0, 2.0], s2=[3.0, 4.0]) | {"steps": [5, 15]}
    new = panel(sac=line(s1=[4.0, 8.0]))
    found = kept_views.joined(Views({"simple": [new]}), Views({"simple": [panel(sac=elsewhere)]}), [SAC])
    assert found.curves["simple"] == [panel(sac=elsewhere)]


def test_trays_are_joined_by_method_and_seed():
    new, earlier = tray({"sac": [3], "bc": [0]}, states=5), tray({"sac": [0, 10], "scopil-rho": [1]})
    earlier["background"] = "data:image/png;base64,old"
    found = kept_views.joined(Views(trays={"simple": new}), Views(trays={"simple": earlier}), [RHO, SAC])
    assert {m: list(seeds) for m, seeds in found.trays["simple"]["runs"].items()} == {
        "scopil-rho": ["1"],
        "sac": ["0", "3", "10"],
        "bc": ["0"],
    }
    assert found.trays["simple"]["runs"]["sac"]["3"] == {"unseen": episodes(states=5)}
    assert found.trays["simple"]["background"] == new["background"]
    gone = kept_views.joined(Views(), Views(trays={"simple": earlier}), [RHO, SAC])  # no run folder is left
    assert gone.trays["simple"] == earlier
    moved = Views(trays={"simple": tray({"sac": [0]}, corners=[0.0, 2.0, 0.0, 1.0])})
    assert kept_views.joined(Views(trays={"simple": new}), moved, [SAC]).trays["simple"] == new


def test_all_trays_together_keep_the_cap_on_states(monkeypatch):
    monkeypatch.setattr(views, "STATES", 1000)
    new, earlier = tray({"sac": [0]}, many=40, states=5), tray({"sac": [1, 2]}, many=40, states=7)
    found = kept_views.joined(Views(trays={"simple": new}), Views(trays={"simple": earlier}), [SAC])
    shown = [by_starts["unseen"] for by_starts in found.trays["simple"]["runs"]["sac"].values()]
    budget = 1000 // (2 * 3)
    assert [view["episodes"] for view in shown] == [budget // 5, budget // 7, budget // 7]
    for view in shown:
        assert kept_views._is_whole(view)
        assert view["paths"].count("M") == len(view["broken"]) == view["episodes"]
    again = kept_views.joined(found, Views(), [SAC])
    assert again == found  # nothing more is cut
    monkeypatch.setattr(views, "STATES", 1)
    fewest = kept_views.joined(found, Views(), [SAC]).trays["simple"]["runs"]["sac"]["0"]["unseen"]
    assert fewest["episodes"] == 3


def test_curves_become_rows_of_metrics_again():
    reward = line(s0=[1.0, None], s1=[2.0, 3.0])
    panels = [panel(sac=reward), panel(metric="eval/steps", sac=line(s0=[5.0, 6.0]))]
    first, second = views.rows_of(panels, "sac")
    assert first == [
        {"env_steps": 10, "eval/reward": 1.0, "eval/steps": 5.0},
        {"env_steps": 20, "eval/reward": None, "eval/steps": 6.0},
    ]
    assert second == [{"env_steps": 10, "eval/reward": 2.0}, {"env_steps": 20, "eval/reward": 3.0}]
    assert views.rows_of(panels, "bc") == []
