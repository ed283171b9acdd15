"""`scopil report`: groups, means and bands are right, and every picture is there."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runs import untrained_run
from samples import marble_episodes
from scopil.cli import main
from scopil.data import storage
from scopil.eval.measures import average
from scopil.eval.pictures import few_colours
from scopil.train.run import Run
from scopil_bench.cache import read_measures
from scopil_bench.cli import report
from scopil_bench.report.run_groups import evaluation_rows, grouped
from scopil_bench.report.training_curves import COLOURS, behaviour_panels, inner_panels, series
from scopil_bench.results import Evaluator

pytest.importorskip("matplotlib")
PNG = b"\x89PNG"


def rows(level: float, until: int = 40, **more: float) -> list[dict]:
    """Every second row has an evaluation."""
    made = []
    for step in range(10, until + 1, 10):
        row = {"env_steps": step, "episode/return": -level * step, "alpha/value": level, **more}
        if step % 20 == 0:
            row |= {"eval/reward": level * step, "eval/violations/circle": level, "eval/frequency/circle": level / step}
        made.append(row)
    return made


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Path]:
    """Three seeds of SAC, the last one unfinished in its log, and one SCOPIL. What is played of them is kept in their
    folders, so that only the first test that needs it plays."""
    folder = tmp_path_factory.mktemp("runs")
    storage.write(marble_episodes(steps=6, episodes=3), folder / "demos.npz")
    made = [untrained_run(folder / f"sac-{s}", seed=s, rows=rows(1.0 + s, 40 if s < 2 else 20)) for s in (2, 0, 1)]
    inner: dict[str, Any] = {"dual/lambda": 2.0, "dual/constraint": 0.3}
    logged = rows(5.0, **inner)
    made.append(untrained_run(folder / "scopil", "scopil", demos=str(folder / "demos.npz"), rows=logged))
    return [run.folder for run in made]


def test_a_series_is_mean_and_deviation_over_the_runs_that_got_there():
    line = series([rows(1.0), rows(3.0), rows(8.0, until=20)], "eval/reward")
    assert line is not None
    np.testing.assert_array_equal(line.steps, [20, 40])
    np.testing.assert_allclose(line.mean, [20 * (1 + 3 + 8) / 3, 40 * (1 + 3) / 2])
    np.testing.assert_allclose(line.std, [20 * np.std([1, 3, 8]), 40 * np.std([1, 3])])
    assert line.runs == 3
    assert series([rows(1.0)], "dual/lambda") is None
    assert series([[{"env_steps": 1, "x": None}, {"env_steps": 2, "x": 5.0}]], "x").steps.tolist() == [2]  # type: ignore[union-attr]


def test_panels_show_only_what_was_logged():
    inner: dict[str, Any] = {"dual/lambda": 1.0}
    groups = {"a": [rows(1.0)], "b": [rows(1.0, **inner)]}
    names = [[metric for metric, _ in row] for row in behaviour_panels(groups)]
    assert names == [["eval/reward", "eval/steps"], ["eval/frequency/circle", "eval/violations/circle"]]
    assert [m for row in inner_panels(groups) for m, _ in row] == ["episode/return", "dual/lambda", "alpha/value"]
    assert inner_panels({"a": [[]]}) == []
    unnamed = {"a": [[{"env_steps": 1, "eval/violations": 2.0}]]}
    assert [metric for metric, _ in behaviour_panels(unnamed)[1]] == ["eval/frequency", "eval/violations"]


def test_pictures_with_few_colours_keep_the_rare_ones():
    from matplotlib.figure import Figure
    from PIL import Image

    figure, before = Figure(figsize=(4, 3)), io.BytesIO()
    axes = figure.subplots()
    for i, colour in enumerate(COLOURS):
        axes.plot([0, 1], [i, i + 1], color=colour, linewidth=1)
        axes.fill_between([0, 1], [i, i], [i + 3, i + 3], color=COLOURS[0], alpha=0.1)
    figure.savefig(before, format="png", dpi=160)
    after = few_colours(before.getvalue())
    assert len(after) < len(before.getvalue()) / 1.5
    seen = [np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), int) for png in (before.getvalue(), after)]
    assert np.abs(seen[0] - seen[1]).max() <= 24


def test_runs_are_grouped_by_everything_but_their_seed(tmp_path):
    a = [untrained_run(tmp_path / f"a{s}", seed=s) for s in (1, 0)]
    b = untrained_run(tmp_path / "b", seed=0, discount=0.9)
    assert {k: [r.spec.seed for r in v] for k, v in grouped(a).items()} == {"SAC": [0, 1]}
    assert {k: len(v) for k, v in grouped([*a, b]).items()} == {"SAC, discount=0.99": 2, "SAC, discount=0.9": 1}
    longer = untrained_run(tmp_path / "longer", seed=2, steps=5000)
    assert {k: len(v) for k, v in grouped([*a, longer]).items()} == {"SAC, steps=1000": 2, "SAC, steps=5000": 1}


@pytest.mark.slow
def test_a_report_of_several_runs(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["report", *map(str, runs)]) == 0
    out = tmp_path / "report"
    assert {p.name for p in out.iterdir()} == {
        "report.html", "report.md", "report.json", "curves.png", "inner.png", "episodes-sac.png", "episodes-scopil.png",
    }  # fmt: skip
    assert all(p.read_bytes().startswith(PNG) for p in out.glob("*.png"))
    text = (out / "report.md").read_text()
    assert all(f"]({p.name})" in text for p in out.glob("*.png"))
    for policy in ("greedy", "sampled"):
        for starts in ("demonstrated", "unseen"):
            assert f"| SAC, {policy}, {starts} starts |" in text
            assert f"| SCOPIL, {policy}, {starts} starts |" in text
    assert f"| {runs[0]} | sac | 2 | 20 | finished |" in text
    printed = capsys.readouterr().out
    assert "SCOPIL, sampled, unseen starts" in printed
    assert "Violations (circle)" in printed


def test_the_table_is_over_episodes_then_over_seeds(runs):
    opened = [Run.open(folder) for folder in runs[:2]]
    evaluator = Evaluator()
    for run in opened:
        evaluator.evaluation(run)
    table = evaluation_rows({"SAC": opened, "one": opened[:1]})
    each = [average(read_measures(run.folder)["greedy/unseen"])["length"] for run in opened]
    assert table["SAC, greedy, unseen starts"]["length"] == pytest.approx((np.mean(each), np.std(each)))
    assert table["one, greedy, unseen starts"]["length"] == each[0]


def test_one_run_is_reported_in_its_own_folder(runs, monkeypatch):
    assert main(["report", str(runs[-1])]) == 0
    assert {p.name for p in runs[-1].glob("*.png")} == {"curves.png", "inner.png", "episodes-scopil.png"}
    page = (runs[-1] / "report.html").read_text()
    assert "<h4" in page
    assert 'class="play"' in page  # its episodes on the tray
    assert (runs[-1] / "report.md").exists()
    figures = json.loads((runs[-1] / "report.json").read_text())
    assert figures["runs"][0]["means"]["greedy/unseen"] == average(read_measures(runs[-1])["greedy/unseen"])

    def refuse(*_, **__):
        raise AssertionError("played again")

    monkeypatch.setattr("scopil_bench.results.play_distinct", refuse)
    assert main(["report", str(runs[-1])]) == 0  # from what is kept in the folder


def test_an_icrl_run_shows_the_cost_it_has_learned(tmp_path, capsys):
    storage.write(marble_episodes(steps=6, episodes=3), tmp_path / "demos.npz")
    logged = [
        {"env_steps": step, "constraint/steps": 2.0, "constraint/all_steps": total, "constraint/phases": phases}
        for step, total, phases in ((10, 2.0, 1.0), (20, 5.0, 3.0))
    ]
    run = untrained_run(tmp_path / "icrl", "icrl", demos=str(tmp_path / "demos.npz"), rows=logged)
    assert main(["report", str(run.folder)]) == 0
    assert (run.folder / "constraint-icrl.png").read_bytes().startswith(PNG)
    text = (run.folder / "report.md").read_text()
    assert "](constraint-icrl.png)" in text
    assert f"{run.folder}: 5 backward steps made in 3 phases, of at most 60." in text


@pytest.mark.slow
def test_environments_have_sections_and_only_some_draw_episodes(runs, tmp_path):
    other = untrained_run(tmp_path / "cart", env="phys2d/CartPole-v1", rows=rows(1.0))
    assert main(["report", str(runs[1]), str(other.folder), "--out", str(tmp_path / "out")]) == 0
    assert {p.name for p in (tmp_path / "out").glob("*.png")} == {
        "curves-cartpole-v1.png", "inner-cartpole-v1.png", "curves-marblemaze-simple-v0.png",
        "inner-marblemaze-simple-v0.png", "episodes-sac-marblemaze-simple-v0.png",
    }  # fmt: skip
    text = (tmp_path / "out" / "report.md").read_text()
    assert "## phys2d/CartPole-v1" in text
    assert "## scopil/MarbleMaze-Simple-v0" in text


def test_committed_results_are_reported_without_their_runs(tmp_path):
    committed = Path(__file__).parents[3] / "results"
    (tmp_path / "results.json").write_bytes((committed / "results.json").read_bytes())
    (tmp_path / "figures").mkdir()
    figure = next((committed / "figures").glob("*.png"))
    (tmp_path / "figures" / figure.name).write_bytes(figure.read_bytes())
    assert main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.md").read_text()
    assert "| SCOPIL, ours, greedy, 5 seeds × 1,000,000 steps | -14.35±0.00 |" in page
    assert f"(figures/{figure.name})" in page
    assert "Yes: on Simple, SCOPIL's greedy policy" in page


def refused(argv: list[str], capsys) -> str:
    assert main(["report", *argv]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def test_bad_input_is_one_line(runs, tmp_path, monkeypatch, capsys):
    assert "no run folders" in refused([], capsys)
    assert "is not a run folder" in refused([str(tmp_path)], capsys)
    young = untrained_run(tmp_path / "young")
    young.policy_file.unlink()
    assert "no policy and no checkpoint yet" in refused([str(runs[0]), str(young.folder)], capsys)
    assert f"name some: {young.folder}" in refused([str(tmp_path)], capsys)
    (tmp_path / "study.json").write_text('{"study": "papre", "budget": "paper"}')
    assert "no study 'papre'" in refused([str(tmp_path)], capsys)
    assert "omit --out" in refused([str(tmp_path), "--out", "x"], capsys)
    (tmp_path / "study.json").write_text("[]")
    assert "is damaged" in refused([str(tmp_path)], capsys)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert 'pip install "scopil[plots]"' in refused([str(runs[0])], capsys)


def test_pictures_of_names_that_differ_in_a_greek_letter():
    assert [report._slug(name) for name in ("SCOPIL", "SCOPIL-ρ")] == ["scopil", "scopil-rho"]
