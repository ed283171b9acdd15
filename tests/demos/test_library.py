"""The shipped sets: the paper's Table 1, the rules, both sides, and their cards."""

import hashlib
import re

import numpy as np
import pytest

from reference.margins_numpy import margins
from scopil.demos import store
from scopil.studies.marble_maze import SETTINGS, Circle
from scopil.studies.marble_maze.physics import HOLE_RADIUS, REACH
from scopil.studies.marble_maze.sides import passing_side
from scopil.studies.marble_maze.table1 import TABLE_1

SETS = {"simple": 1, "multiple": 2, "two-modes": 1}  # episodes that start in violation of a rule


@pytest.fixture(params=SETS)
def shipped(request):
    demos = store.load_demos(f"marble-maze/{request.param}-v1")
    paths = [e.observations[:, :2].astype(np.float64) * REACH for e in demos]
    return request.param, demos, paths


def test_figures_are_within_ten_per_cent_of_table_1(shipped):
    _, demos, paths = shipped
    paper = TABLE_1[demos.name]
    assert len(demos) == 40
    assert sum(len(p) - 1 for p in paths) == pytest.approx(paper.pairs, rel=0.1)
    assert np.mean([len(p) - 1 for p in paths]) == pytest.approx(paper.steps, rel=0.1)
    lengths = [np.sqrt((np.diff(p, axis=0) ** 2).sum(1)).sum() for p in paths]
    assert np.mean(lengths) == pytest.approx(paper.length, rel=0.1)
    assert np.mean([e.rewards.sum() for e in demos]) == pytest.approx(paper.reward, rel=0.1)


def test_every_episode_ends_in_the_hole_and_not_before(shipped):
    setting, demos, paths = shipped
    for episode, path in zip(demos, paths):
        away = np.hypot(*(path - SETTINGS[setting].hole).T)
        assert away[-1] <= HOLE_RADIUS + 1e-3
        assert np.all(away[:-1] > HOLE_RADIUS)
        assert episode.terminated
        assert not episode.truncated
        np.testing.assert_allclose(path[0], episode.start, atol=1e-3)


def test_the_only_violations_are_initial_states(shipped):
    setting, demos, paths = shipped
    broken = [np.any(margins(SETTINGS[setting].constraints, p) < 0, axis=1) for p in paths]
    assert not any(b[1:].any() for b in broken)
    violating = [i for i, b in enumerate(broken) if b[0]]
    assert len(violating) == SETS[setting]
    assert demos.about["violating_starts"] == violating


def test_clearance_is_kept_by_episodes_that_start_clear(shipped):
    setting, demos, paths = shipped
    clearance = demos.about["planner"]["clearance"]
    clear = [m for m in (margins(SETTINGS[setting].constraints, p) for p in paths) if m[0].min() >= clearance]
    assert len(clear) > 20
    assert min(m.min() for m in clear) >= clearance - 1e-3


def test_paired_starts_have_both_sides():
    demos = store.load_demos("marble-maze/two-modes-v1")
    params = SETTINGS["two-modes"]
    circle = next(c for c in params.constraints if isinstance(c, Circle))
    pairs = demos.about["paired_episodes"]
    assert len(pairs) == 19
    assert len({i for pair in pairs for i in pair}) == 38
    for left, right in pairs:
        episodes = demos.episodes[left], demos.episodes[right]
        np.testing.assert_array_equal(episodes[0].start, episodes[1].start)
        sides = [passing_side(g.observations[:, :2] * REACH, circle, params.hole) for g in episodes]
        assert sides == ["left", "right"]


def test_the_tray_is_moved_no_more_than_needed(shipped):
    _, demos, _ = shipped
    tilt_changes = [np.abs(np.diff(np.round(e.observations[:, 4:6]), axis=0)).sum() / len(e) for e in demos]
    assert np.mean(tilt_changes) < 0.6  # of 2 that random actions would make


def test_the_card_names_the_file_it_lies_beside(shipped):
    setting, demos, _ = shipped
    path = store.library()[demos.name]
    text = path.with_suffix(".md").read_text()
    assert re.findall(r"\b[0-9a-f]{64}\b", text) == [hashlib.sha256(path.read_bytes()).hexdigest()]
    assert f"| {demos.pairs} | {TABLE_1[demos.name].pairs} |" in text
    assert f"scopil demos generate {setting} --seed {demos.about['seed']}" in text
