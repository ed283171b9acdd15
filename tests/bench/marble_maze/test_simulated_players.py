"""Simulated players: the same for the same seed, with different habits, and always lawful."""

from dataclasses import asdict, fields, replace

import numpy as np
import pytest
from simulated_players import (
    CROWDS,
    FLOOR,
    Habit,
    Hand,
    decide,
    draw_crowd,
    keeps_lawful,
    make_taste,
    play_set,
    press,
    tilt_after,
)

from reference.margins_numpy import margins
from scopil.data import storage
from scopil.envs.marble_maze import SETTINGS, MarbleMaze
from scopil.envs.marble_maze.physics import REACH
from scopil.errors import ConfigError

LEVEL, LEFT, RIGHT, UP, UP_LEFT = 0, 1, 2, 3, 4  # actions in the paper's order
PERFECT = Habit(
    clearance=10.0,
    speed=3.0,
    lean=0.02,
    late=0.0,
    delay=1.0,
    hold=0.0,
    slip=0.0,
    mend=1.0,
    correction=0.0,
    let_go=0.0,
    detour=0.0,
)


@pytest.fixture(scope="module")
def reported():
    return []


@pytest.fixture(scope="module")
def two_episodes(reported):
    return play_set("simple", 5, 2, lambda done, wanted: reported.append((done, wanted)))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def state_at(x=0.0, y=0.0, tilt=(0, 0), velocity=(0.0, 0.0)):
    rest = MarbleMaze().initial_at((x, y))
    return rest._replace(tilt=np.array(tilt, np.int32), velocity=np.array(velocity, np.float32))


def always(action: int) -> bool:
    return True


# --- sets --------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes(two_episodes, reported):
    assert reported == [(1, 2), (2, 2)]
    assert storage.to_bytes(play_set("simple", 5, 2)) == storage.to_bytes(two_episodes)
    assert two_episodes.about["players"] == [asdict(h) for h in draw_crowd("simple", 5)]


def test_episodes_are_lawful_and_end_in_the_hole(two_episodes):
    for episode in two_episodes:
        kept = margins(SETTINGS["simple"].constraints, episode.observations[:, :2].astype(np.float64) * REACH)
        assert np.all(kept[1:] >= np.clip(kept[:-1], 0.0, FLOOR) - 1e-3)
        assert episode.terminated
    assert sum(two_episodes.about["keys"].values()) == two_episodes.pairs


@pytest.mark.parametrize(("setting", "episodes"), [("nowhere", 2), ("simple", 0)])
def test_a_wrong_request_is_refused(setting, episodes):
    with pytest.raises(ConfigError):
        play_set(setting, 0, episodes)


# --- the crowd ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", CROWDS)
def test_every_crowd_covers_the_whole_range_of_every_habit(setting):
    crowd, players = CROWDS[setting], draw_crowd(setting, 7)
    assert len(players) == crowd.players
    assert players == draw_crowd(setting, 7) != draw_crowd(setting, 8)
    for name in (f.name for f in fields(Habit)):
        low, high = getattr(crowd.low, name), getattr(crowd.high, name)
        values = np.array([getattr(p, name) for p in players])
        assert np.all((values >= low - 1e-3) & (values <= high + 1e-3))
        assert np.ptp(values) > 0.6 * (high - low)
        assert len(set(values)) > crowd.players / 2


# --- a step ------------------------------------------------------------------------------------------------------


def test_without_bad_habits_the_wish_is_done(rng):
    hand = Hand()
    for wish in (LEFT, LEFT, UP, LEVEL):
        assert decide(PERFECT, hand, wish, state_at(), rng, always) == (wish, "wish")
    assert hand == Hand()


def test_a_late_change_keeps_the_old_keys_down(rng):
    late = replace(PERFECT, late=0.999, delay=3.0)
    hand = Hand(intent=LEFT)
    assert decide(late, hand, LEFT, state_at(), rng, always) == (LEFT, "wish")
    assert decide(late, hand, UP, state_at(), rng, always) == (LEFT, "late")
    hand.held = 2
    assert [decide(late, hand, UP, state_at(), rng, always)[1] for _ in range(2)] == ["held", "held"]


