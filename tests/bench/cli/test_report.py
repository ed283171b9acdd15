"""`scopil report` on run folders and on folders of studies."""

import base64
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from runs import untrained_run
from samples import marble_episodes
from scopil.cli import main
from scopil.data import storage
from scopil.eval.measures import average
from scopil.train.run import Run
from scopil_bench import results
from scopil_bench.cache import read_evaluation
from scopil_bench.cli import report
from scopil_bench.cli.report import evaluation_rows, grouped
from scopil_bench.summaries import Cell

pytest.importorskip("matplotlib")


def rows(level: float, until: int = 40, **more: float) -> list[dict]:
    """Every second row has an evaluation."""
    made = []
    for step in range(10, until + 1, 10):
        row = {"env_steps": step, "episode/return": -level * step, "alpha/value": level, **more}
        made.append(row | ({"eval/reward": level * step, "eval/violations/circle": level} if step % 20 == 0 else {}))
    return made


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Path]:
    """Three seeds of SAC, the last one unfinished in its log, and one SCOPIL. What is played of them is kept in their
    folders, so that only the first test that needs it plays."""
    folder = tmp_path_factory.mktemp("runs")
    storage.write(marble_episodes(steps=6, episodes=3), folder / "demos.npz")
    made = [untrained_run(folder / f"sac-{s}", seed=s, rows=rows(1.0 + s, 40 if s < 2 else 20)) for s in (2, 0, 1)]
    logged = rows(5.0, 40, **{"dual/lambda": 2.0, "dual/constraint": 0.3})
    made.append(untrained_run(folder / "scopil", "scopil", demos=str(folder / "demos.npz"), rows=logged))
    return [run.folder for run in made]


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
    other = untrained_run(tmp_path / "cart", env="phys2d/CartPole-v1", rows=rows(1.0))  # which draws no episodes
    assert main(["report", *map(str, runs), str(other.folder)]) == 0
    out = tmp_path / "report"
    assert {p.name for p in out.iterdir()} == {"report.html", "report.md", "results.json", "results.csv"}
    text = (out / "report.md").read_text()
    for policy in ("greedy", "sampled"):
        for starts in ("demonstrated", "unseen"):
            assert f"| SAC, {policy}, {starts} starts |" in text
            assert f"| SCOPIL, {policy}, {starts} starts |" in text
    for line in (f"| {runs[0]} | sac | 2 | 20 | finished |", "## phys2d/CartPole-v1", "## scopil/MarbleMaze-Simple-v0"):
        assert line in text
    printed = capsys.readouterr().out
    assert "SCOPIL, sampled, unseen starts" in printed
    assert "Violations (circle)" in printed


def test_the_table_is_over_episodes_then_over_seeds(runs):
    cell = Cell("simple", "sac")
    with results.Evaluator() as evaluator:
        found = [evaluator.result(cell, Run.open(folder)) for folder in runs[:2]]
    table = evaluation_rows({"SAC": found, "one": found[:1]})
    kept = [measures_of(folder, "greedy/unseen") for folder in runs[:2]]
    each = [average(measures)["length"] for measures in kept]
    assert table["SAC, greedy, unseen starts"]["length"] == pytest.approx((np.mean(each), np.std(each)))
    assert table["one, greedy, unseen starts"]["length"] == each[0]


def measures_of(folder: Path, key: str) -> list[dict[str, float]]:
    kept = read_evaluation(folder)
    assert kept is not None
    return kept["measures"][key]


@pytest.fixture
def reads(monkeypatch) -> Counter[str]:
    """How often each file below a run folder was read."""
    counted: Counter[str] = Counter()
    read = Path.read_bytes

    def counting(path: Path) -> bytes:
        counted[path.name] += 1
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", counting)
    return counted


def test_one_run_is_reported_in_its_own_folder_from_files_that_are_read_once(runs, monkeypatch, reads):
    folder = runs[-1]
    for name in ("report.html", "results.json"):
        assert not (folder / name).exists()
    assert main(["report", str(folder)]) == 0
    assert {reads["demos.npz"], reads["metrics.jsonl"]} == {1}
    page = (folder / "report.html").read_text()
    assert 'class="play"' in page  # its episodes on the tray
    assert "Multiplier λ" in page  # a curve that SCOPIL declares
    (run,) = json.loads((folder / "results.json").read_text())["runs"]
    assert run["means"]["greedy/unseen"] == average(measures_of(folder, "greedy/unseen"))

    monkeypatch.setattr(results, "play_distinct", lambda *_: pytest.fail("played again"))
    reads.clear()
    assert main(["report", str(folder)]) == 0  # from the evaluation in the folder
    assert {reads["demos.npz"], reads["metrics.jsonl"], reads["evaluation.json"], reads["episodes.npz"]} == {1}


def test_an_icrl_run_shows_the_cost_it_has_learned(tmp_path):
    storage.write(marble_episodes(steps=6, episodes=3), tmp_path / "demos.npz")
    logged = [{"env_steps": step, "constraint/steps": 2.0} for step in (10, 20)]
    run = untrained_run(tmp_path / "icrl", "icrl", demos=str(tmp_path / "demos.npz"), rows=logged)
    assert main(["report", str(run.folder)]) == 0
    picture = (run.folder / "constraint-icrl.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert base64.b64encode(picture).decode() in (run.folder / "report.html").read_text()
    assert "](constraint-icrl.png)" in (run.folder / "report.md").read_text()


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
    assert str(young.folder) in refused([str(tmp_path)], capsys)
    (tmp_path / "study.json").write_text('{"study": "papre", "budget": "paper"}')
    assert "has no run folders" in refused([str(tmp_path)], capsys)
    (tmp_path / "runs/simple/sac-0").mkdir(parents=True)
    (tmp_path / "runs/simple/sac-0/run.json").touch()
    assert "no study 'papre'" in refused([str(tmp_path)], capsys)
    assert "omit --out" in refused([str(tmp_path), "--out", "x"], capsys)
    (tmp_path / "study.json").write_text("[]")
    assert "is damaged" in refused([str(tmp_path)], capsys)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert 'pip install "scopil[plots]"' in refused([str(runs[0])], capsys)


def test_pictures_of_names_that_differ_in_a_greek_letter():
    assert [report._slug(name) for name in ("SCOPIL", "SCOPIL-ρ")] == ["scopil", "scopil-rho"]
