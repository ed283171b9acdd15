"""Simulated players: a group with different care, speed and habits that plays Marble Maze key by key. This script makes
the shipped sets `marble-maze/*-simulated-v1`.

    python benchmarks/simulated_players.py simple --seed 2 --out simple-simulated-v1.npz

Every player has its own preferences (clearance, speed, cost of tilting). It follows plans that
the planner makes for these preferences, and deviates from them. The keys of a step are chosen in this order:

    taken back  undo the wrong key of the previous step, if the player noticed it
    held        the keys that are still held
    slip        a wrong key on one axis; taken back by the next key, or held for some steps
    correction  an unplanned tap on a level axis; taken back by the next key
    late        the plan has new keys, but the old keys stay down for at least one more step
    wish        the plan's keys; new keys may stay down for longer than planned

After a deviation the player plans again. A deviation is made only if a lawful way to the hole remains after it, `FLOOR`
px or more from every constraint. If an episode still fails, or takes too long, it is played again.
"""

import argparse
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from scopil.data import storage
from scopil.data.dataset import Demonstrations
from scopil.envs.marble_maze import SETTINGS, MarbleMaze, physics
from scopil.envs.marble_maze.constraints import min_margin
from scopil.envs.marble_maze.physics import ACTIONS, MAX_TICKS, MarbleState
from scopil.errors import ScopilError
from scopil_bench.marble_maze.generate import (
    PAIRING,
    Pairing,
    PlannedStart,
    Progress,
    as_set,
    check_request,
    closing,
    draw_starts,
    replay,
)
from scopil_bench.marble_maze.planner import Care, TrayPlanner, look_up, make_planner, margins, plan

FLOOR = 2.0  # px: the least distance to every constraint on the way to the hole after a deviation
BEAM = 200  # candidates per planning step; the sets of the planner use 3000
MAX_STEPS = 110  # a longer episode is played again
ATTEMPTS = 20  # per episode
COMFORT = 8.0  # px beyond the clearance: from there on a constraint adds no cost
PLACE_MARGIN = 35.0  # px from the place of a detour to every constraint
PLACE_REACHED = 25.0  # px: within this distance the place of a detour counts as reached
EXTRA_WAY = (100.0, 350.0)  # px that a detour adds to the way: least and most


@dataclass(frozen=True, kw_only=True)
class Habit:
    """Habits of one player. Probabilities are per step unless another unit is named."""

    clearance: float  # px that the player's plans keep to every constraint, > 0
    speed: float  # px per update up to which speed adds no cost, > 0
    lean: float  # steps (the planner's `tilt_cost`), ≥ 0: 0.02 keeps the tray tilted, 0.4 taps it
    late: float  # probability that a change of keys is late, in [0, 1)
    delay: float  # mean delay of a late change in steps, ≥ 1
    hold: float  # probability of one more step with new keys down, repeatedly, in [0, 1)
    slip: float  # probability of a wrong key on one axis, in [0, 1)
    mend: float  # probability that the next key takes a slip back, in [0, 1]; otherwise the wrong key is held
    correction: float  # probability of an unplanned tap, in [0, 1)
    let_go: float  # probability that the key is released when the tray reaches full tilt, in [0, 1]
    detour: float  # probability per episode of visiting another place first, in [0, 1]


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """Players with habits between `low` and `high`."""

    low: Habit
    high: Habit
    seed: int  # the seed of the shipped set
    players: int = 10
    pairing: Pairing = PAIRING


def _crowd(clearance: tuple[float, float], speed: tuple[float, float], detour: float, **settings: Any) -> Crowd:
    """The players of a tray. The habits that are not arguments are the same on every tray."""
    low = Habit(
        clearance=clearance[0],
        speed=speed[0],
        lean=0.02,
        late=0.05,
        delay=1.0,
        hold=0.0,
        slip=0.01,
        mend=0.5,
        correction=0.0,
        let_go=0.0,
        detour=0.0,
    )
    high = Habit(
        clearance=clearance[1],
        speed=speed[1],
        lean=0.3,
        late=0.3,
        delay=1.5,
        hold=0.2,
        slip=0.06,
        mend=1.0,
        correction=0.08,
        let_go=0.1,
        detour=detour,
    )
    return Crowd(low=low, high=high, **settings)


