"""Needle Master: motion, shapes and rules against a second implementation, the reader of games, levels and the study.

Tests on the recorded games need their folder: SCOPIL_NEEDLE_MASTER_DATA, or ../shared/data/needle_master.
"""

import os
import re
from pathlib import Path

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import scopil  # noqa: F401, registers the id
from reference import needle_numpy as twin
from scopil.cli import main
from scopil.data import storage
from scopil.data.dataset import Episode
from scopil.envs.gym_env import open_env
from scopil.envs.jax_env import CompiledEnv
from scopil.errors import DatasetError, EnvError
from scopil.eval.episodes import replay
from scopil.eval.measures import average, measure_all
from scopil.eval.pictures import new_figure
from scopil.eval.starts import unseen_starts
from scopil_bench import planning
from scopil_bench.studies.needle_master import compiled, geometry, people, pictures, study
from scopil_bench.studies.needle_master.env import COLUMNS, RULES, TILE, NeedleMaster, NeedleState
from scopil_bench.studies.needle_master.levels import HEIGHT, WIDTH, generate_level, generate_levels, read_levels

DATA = Path(
    os.environ.get(study.DATA) or Path(__file__).parents[3].parent.joinpath("shared", "data", "needle_master").resolve()
)
needs_games = pytest.mark.skipif(not DATA.is_dir(), reason="the recorded games are not here")
ENV = "scopil/NeedleMaster-v0"
STRIP = np.array([(500.0, 0.0), (900.0, 0.0), (900.0, 1080.0), (500.0, 1080.0)])
GROUND = np.array([(0.0, 950.0), (700.0, 820.0), (1920.0, 930.0), (1920.0, 1080.0), (0.0, 1080.0)])
WORLDS = {  # like those of the game: (x, y, turn, height) of gates; surfaces
    1: twin.world_of([(600, 300, 0.5, 300), (1300, 500, -0.6, 220)], []),
    2: twin.world_of([(700, 350, -0.3, 320)], [(STRIP, False)]),
    3: twin.world_of([(500, 250, 0.2, 260), (900, 450, 0.7, 240), (1400, 300, 0.0, 200)], [(GROUND, True)]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three levels, and two games on each that are made of known actions."""
    out = tmp_path_factory.mktemp("needle")
    for number, world in WORLDS.items():
        twin.write_world(world, out / f"environment_{number}.txt")
        for game in range(2):
            twin.write_recording(world, smooth(10 * number + game), out / f"trial_{number}_{game}.csv")
    return out


@pytest.fixture(scope="module")
def env(folder) -> CompiledEnv:
    return compiled(str(folder), (2,))


def smooth(seed: int, steps: int = 80) -> np.ndarray:
    """Actions of a game: moderate speeds, and turns that keep the needle on the screen."""
    rng = np.random.default_rng(seed)
    speed = 0.18 + 0.06 * np.sin(np.arange(steps) / 5 + rng.uniform(0, 6))
    turn = 0.25 * np.sin(np.arange(steps) / rng.uniform(3, 5)) + rng.normal(0, 0.05, steps)
    turn[0] += 0.4
    turn[8] -= 0.9
    return np.stack([speed, turn], 1)


Row = tuple[int, tuple[float, float], np.ndarray]  # level, start on it, actions


def tile_of(env: CompiledEnv, level: int) -> np.ndarray:
    index = [one.name for one in env.env.levels].index(str(level))  # pyright: ignore[reportAttributeAccessIssue]
    return TILE * np.array([index % COLUMNS, index // COLUMNS])


def played(env: CompiledEnv, *rows: Row) -> list[Episode]:
    """Episodes of the environment. There are always twelve, so that tests share a compiled program."""
    every = [rows[i % len(rows)] for i in range(12)]
    starts = np.stack([start + tile_of(env, level) for level, start, _ in every])
    actions = np.stack([np.resize(row[2], (env.horizon, 2)) for row in every])
    return env.replay(env.starts_at(starts), actions)[: len(rows)]


# --- motion and rules against the second implementation ---------------------------------------------------------------


def bold(seed: int) -> np.ndarray:
    """Actions that meet bars, tissue and edges."""
    rng = np.random.default_rng(seed)
    speed = rng.uniform(-0.2, 0.9, 100) * rng.choice([1.0, 0.3], 100)
    return np.stack([speed, rng.normal(0.1 * rng.standard_normal(), 0.5, 100).clip(-1, 1)], 1)


def test_episodes_agree_with_the_second_implementation(env):
    rows: list[Row] = [(level, (96.0, 108.0), bold(100 * level + i)) for level in WORLDS for i in range(4)]
    totals = dict.fromkeys(("gates", *RULES, "ended"), 0)
    for episode, (level, start, actions) in zip(played(env, *rows), rows):
        world = WORLDS[level]
        want = twin.play(world, np.array(start), actions[: len(episode)])
        assert len(episode) == len(want.positions) - 1
        np.testing.assert_allclose(episode.info["position"] - tile_of(env, level), want.positions, atol=0.02)
        assert episode.total_reward == pytest.approx(want.reward, abs=1e-3)
        assert episode.terminated == want.ended
        assert episode.info["success"][-1] == (want.positions[-1, 0] >= WIDTH)
        assert episode.info["gates"][-1] == pytest.approx(len(want.passed) / len(world.boxes))
        for rule in RULES:
            broken = episode.info[f"cost_{rule}"][1:] > 0
            np.testing.assert_array_equal(broken, want.costs[rule], err_msg=rule)
            totals[rule] += broken.sum()
        totals["gates"] += len(want.passed)
        totals["ended"] += want.ended
        any_rule = np.any([episode.info[f"cost_{rule}"] for rule in RULES], axis=0)
        np.testing.assert_array_equal(episode.info["cost"] > 0, any_rule)
    assert min(totals.values()) > 0, totals  # every rule was broken, gates were passed, episodes ended


def test_gates_out_of_order_are_missed(env):
    """Through the second gate of level 1 without the first: straight on, below the first gate."""
    (episode,) = played(env, (1, (96.0, 500.0), np.array([[0.3, 0.0]])))
    assert episode.info["gates"][-1] == pytest.approx(0.5)
    assert episode.info["cost_gate"].sum() == 1


def test_an_idle_needle_misses_its_gates_when_time_is_up(env):
    (episode,) = played(env, (2, (96.0, 108.0), np.zeros((1, 2))))
    assert episode.truncated
    assert len(episode) == 100
    assert episode.info["cost_gate"].nonzero()[0].tolist() == [100]


# --- shapes -----------------------------------------------------------------------------------------------------------


def test_inside_and_nearest_agree_with_brute_force():
    rng = np.random.default_rng(1)
    shape = np.array([(0, 0), (10, 0), (10, 10), (6, 10), (6, 4), (4, 4), (4, 10), (0, 10), (0, 10)], np.float32)
    points = rng.uniform(-3, 13, (400, 2)).astype(np.float32)
    found = jax.jit(jax.vmap(geometry.inside, (0, None)))(points, shape)
    np.testing.assert_array_equal(found, twin.in_polygon(points.astype(float), shape[:-1].astype(float)))
    share = np.linspace(0, 1, 2001)[:, None, None]
    rim = (shape + share * (np.roll(shape, -1, axis=0) - shape)).reshape(-1, 2)
    near = jax.jit(jax.vmap(geometry.nearest, (0, None)))(points, shape)
    want = np.hypot(*(rim[None] - points[:, None]).transpose(2, 0, 1)).min(axis=1)
    np.testing.assert_allclose(np.hypot(*(near - points).T), want, atol=0.01)


def test_rays_agree_with_brute_force():
    rng = np.random.default_rng(2)
    a, b = jnp.asarray(rng.uniform(-10, 10, (2, 5, 2)), jnp.float32)
    angles = rng.uniform(-np.pi, np.pi, 200).astype(np.float32)
    ways = np.stack([np.cos(angles), np.sin(angles)], 1)
    found = np.asarray(jax.jit(jax.vmap(geometry.ray, (None, 0, None, None)))(jnp.zeros(2), ways, a, b))
    # The sides of the segments' ends tell whether the line meets them; their point on the line tells where.
    sides = [ways[:, :1] * end[:, 1] - ways[:, 1:] * end[:, 0] for end in np.asarray([a, b], float)]
    meets, share = sides[0] * sides[1] < 0, sides[0] / (sides[0] - sides[1])
    along = np.einsum("nd,nsd->ns", ways, np.asarray(a) + share[..., None] * np.asarray(b - a))
    want = np.where(meets & (along > 0), along, np.inf).min(axis=1)
    assert np.isinf(want).any()
    assert np.isfinite(want).any()
    np.testing.assert_allclose(found, want, rtol=1e-4)


# --- observations -----------------------------------------------------------------------------------------------------


def _state(env: CompiledEnv, level: int, at, heading=0.0) -> NeedleState:
    inner = env.env.initial_at(np.array(at) + TILE * np.array([level % COLUMNS, level // COLUMNS]))  # pyright: ignore[reportAttributeAccessIssue]
    return inner._replace(heading=jnp.float32(heading))


def test_gates_are_seen_in_the_needles_frame(env):
    """Level 1, from a place 100 px before the first gate's centre, looking at it: the centre is straight ahead, the
    ends of the opening at equal distances on both sides."""
    centre, way = np.array([600.0, 300.0]), 0.5
    ahead = np.array([np.cos(way), -np.sin(way)])  # through the gate, which is turned by 0.5
    obs = np.asarray(env.env.observation(_state(env, 0, centre - 100 * ahead, -way)))
    np.testing.assert_allclose(obs[7:10], [100 / 400, 1.0, 0.0], atol=1e-4)
    np.testing.assert_allclose(obs[[10, 11]], obs[[13, 14]], atol=1e-4)
    np.testing.assert_allclose(obs[12], -obs[15], atol=1e-4)
    opening = 150 * (1 - 2 * 5 / 54)
    np.testing.assert_allclose(obs[10], 1 - 300 / (300 + np.hypot(100, opening)), atol=1e-4)
    np.testing.assert_allclose(abs(obs[12]), opening / np.hypot(100, opening), atol=1e-4)


def test_tissue_and_obstacles_are_seen(env):
    on_level_3 = _state(env, 1, (300.0, 700.0), np.pi / 2)  # levels 1, 3, and 2, which is left out
    obs = np.asarray(env.env.observation(on_level_3))
    edge = twin_distance(np.array([300.0, 700.0]), GROUND)
    np.testing.assert_allclose(np.hypot(*obs[19:21]), np.exp(-edge / 200), atol=1e-4)
    np.testing.assert_allclose(obs[21:23], 0.0, atol=1e-6)
    down = 950 - 130 * 300 / 700 - 700  # straight down to the ground
    np.testing.assert_allclose(obs[25], np.exp(-down / 200), atol=1e-4)
    obs = np.asarray(env.env.observation(_state(env, 2, (700.0, 400.0))))
    assert obs[5] == 1.0
    np.testing.assert_allclose(np.hypot(*obs[21:23]), np.exp(-200 / 200), atol=1e-4)
    np.testing.assert_allclose(obs[19:21], 0.0, atol=1e-6)


def twin_distance(at: np.ndarray, corners: np.ndarray) -> float:
    share = np.linspace(0, 1, 20_001)[:, None, None]
    rim = corners + share * (np.roll(corners, -1, axis=0) - corners)
    return float(np.hypot(*(rim - at).transpose(2, 0, 1)).min())


def test_costs_reach_neither_observations_nor_rewards_nor_the_motion(env):
    """States that differ in the rules they broke are the same to a learner."""
    inner: NeedleMaster = env.env  # pyright: ignore[reportAssignmentType]
    clean, action = _state(env, 0, (590.0, 200.0)), jnp.array([0.5, 0.3])
    guilty = clean._replace(broken=jnp.ones(len(RULES), bool), passed=jnp.int32(7))
    step = jax.jit(inner.transition)
    after, again = step(clean, action), step(guilty, action)
    assert inner.state_info(guilty)["cost"] == 1.0
    np.testing.assert_array_equal(inner.observation(clean), inner.observation(guilty))
    np.testing.assert_array_equal(inner.observation(after), inner.observation(again))
    np.testing.assert_array_equal(inner.reward(clean, action, after), inner.reward(guilty, action, again))
    np.testing.assert_array_equal(after.position, again.position)


# --- Gymnasium, starts and levels -------------------------------------------------------------------------------------


def test_the_registered_environment_keeps_gymnasiums_contract():
    made = gym.make(f"{ENV}", levels=3, render_mode="rgb_array")
    check_env(made.unwrapped)
    made.reset(seed=1)
    made.step(np.array([0.5, 0.0], np.float32))
    picture: np.ndarray = made.render()  # pyright: ignore[reportAssignmentType]
    assert picture.shape == (360, 640, 3)
    assert (picture == pictures.NAVY).all(axis=-1).any()
    assert isinstance(open_env(f"{ENV}(levels=3)"), CompiledEnv)


def test_training_never_starts_on_levels_that_are_left_out(env):
    shown = env.reset_batch(jax.random.key(0), 60).inner.level
    unseen = unseen_starts(env, 20).inner.level  # pyright: ignore[reportAttributeAccessIssue]
    assert set(np.asarray(shown).tolist()) == {0, 1}
    assert set(np.asarray(unseen).tolist()) == {2}
    assert [level.name for level in env.env.levels] == ["1", "3", "2"]  # pyright: ignore[reportAttributeAccessIssue]
    everything = compiled(None, (), 3)
    found = unseen_starts(everything, 60).inner.level  # pyright: ignore[reportAttributeAccessIssue]
    assert set(np.asarray(found).tolist()) == {0, 1, 2}


def test_a_start_is_a_place_on_the_sheet(env):
    made = gym.make(ENV, levels=5)
    first, info = made.reset(seed=3)
    again, _ = made.reset(options={"start": info["position"]})  # as recorders do
    np.testing.assert_allclose(first, again, atol=1e-4)
    start = np.array([700.0, 300.0]) + TILE * np.array([1, 1])  # the fifth level
    _, info = made.reset(options={"start": start})
    np.testing.assert_allclose(info["position"], start)
    for wrong in ([1930.0, 5.0], [-1.0, 5.0], [700.0, 1100.0], [5.0, 5.0 + 2 * 1260], [1.0, 2.0, 3.0], [np.nan, 1.0]):
        with pytest.raises(EnvError, match="start"):
            made.reset(options={"start": wrong})
    with pytest.raises(EnvError, match="no level 9"):
        NeedleMaster(generate_levels(3, 0), (9,))
    with pytest.raises(EnvError, match="left out"):
        NeedleMaster(generate_levels(2, 0), (1, 2))


def test_generated_levels_depend_on_seed_and_number_only():
    assert generate_levels(12, 4)[7] == generate_levels(7, 4)[7] == generate_level(7, 4)
    assert generate_level(7, 4) != generate_level(7, 5)
    assert generate_level(7, 4) != generate_level(8, 4)
    kinds = set()
    for level in generate_levels(60, 3).values():
        parts = np.concatenate([part for gate in level.gates for part in pictures.parts_of(gate)])
        assert (parts >= 0).all()
        assert (parts <= (WIDTH, HEIGHT)).all()
        middles = [gate.centre[0] for gate in level.gates]
        assert middles == sorted(middles)
        for surface in level.surfaces:
            kinds.add(surface.deep)
            if surface.deep:  # no gate, and not the start, is in deep tissue
                points = np.concatenate([parts, [[96.0, 108.0]]])
                assert not twin.in_polygon(points, np.array(surface.corners)).any()
    assert kinds == {True, False}


def test_levels_are_read_as_written(folder):
    for number, level in read_levels(folder).items():
        world = WORLDS[number]
        for gate, box, bars in zip(level.gates, world.boxes, zip(world.bars[::2], world.bars[1::2]), strict=True):
            _same_corners(np.concatenate([pictures.parts_of(gate)[1], pictures.parts_of(gate)[2]]), np.vstack(bars))
            np.testing.assert_allclose(gate.centre, box.mean(axis=0), atol=1e-9)
        for surface, (corners, deep) in zip(level.surfaces, world.surfaces, strict=True):
            np.testing.assert_allclose(surface.corners, corners, atol=1e-9)
            assert surface.deep == deep


def _same_corners(found: np.ndarray, wanted: np.ndarray) -> None:
    found, wanted = (each[np.lexsort(each.round(1).T)] for each in (found, wanted))
    np.testing.assert_allclose(found, wanted, atol=0.02)


@pytest.mark.parametrize(
    ("old", "new"),
    [("Gates: 1", "Gates: 2"), ("1920,1080", "640,480"), ("Gates: 1", "Gates: 999999999"), ("true", "true\nX: 1")],
)
def test_damaged_levels_are_refused(folder, tmp_path, old, new):
    for file in ("environment_2.txt", "environment_3.txt"):
        (tmp_path / file).write_text((folder / file).read_text().replace(old, new))
    with pytest.raises(DatasetError, match="environment_"):
        read_levels(tmp_path)


# --- games ------------------------------------------------------------------------------------------------------------


def test_actions_are_recovered_from_recordings(folder, env):
    inner: NeedleMaster = env.env  # pyright: ignore[reportAssignmentType]
    games = [game for game in people.read_recordings(folder) if game.level != 2]
    for game, actions in zip(games, people.recover_actions(games, inner)):
        number = int(game.name.rpartition("_")[2])
        want = smooth(10 * game.level + number)[: len(actions)]
        np.testing.assert_allclose(actions[:-1], want[:-1], atol=2e-3)
        assert people.tick_errors(game, inner).max() < 1e-3


def test_in_tissue_the_games_are_replayed_too(folder):
    everything = compiled(str(folder))
    games = [game for game in people.read_recordings(folder) if game.level == 2]
    assert people.replayed(everything, games).errors.max() < 0.01


def test_demonstrations_are_the_environments_own_episodes(folder, env):
    demos = people.demonstrations(folder, (2,))
    assert len(demos) == 4
    assert all(episode.terminated and not episode.info for episode in demos)
    for episode, again in zip(demos, replay(env, demos), strict=True):
        np.testing.assert_allclose(episode.observations, again.observations, atol=1e-6)


def test_the_command_writes_a_set_and_prints_violations(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    out = tmp_path / "games.npz"
    assert not main(["demos", "needle-master", str(folder), "--out", str(out), "--left-out", "2"])
    said = capsys.readouterr().out
    assert re.search(r"^violations: .*\bgate \d+", said, re.MULTILINE)
    assert "replay error: median" in said
    demos = storage.read(out)
    assert len(demos) == 4
    assert demos.env_id is not None
    assert str(folder) in demos.env_id


def test_missing_and_damaged_games_are_refused(folder, tmp_path):
    with pytest.raises(DatasetError, match="no games"):
        people.read_recordings(tmp_path)
    with pytest.raises(DatasetError, match="no levels"):
        read_levels(tmp_path)
    for text in ("1,2,3\n" * 9, "a,b,c,d,e,f\n" * 9, "1,2,3,4,5,nan\n" * 9, "1,2,3,4,5,6\n"):
        (tmp_path / "trial_1_1.csv").write_text(text)
        with pytest.raises(DatasetError, match="trial_1_1"):
            people.read_recordings(tmp_path)


# --- pictures and study -----------------------------------------------------------------------------------------------


def test_the_sheet_shows_episodes_where_they_were(env):
    episodes = played(env, (3, (96.0, 108.0), np.array([[0.5, 0.0]])))
    axes = new_figure(figsize=(3, 3)).add_subplot()
    draw = env.drawing()
    assert draw is not None
    draw(axes, episodes)
    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    assert x1 - x0 == pytest.approx(y0 - y1)  # a square, y downwards
    np.testing.assert_allclose(axes.lines[0].get_xydata(), episodes[0].info["position"])
    assert {text.get_text() for text in axes.texts} >= {"level 1", "level 2", "level 3"}


def test_the_study_leaves_every_level_out_once(monkeypatch, folder):
    assert sorted(number for fold in study.FOLDS for number in fold) == list(range(1, 13))
    for name, table in study.STUDY.tables.items():
        assert {"scopil-rho", "scopil", "bc", "gail-sac", "sac"} <= set(table.trained)
        assert table.setting == name
    monkeypatch.delenv(study.DATA, raising=False)
    with pytest.raises(DatasetError, match=study.DATA):
        study.demonstrations((1, 5, 8))
    monkeypatch.setenv(study.DATA, str(folder))
    assert study.env_of((2,)) == f"{ENV}(data={str(folder)!r}, left_out=(2,))"
    ((row, measures),) = study.on_left_out_levels((2,)).items()
    assert "2 games" in row
    assert measures["violations"] >= 0


def test_a_study_without_data_says_what_it_wants(tmp_path, monkeypatch):
    monkeypatch.delenv(study.DATA, raising=False)
    with pytest.raises(DatasetError, match=study.DATA):
        planning.create(study.STUDY, tmp_path, "short", study.STUDY.cells(["levels-1-5-8"]), 1)


# --- the recorded games themselves ------------------------------------------------------------------------------------


@needs_games
def test_every_recorded_tick_is_reproduced():
    everything: NeedleMaster = compiled(str(DATA)).env  # pyright: ignore[reportAssignmentType]
    games = [game for game in people.read_recordings(DATA) if game.level > 0]
    errors = np.concatenate([people.tick_errors(game, everything) for game in games])
    assert len(games) == 37
    assert np.median(errors) < 1e-4
    assert errors.max() < 1e-3  # px


@needs_games
def test_people_pass_gates_and_keep_out_of_deep_tissue():
    """Counted on the recorded points: gates entered and crossed, bars touched, deep tissue entered."""
    entered = crossed = touched = deep = total = 0
    for game in people.read_recordings(DATA):
        world = twin.read_world(DATA / f"environment_{game.level}.txt")
        share = np.linspace(0, 1, 50)[:, None]
        path = np.concatenate([a + share * (b - a) for a, b in zip(game.position, game.position[1:])])
        total += len(world.boxes)
        entered += sum(twin.in_polygon(path, box).any() for box in world.boxes)
        crossed += sum(
            len(twin.middle_crossings(path, box, world.bars[2 * i : 2 * i + 2])) > 0
            for i, box in enumerate(world.boxes)
        )
        touched += sum(twin.in_polygon(path, bar).any() for bar in world.bars)
        deep += sum(twin.in_polygon(path, corners).any() for corners, d in world.surfaces if d)
    assert (total, entered, crossed, touched, deep) == (63, 59, 58, 1, 0)


@needs_games
def test_peoples_rates_in_the_environment_are_those_of_the_recordings():
    played = people.read_games(DATA).episodes
    games, found = len(played), average(measure_all(played, compiled(str(DATA))))
    assert games == 37
    assert found["violations/bar"] * games == pytest.approx(1)
    assert found["violations/tissue"] == 0
    assert found["violations/gate"] * games == pytest.approx(3)  # one of the two gates of level 10, in each game
    assert found["violations/turn"] * games == pytest.approx(4)
    assert found["success"] * games == pytest.approx(35)