def test_a_held_key_is_released_before_it_is_unlawful(rng):
    hand = Hand(intent=LEFT, held=5)
    assert decide(PERFECT, hand, UP, state_at(), rng, lambda action: False) == (UP, "wish")
    assert hand.held == 0


def test_new_keys_are_held_for_as_long_as_the_habit_says(rng):
    held, state, holds = [], state_at(), replace(PERFECT, hold=0.5)
    for _ in range(2000):
        hand = Hand()
        decide(holds, hand, LEFT, state, rng, always)
        held.append(hand.held)
    assert np.mean(held) == pytest.approx(1.0, abs=0.15)  # p / (1 − p)


@pytest.mark.parametrize("wish", [LEVEL, LEFT, UP_LEFT])
def test_a_slip_is_one_wrong_key_and_is_taken_back_with_the_next(wish, rng):
    slips, hand, state = replace(PERFECT, slip=0.999), Hand(), state_at()
    wrong, kind = decide(slips, hand, wish, state, rng, always)
    assert kind == "slip"
    assert np.sum(tilt_after(state, wrong) != tilt_after(state, wish)) == 1
    after = state_at(tilt=tuple(tilt_after(state, wrong)))
    back, kind = decide(slips, hand, LEVEL, after, rng, always)
    assert kind == "taken back"
    gap = tilt_after(state, wish) - tilt_after(state, wrong)
    np.testing.assert_array_equal(np.sign(tilt_after(after, back) - after.tilt), np.sign(gap))
    assert hand.take_back is None


def test_an_unnoticed_slip_is_held(rng):
    hand = Hand()
    wrong, _ = decide(replace(PERFECT, slip=0.999, mend=0.0), hand, LEFT, state_at(), rng, always)
    assert hand.take_back is None
    assert hand.held >= 1
    assert decide(PERFECT, hand, LEFT, state_at(), rng, always) == (wrong, "held")


def test_a_correction_is_a_tap_on_a_level_axis(rng):
    taps = replace(PERFECT, correction=0.999)
    hand, state = Hand(), state_at(tilt=(0, 5))
    tap, kind = decide(taps, hand, LEFT, state, rng, always)
    assert kind == "correction"
    assert tilt_after(state, tap)[0] != 0
    assert tilt_after(state, tap)[1] == 5
    assert hand.take_back is not None
    assert decide(taps, Hand(), UP_LEFT, state_at(), rng, always) == (UP_LEFT, "wish")  # both hands are busy


def test_an_unlawful_deviation_is_not_made(rng):
    clumsy = replace(PERFECT, slip=0.5, correction=0.49, late=0.999)
    for _ in range(20):
        assert decide(clumsy, Hand(intent=LEFT), UP, state_at(), rng, lambda action: False) == (UP, "wish")


def test_releasing_a_key_at_full_tilt_does_not_move_the_tray(rng):
    lets_go, state = replace(PERFECT, let_go=1.0), state_at(tilt=(5, 5))
    assert press(PERFECT, Hand(), state, UP_LEFT, rng) == UP_LEFT
    hand = Hand()
    assert press(lets_go, hand, state, UP_LEFT, rng) == LEVEL
    assert press(lets_go, hand, state_at(tilt=(5, 0)), UP_LEFT, rng) == LEFT
    assert hand.released == [True, None]
    np.testing.assert_array_equal(tilt_after(state, LEVEL), tilt_after(state, UP_LEFT))


def test_lawful_means_that_a_way_to_the_hole_remains():
    taste = make_taste("simple", PERFECT, None)
    assert keeps_lawful(taste, state_at(100.0, 100.0), LEVEL)
    falling = state_at(100.0, -130.0, velocity=(0.0, -4.0))  # 30 px above the line; stopping takes 100
    assert not keeps_lawful(taste, falling, UP)
    assert not keeps_lawful(taste, state_at(100.0, -157.0, velocity=(0.0, -1.0)), LEVEL)