CROWDS = {
    "simple": _crowd((6.0, 18.0), (2.2, 4.6), 0.12, seed=2),
    "multiple": _crowd((4.0, 10.0), (0.9, 3.3), 0.12, seed=2),
    "two-modes": _crowd((6.0, 18.0), (1.5, 4.0), 0.25, seed=2, pairing=Pairing(nearby=115.0, detour=1.8)),
}


def draw_crowd(setting: str, seed: int) -> tuple[Habit, ...]:
    """The players of a set: a Latin hypercube between the crowd's two habits, with clearance, speed and lean on a
    logarithmic scale."""
    crowd, rng = CROWDS[setting], np.random.default_rng([seed, 0])
    drawn = {}
    for name in (f.name for f in fields(Habit)):
        low, high = getattr(crowd.low, name), getattr(crowd.high, name)
        share = (rng.permutation(crowd.players) + rng.uniform(size=crowd.players)) / crowd.players
        by_ratio = name in ("clearance", "speed", "lean")
        values = low * (high / low) ** share if by_ratio else low + share * (high - low)
        drawn[name] = np.round(values, 3).tolist()
    return tuple(Habit(**{name: values[i] for name, values in drawn.items()}) for i in range(crowd.players))


# --- a player's plans -------------------------------------------------------------------------------------------------


class Taste(NamedTuple):
    """One player's planners for one tray. Later ones have less clearance, for use if the first finds no way."""

    planners: tuple[TrayPlanner, ...]


def make_taste(setting: str, habit: Habit, side: str | None, place: tuple[float, float] | None = None) -> Taste:
    """`side`: the side on which to pass the first circle, None for any. `place`: a target instead of the hole."""
    params = SETTINGS[setting] if place is None else SETTINGS[setting]._replace(hole=place)
    care = Care(
        clearance=habit.clearance,
        speed=habit.speed,
        comfort=habit.clearance + COMFORT,
        tilt_cost=habit.lean,
        beam=BEAM,
        max_steps=MAX_STEPS,
    )
    own = make_planner(params, care, closing(setting, side))
    nearer = (own._replace(care=replace(care, clearance=c)) for c in (habit.clearance / 2, FLOOR))
    return Taste((own, *nearer))


def find_plan(planner: TrayPlanner, state: MarbleState) -> list[int] | None:
    try:
        return plan(planner, state).tolist()
    except ScopilError:
        return None


def wished(taste: Taste, state: MarbleState) -> list[int] | None:
    """The player's plan from a state; None if no lawful way exists."""
    return next((p for p in (find_plan(one, state) for one in taste.planners) if p is not None), None)


@jax.jit
def _after(planner: TrayPlanner, state: MarbleState, action: Int[Array, ""]):
    """The state after an action, whether the ball is in the hole, and whether the planner's clearance is kept."""
    after = physics.step(state, action, planner.hole)
    before, now = (margins(planner.constraints, s.position) for s in (state, after))
    kept = jnp.all(now >= jnp.clip(before, 0.0, planner.care.clearance))
    return after, physics.in_hole(after.position, planner.hole), kept


# --- an episode, key by key ------------------------------------------------------------------------------------------


class Played(NamedTuple):
    """An attempt at an episode."""

    actions: np.ndarray
    kinds: Counter  # number of actions by kind: `wish`, `late`, …
    failure: str | None = None  # the reason if the attempt failed


@dataclass
class Hand:
    """The keys of a player."""

    intent: int = 0  # intended keys, an action
    held: int = 0  # number of further steps for which these keys stay down
    take_back: tuple[int, int] | None = None  # the axis and the key that undo a wrong key
    # Per axis: whether the key was released at full tilt; None if the axis is not at full tilt.
    released: list[bool | None] = field(default_factory=lambda: [None, None])


