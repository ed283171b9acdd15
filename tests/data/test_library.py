"""The shipped sets: the paper's Table 1, the rules, both sides of the obstacle, and their cards."""

import hashlib
import re

import numpy as np
import pytest

from reference import marble_numpy
from reference.margins_numpy import margins
from reference.table1 import TABLE_1
from scopil.data import storage
from scopil.envs.marble_maze import SETTINGS, Circle
from scopil.envs.marble_maze.physics import HOLE_RADIUS, REACH
from scopil_bench.marble_maze.planner import passing_side

SETS = {"simple": 1, "multiple": 2, "two-modes": 1}  # episodes that start in violation of a rule
SPREAD = (0.7, 1.3)  # standard deviations of a crowd's episodes, as shares of the paper's


def load(setting, name):
    demos = storage.load_demos(f"marble-maze/{name}")
    return setting, demos, [e.observations[:, :2].astype(np.float64) * REACH for e in demos]


@pytest.fixture(params=[f"{s}{player}-v1" for s in SETS for player in ("", "-simulated")])
def shipped(request):
    return load(request.param.removesuffix("-v1").removesuffix("-simulated"), request.param)


@pytest.fixture(params=SETS)
def planned(request):
    return load(request.param, f"{request.param}-v1")


@pytest.fixture(params=SETS)
def simulated(request):
    return load(request.param, f"{request.param}-simulated-v1")


def lengths(paths):
    return np.array([np.sqrt((np.diff(p, axis=0) ** 2).sum(1)).sum() for p in paths])


def test_figures_are_within_ten_per_cent_of_table_1(shipped):
    setting, demos, paths = shipped
    paper, steps = TABLE_1[setting], [len(p) - 1 for p in paths]
    rewards = np.mean([e.rewards.sum() for e in demos])
    found = [sum(steps), np.mean(steps), lengths(paths).mean(), rewards]
    assert len(demos) == 40
    assert found == pytest.approx([paper.pairs, paper.steps, paper.length, paper.reward], rel=0.1)


def test_every_episode_ends_in_the_hole_and_only_initial_states_violate(shipped):
    setting, demos, paths = shipped
    violating = []
    for i, (episode, path) in enumerate(zip(demos, paths)):
        away = np.hypot(*(path - SETTINGS[setting].hole).T)
        assert away[-1] <= HOLE_RADIUS + 1e-3
        assert np.all(away[:-1] > HOLE_RADIUS)
        assert (episode.terminated, episode.truncated) == (True, False)
        np.testing.assert_allclose(path[0], episode.start, atol=1e-3)
        broken = np.any(margins(SETTINGS[setting].constraints, path) < 0, axis=1)
        assert not broken[1:].any()
        violating += [i] * int(broken[0])
    assert demos.about["violating_starts"] == violating
    assert len(violating) == SETS[setting]


def test_planned_episodes_keep_their_clearance_and_move_the_tray_little(planned):
    setting, demos, paths = planned
    clearance = demos.about["planner"]["clearance"]
    clear = [m for m in (margins(SETTINGS[setting].constraints, p) for p in paths) if m[0].min() >= clearance]
    assert len(clear) > 20
    assert min(m.min() for m in clear) >= clearance - 1e-3
    tilt_changes = [np.abs(np.diff(np.round(e.observations[:, 4:6]), axis=0)).sum() / len(e) for e in demos]
    assert np.mean(tilt_changes) < 0.6  # of 2 that random actions would make


@pytest.mark.parametrize("name", ["two-modes-v1", "two-modes-simulated-v1"])
def test_paired_starts_have_both_sides(name):
    demos = storage.load_demos(f"marble-maze/{name}")
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


def test_simulated_players_spread_like_the_papers_and_differ(simulated):
    """Ten players, each with four episodes and habits of its own, which their episodes show."""
    setting, demos, paths = simulated
    paper = TABLE_1[setting]
    spreads = [np.std(lengths(paths)) / paper.length_std, np.std([len(e) for e in demos]) / paper.steps_std]
    if paper.reward_std is not None:
        spreads.append(np.std([e.rewards.sum() for e in demos]) / paper.reward_std)
    assert all(SPREAD[0] <= share <= SPREAD[1] for share in spreads)
    habits, turns = demos.about["players"], np.array(demos.about["played_by"])
    assert np.bincount(turns).tolist() == [4] * 10
    for name in habits[0]:
        assert len({h[name] for h in habits}) > 5
    # The top speed: the mean one depends on the way too, because every episode starts from rest.
    speed = np.array([np.hypot(*e.observations[:, 2:4].T).max() for e in demos])
    by_player = [speed[turns == i].mean() for i in range(len(habits))]
    assert np.corrcoef(by_player, [h["speed"] for h in habits])[0, 1] > 0.7
    assert max(by_player) > 1.3 * min(by_player)
    keys = demos.about["keys"]
    assert sum(keys.values()) == demos.pairs
    assert all(keys[kind] > 5 for kind in ("late", "held", "slip", "correction", "taken back"))
    assert 0.1 < 1 - (keys["wish"] + keys["taken back"]) / demos.pairs < 0.35


def test_shipped_episodes_are_what_their_actions_do(shipped):
    """Played again by the tray in plain NumPy."""
    _, demos, _ = shipped
    for episode in demos:
        tray = marble_numpy.Episodes.at_rest(episode.start[None], np.float32)
        rewards, seen = [], [tray.observation()[0]]
        for action in episode.actions:
            assert not tray.terminated()[0]
            tray.play(np.array([action]))
            seen.append(tray.observation()[0])
            rewards.append(tray.reward()[0])
        assert tray.terminated()[0]
        np.testing.assert_allclose(seen, episode.observations, atol=1e-4)
        np.testing.assert_allclose(rewards, episode.rewards, atol=1e-4)


def test_the_card_names_the_file_it_lies_beside(shipped):
    setting, demos, _ = shipped
    path = storage.library()[demos.name]
    text = path.with_suffix(".md").read_text()
    assert re.findall(r"\b[0-9a-f]{64}\b", text) == [hashlib.sha256(path.read_bytes()).hexdigest()]
    assert f"| {demos.pairs} | {TABLE_1[setting].pairs} |" in text
    script = "python benchmarks/simulated_players.py" if "players" in demos.about else "scopil demos generate"
    assert f"{script} {setting} --seed {demos.about['seed']}" in text
