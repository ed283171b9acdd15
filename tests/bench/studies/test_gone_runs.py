"""Pictures of a study for Markdown when run folders are gone."""

from pathlib import Path

import pytest

from made_results import cell_of, report_of
from scopil.train.run import Run
from scopil_bench.report import study_figures
from scopil_bench.report.study_page import hero_methods
from scopil_bench.report.views import Views
from scopil_bench.studies import running
from scopil_bench.studies.paper.study import STUDY
from scopil_bench.studies.running import layout_of
from scopil_bench.summaries import Cell

SCOPIL, SAC = Cell("simple", "scopil"), Cell("simple", "sac")


def with_trays(seed: int = 1):
    """A report with trays of the median seeds of two methods."""
    results = cell_of("scopil", [0.1, 0.2, 0.3]) | cell_of("sac", [1.0, 2.0, 3.0])
    episodes = {"paths": "M1 1", "broken": [], "episodes": 1, "violations": 0.5}
    runs = {m: {str(seed): {"unseen": episodes}} for m in ("scopil", "sac")}
    tray = {"background": "data:image/png;base64,", "corners": [0, 1, 0, 1], "runs": runs}
    return report_of(results, views=Views(trays={"simple": tray}))


def run(seed: int) -> Run:
    return Run(Path("none"), STUDY.spec("short", SAC, seed, None))


@pytest.fixture
def drawn(monkeypatch) -> list[list[str]]:
    """Titles of the panels of every first picture that was drawn."""
    titles: list[list[str]] = []

    def unseen(gallery, caption, draw, runs, first):
        titles.append(list(runs))
        return study_figures.Picture(gallery.folder / study_figures.FIRST, caption)

    monkeypatch.setattr(study_figures, "unseen", unseen)
    return titles


def first_picture(report, out: Path, finished: dict) -> study_figures.Picture | None:
    with running._Scenes(STUDY, finished) as scenes:
        return running._first_picture(scenes, report, out, finished)


def test_the_first_picture_shows_the_runs_that_are_there(drawn, tmp_path):
    report = with_trays()
    assert hero_methods(report, "simple") == ["scopil", "sac"]
    both = {SCOPIL: [run(0), run(1)], SAC: [run(1)]}
    assert first_picture(report, tmp_path, both) is not None
    assert drawn.pop() == ["SCOPIL, seed 1", "SAC, seed 1"]
    assert first_picture(report, tmp_path, {SCOPIL: [run(1)], SAC: [run(0)]}) is not None
    assert drawn.pop() == ["SCOPIL, seed 1"]  # the median seed of SAC is gone
    assert first_picture(report, tmp_path, {}) is None
    assert first_picture(report._replace(views=Views()), tmp_path, both) is None
    assert drawn == []


def test_the_first_picture_of_before_stays_where_a_run_is_gone(drawn, tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / study_figures.FIRST).write_bytes(b"before")
    for finished in ({SCOPIL: [run(1)]}, {}):
        kept = first_picture(with_trays(), tmp_path, finished)
        assert kept is not None
        assert kept.file.read_bytes() == b"before"
        assert kept.caption == running.FROM_UNSEEN
    assert drawn == []


def test_pictures_of_runs_that_are_gone_are_kept(tmp_path):
    gallery = study_figures.Gallery(tmp_path)
    layout = layout_of(STUDY)
    assert study_figures.episodes(gallery, layout, SAC, [0], [], None) is None
    assert study_figures.demonstrations(gallery, "simple", None) is None
    for name in ("episodes-simple-sac.png", "demonstrations-simple.png"):
        (tmp_path / name).write_bytes(b"before")
    picture = study_figures.episodes(gallery, layout, SAC, [0], [], None)
    assert picture is not None
    assert picture.caption == "SAC on simple: greedy episodes, a row per kind of starts."
    shown = study_figures.demonstrations(gallery, "simple", None)
    assert shown is not None
    assert shown.narrow


def test_a_picture_of_before_stays_until_all_its_runs_are_there(tmp_path, monkeypatch):
    gallery, layout, draws = study_figures.Gallery(tmp_path / "figures"), layout_of(STUDY), []
    monkeypatch.setattr(study_figures, "episode_rows", lambda runs: {})
    monkeypatch.setattr(study_figures, "save_rows", lambda path, *_: (draws.append(path), path.touch()))
    runs = [Run(tmp_path / f"sac-{seed}", STUDY.spec("short", SAC, seed, None)) for seed in range(2)]
    for one in runs:
        one.folder.mkdir()
        (one.folder / study_figures.EPISODES).touch()
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "episodes-simple-sac.png").write_bytes(b"seeds 0 and 1")
    some = study_figures.episodes(gallery, layout, SAC, [0, 1], runs[1:], lambda *_: None)
    assert some is not None
    assert draws == []
    both = study_figures.episodes(gallery, layout, SAC, [0, 1], runs, lambda *_: None)
    assert both is not None
    assert "seed 0, seed 1" in both.caption
    assert len(draws) == 1


def test_tables_that_share_a_setting_have_pictures_of_their_own(tmp_path, monkeypatch):
    made: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(
        study_figures, "save_curves", lambda path, groups, rows, title: made.append((path.name, list(groups)))
    )
    line = {"steps": [10], "mean": [1.0], "std": [0.0], "seeds": {"0": [1.0]}}
    panels = [
        {"metric": "eval/reward", "title": "Reward", "trained": steps, "methods": dict.fromkeys(methods, line)}
        for steps, methods in ((10, ("scopil", "sac", "s-eic")), (90, ("icrl",)))
    ]
    gallery = study_figures.Gallery(tmp_path)
    for key in ("simple", "ablation"):
        list(study_figures.curves(gallery, layout_of(STUDY), key, panels))
    assert made == [
        ("curves-simple.png", ["SCOPIL", "SAC"]),
        ("curves-simple-2.png", ["ICRL"]),
        ("curves-simple-ablation.png", ["SCOPIL", "S-EiC"]),
    ]