def play_episode(setting: str, habit: Habit, planned: PlannedStart, rng: np.random.Generator, taste: Taste) -> Played:
    """One attempt at an episode from a planned start."""
    state = MarbleMaze(SETTINGS[setting]).initial_at(planned.start)
    place = draw_place(taste, planned.start, rng) if rng.uniform() < habit.detour else None
    via = None if place is None else make_taste(setting, habit, planned.side, place)
    hand, ahead, actions, kinds = Hand(), [], [], Counter()
    while len(actions) < MAX_STEPS:
        if via is not None and np.hypot(*(np.asarray(state.position) - place)) < PLACE_REACHED:
            via, ahead = None, []
        ahead = ahead or wished(via or taste, state) or []
        if via is not None and not (ahead and keeps_lawful(taste, state, ahead[0])):
            via, ahead = None, wished(taste, state) or []
        if not ahead:
            return Played(np.array(actions), kinds, "no lawful way left")
        wish = ahead.pop(0)
        intent, kind = decide(habit, hand, wish, state, rng, partial(keeps_lawful, taste, state))
        kinds[kind] += 1
        if np.any(tilt_after(state, intent) != tilt_after(state, wish)):
            ahead = []
        actions.append(press(habit, hand, state, intent, rng))
        state, fallen, _ = _after(taste.planners[-1], state, intent)
        if fallen:
            return Played(np.array(actions), kinds)
    return Played(np.array(actions), kinds, "too long")


def decide(
    habit: Habit, hand: Hand, wish: int, state: MarbleState, rng: np.random.Generator, lawful: Callable[[int], bool]
) -> tuple[int, str]:
    """Choose the intended keys and their kind (see the module's docstring). Changes `hand`."""
    action, kind = impulse(habit, hand, wish, state, rng)
    still_held, before = max(hand.held - 1, 0), hand.intent
    differs = np.any(tilt_after(state, action) != tilt_after(state, wish))
    if differs and not lawful(action):
        action, kind, still_held, differs = wish, "wish", 0, False
    hand.intent, hand.held, hand.take_back = action, still_held, None
    if not differs:
        if action != before:
            hand.held = _further_steps(habit.hold, rng)
        return action, "taken back" if kind == "taken back" else "wish"
    if kind == "late":
        hand.held = _further_steps(1 - 1 / habit.delay, rng)
    elif kind == "correction" or (kind == "slip" and rng.uniform() < habit.mend):
        gap = tilt_after(state, wish) - tilt_after(state, action)
        axis = int(np.argmax(gap != 0))
        hand.take_back = axis, int(np.sign(gap[axis]))
    elif kind == "slip":
        hand.held = 1 + _further_steps(0.5, rng)
    return action, kind


def impulse(habit: Habit, hand: Hand, wish: int, state: MarbleState, rng: np.random.Generator) -> tuple[int, str]:
    """The keys and their kind, before the check that the action is lawful."""
    if hand.take_back is not None:
        return _with(wish, *hand.take_back), "taken back"
    if hand.held > 0:
        return hand.intent, "held"
    chance, turn, wanted = rng.uniform(), ACTIONS[wish], tilt_after(state, wish)
    if chance < habit.slip:
        near = [_with(wish, axis, key) for axis in (0, 1) for key in (-1, 0, 1)]
        return int(rng.choice([a for a in near if np.any(tilt_after(state, a) != wanted)])), "slip"
    idle = np.flatnonzero((np.asarray(state.tilt) == 0) & (turn == 0))
    if chance < habit.slip + habit.correction and len(idle):
        return _with(wish, int(rng.choice(idle)), int(rng.choice([-1, 1]))), "correction"
    if np.any(tilt_after(state, hand.intent) != wanted) and rng.uniform() < habit.late:
        return hand.intent, "late"
    return wish, "wish"


def _further_steps(probability: float, rng: np.random.Generator) -> int:
    """Number of further steps if each one follows with probability p: p / (1 − p) on average."""
    return int(rng.geometric(1 - probability)) - 1


def keeps_lawful(taste: Taste, state: MarbleState, action: int) -> bool:
    """Whether a lawful way to the hole remains after an action."""
    planner = taste.planners[-1]
    after, fallen, kept = _after(planner, state, action)
    return bool(kept) and (bool(fallen) or find_plan(planner, after) is not None)


def press(habit: Habit, hand: Hand, state: MarbleState, intent: int, rng: np.random.Generator) -> int:
    """The action with the keys that are down. At full tilt a key may be released; the tray does not move then."""
    keys, tilt = ACTIONS[intent].copy(), np.asarray(state.tilt)
    for axis in (0, 1):
        if tilt[axis] != MAX_TICKS * keys[axis] or keys[axis] == 0:
            hand.released[axis] = None
            continue
        if hand.released[axis] is None:
            hand.released[axis] = bool(rng.uniform() < habit.let_go)
        if hand.released[axis]:
            keys[axis] = 0
    return _number(keys)


def draw_place(taste: Taste, start: np.ndarray, rng: np.random.Generator) -> tuple[float, float] | None:
    """A random place for a detour; None if no place is suitable."""
    own = taste.planners[0]
    for x, y in rng.uniform(-physics.REACH, physics.REACH, (200, 2)):
        place = np.array([x, y], np.float32)
        way, without = (float(_way(own.route, p)) for p in (place, start))
        extra = float(np.hypot(*(place - start))) + way - without
        if EXTRA_WAY[0] <= extra <= EXTRA_WAY[1] and float(_nearest(own.constraints, place)) >= PLACE_MARGIN:
            return float(x), float(y)
    return None


def tilt_after(state: MarbleState, action: int) -> np.ndarray:
    """Tilt in ticks about X and Y at the end of a step."""
    moved = np.asarray(state.tilt) + physics.UPDATES_PER_STEP * ACTIONS[action]
    return np.clip(moved, -MAX_TICKS, MAX_TICKS)


def _with(action: int, axis: int, key: int) -> int:
    """The action with another key on one axis."""
    keys = ACTIONS[action].copy()
    keys[axis] = key
    return _number(keys)


def _number(keys: np.ndarray) -> int:
    """The number of the action with these keys (0, 1 or −1 about X and about Y), in the paper's order."""
    return int(3 * (keys[0] % 3) + keys[1] % 3)


_way = jax.jit(lambda route, position: look_up(route.distance, position))
_nearest = jax.jit(min_margin)


# --- a set -----------------------------------------------------------------------------------------------------------


def play_set(setting: str, seed: int, episodes: int = 40, progress: Progress | None = None) -> Demonstrations:
    """Episodes of simulated players on a tray ("simple", "multiple" or "two-modes"). Equal seeds give equal sets.

    Args:
        setting: the tray and its group of players.
        seed: the seed of the starts, the players and their actions.
        episodes: the number of episodes. The players take turns in a shuffled order.
        progress: called after every episode with the number of episodes played and the total.
    """
    check_request(setting, episodes)
    crowd, habits = CROWDS[setting], draw_crowd(setting, seed)
    starts = draw_starts(setting, seed, episodes, crowd.pairing)
    turns = np.random.default_rng([seed, 1]).permutation(episodes) % len(habits)
    made, kinds, failures = [], Counter(), Counter()
    tastes = cache(lambda player, side: make_taste(setting, habits[player], side))
    for index, (planned, player) in enumerate(zip(starts, turns.tolist())):
        taste = tastes(player, planned.side)
        for attempt in range(ATTEMPTS):
            rng = np.random.default_rng([seed, 2, index, attempt])
            played = play_episode(setting, habits[player], planned, rng, taste)
            if played.failure is None:
                break
            failures[played.failure] += 1
        else:
            x, y = planned.start
            raise ScopilError(
                f"{setting}, seed {seed}: player {player} failed {ATTEMPTS} times from ({x:.1f}, {y:.1f}); choose "
                f"another seed."
            )
        made.append(replay(setting, planned, played.actions))
        kinds += played.kinds
        if progress is not None:
            progress(len(made), episodes)
    about = {
        "seed": seed,
        "demonstrator": "benchmarks/simulated_players.py, a model of ten players on the true simulator",
        "players": [asdict(h) for h in habits],
        "played_by": turns.tolist(),
        "keys": dict(sorted(kinds.items())),
        "played_again": dict(sorted(failures.items())),
    }
    return as_set(setting, f"marble-maze/{setting}-simulated-v1", starts, made, about, crowd.pairing)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", choices=CROWDS)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    storage.write(play_set(given.setting, given.seed, given.episodes), given.out)
