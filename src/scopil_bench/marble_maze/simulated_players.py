"""Players like people: a crowd of different care, speed and habit that plays Marble Maze key by key.

Every player wants what the careful planner would do with the player's own taste (clearance, speed, how long the tray
may stand tilted), and does not always do it. At each step, in this order:

    take back   the wrong key of the step before, if it was noticed
    hold        the keys that are still held, whatever the ball does meanwhile
    slip        a wrong key on one axis; noticed and taken back with the next key, or held on for a while
    correction  a tap that nothing asks for, on an axis that is level; taken back with the next key
    late        the plan asks for other keys, but the old ones stay down for another step or more
    wish        the plan's keys; newly pressed, they may stay down for longer than planned

After whatever was not planned, the player plans again from where the ball is. People who record demonstrations see
what they are doing: nobody makes a mistake that could no longer be put right. An action that is not the plan's is made
only if a lawful way to the hole remains after it, `FLOOR` px or more from every constraint. An episode that is spoilt
all the same, or that takes too long, is played again.

`python -m scopil_bench.marble_maze.simulated_players` rewrites the three shipped sets and their cards.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, partial
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
from scopil.files import write_atomically
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
from scopil_bench.marble_maze.planner import Care, TrayPlanner, make_planner, margins, plan
from scopil_bench.marble_maze.route import look_up
from scopil_bench.marble_maze.set_card import people_card

FLOOR = 2.0  # px; no mistake is made after which every way to the hole comes nearer to a constraint than this
BEAM = 200  # candidates of a plan; the planner's own sets use 3000
MAX_STEPS = 110  # an episode that takes longer is given up and played again
ATTEMPTS = 20  # at one episode
COMFORT = 8.0  # px beyond its clearance from where on a player does not mind a constraint
PLACE_MARGIN = 35.0  # px from a place that a detour goes over to every constraint
PLACE_REACHED = 25.0  # px
EXTRA_WAY = (100.0, 350.0)  # px that a detour adds to the way


@dataclass(frozen=True, kw_only=True)
class Habit:
    """How one player plays. Probabilities are per step unless another unit is named."""

    clearance: float  # px to every constraint that its plans keep, > 0
    speed: float  # px per update that it is comfortable with, > 0
    lean: float  # steps (the planner's `tilt_cost`), ≥ 0: 0.02 lets the tray stand tilted, 0.4 taps it for an instant
    late: float  # probability, per change of keys, that it comes late, in [0, 1)
    delay: float  # mean steps of a late change, ≥ 1
    hold: float  # probability that newly pressed keys stay down for one more step than planned, and again, in [0, 1)
    slip: float  # probability of a wrong key on one axis, in [0, 1)
    mend: float  # probability, per slip, that the next key takes it back; otherwise it is held, in [0, 1]
    correction: float  # probability of a tap that nothing asks for, taken back at once, in [0, 1)
    let_go: float  # probability, per tilt, that the key is let go once the tray stands at its stop, in [0, 1]
    detour: float  # probability, per episode, of going over some open place first, in [0, 1]


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """Players between two habits, and the set they play."""

    low: Habit
    high: Habit
    seed: int  # of the shipped set
    players: int = 10
    pairing: Pairing = PAIRING


def _crowd(clearance: tuple[float, float], speed: tuple[float, float], detour: float, **settings: Any) -> Crowd:
    """What depends on the tray is given; hands are the same everywhere."""
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
    """The players of a set. Each field is spread evenly between the crowd's two habits (a Latin hypercube), clearance,
    speed and lean on a logarithmic scale, so that every crowd has its careful, its quick and its clumsy players."""
    crowd, rng = CROWDS[setting], np.random.default_rng([seed, 0])
    drawn = {}
    for name in (f.name for f in fields(Habit)):
        low, high = getattr(crowd.low, name), getattr(crowd.high, name)
        share = (rng.permutation(crowd.players) + rng.uniform(size=crowd.players)) / crowd.players
        by_ratio = name in ("clearance", "speed", "lean")
        values = low * (high / low) ** share if by_ratio else low + share * (high - low)
        drawn[name] = np.round(values, 3).tolist()
    return tuple(Habit(**{name: values[i] for name, values in drawn.items()}) for i in range(crowd.players))


# --- a player's wishes -----------------------------------------------------------------------------------------------


class Taste(NamedTuple):
    """One player's planners for one tray: its own, and with less and less clearance where that one finds no way."""

    planners: tuple[TrayPlanner, ...]


def make_taste(setting: str, habit: Habit, side: str | None, place: tuple[float, float] | None = None) -> Taste:
    """`side`: of the first circle, None for either. `place`: where to go instead of the hole."""
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
    """The player's plan from here, None when there is no lawful way."""
    return next((p for p in (find_plan(one, state) for one in taste.planners) if p is not None), None)


@jax.jit
def _after(planner: TrayPlanner, state: MarbleState, action: Int[Array, ""]):
    """The state after an action, whether the ball is in the hole, and whether the planner's clearance was kept."""
    after = physics.step(state, action, planner.hole)
    before, now = (margins(planner.constraints, s.position) for s in (state, after))
    kept = jnp.all(now >= jnp.clip(before, 0.0, planner.care.clearance))
    return after, physics.in_hole(after.position, planner.hole), kept


def step_along(taste: Taste, state: MarbleState, action: int) -> MarbleState:
    return _after(taste.planners[-1], state, action)[0]


# --- an episode, key by key ------------------------------------------------------------------------------------------


def _towards(via: Taste | None, taste: Taste, state: MarbleState) -> list[int]:
    return wished(taste if via is None else via, state) or []


class Played(NamedTuple):
    """An attempt at an episode."""

    actions: np.ndarray
    kinds: Counter  # how many of them were `wish`, `late`, …
    spoilt: str | None = None  # why it was given up


@dataclass
class Hand:
    """What a player's hand is doing."""

    intent: int = 0  # the keys it means to have down
    held: int = 0  # steps that they stay down yet
    take_back: tuple[int, int] | None = None  # axis and key that undo a wrong key
    # Per axis that stands at its stop: whether the key was let go; None elsewhere.
    gone: list[bool | None] = field(default_factory=lambda: [None, None])


def play_episode(setting: str, habit: Habit, planned: PlannedStart, rng: np.random.Generator, taste: Taste) -> Played:
    state = MarbleMaze(SETTINGS[setting]).initial_at(planned.start)
    place = draw_place(taste, planned.start, rng) if rng.uniform() < habit.detour else None
    via = None if place is None else make_taste(setting, habit, planned.side, place)
    hand, ahead, actions, kinds = Hand(), [], [], Counter()
    while len(actions) < MAX_STEPS:
        if via is not None and np.hypot(*(np.asarray(state.position) - place)) < PLACE_REACHED:
            via, ahead = None, []
        ahead = ahead or _towards(via, taste, state)
        if via is not None and not (ahead and keeps_lawful(taste, state, ahead[0])):
            via, ahead = None, _towards(None, taste, state)
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
    """The keys that the hand means to press, and why; see the top of this file. Changes the hand."""
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
    """The keys that the player would press without a thought of what they do."""
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
    """How often something goes on that goes on with a given probability each time: p / (1 − p) on average."""
    return int(rng.geometric(1 - probability)) - 1


def keeps_lawful(taste: Taste, state: MarbleState, action: int) -> bool:
    """Whether a lawful way to the hole remains after an action."""
    planner = taste.planners[-1]
    after, fallen, kept = _after(planner, state, action)
    return bool(kept) and (bool(fallen) or find_plan(planner, after) is not None)


def press(habit: Habit, hand: Hand, state: MarbleState, intent: int, rng: np.random.Generator) -> int:
    """The keys that are down. At its stop the tray stays where it is, key down or not: some let go."""
    keys, tilt = ACTIONS[intent].copy(), np.asarray(state.tilt)
    for axis in (0, 1):
        if tilt[axis] != MAX_TICKS * keys[axis] or keys[axis] == 0:
            hand.gone[axis] = None
            continue
        if hand.gone[axis] is None:
            hand.gone[axis] = bool(rng.uniform() < habit.let_go)
        if hand.gone[axis]:
            keys[axis] = 0
    return _number(keys)


def draw_place(taste: Taste, start: np.ndarray, rng: np.random.Generator) -> tuple[float, float] | None:
    """An open place off the way, None when none is found."""
    own = taste.planners[0]
    for x, y in rng.uniform(-physics.REACH, physics.REACH, (200, 2)):
        place = np.array([x, y], np.float32)
        way, without = (float(_way(own.route, p)) for p in (place, start))
        extra = float(np.hypot(*(place - start))) + way - without
        if EXTRA_WAY[0] <= extra <= EXTRA_WAY[1] and float(_nearest(own.constraints, place)) >= PLACE_MARGIN:
            return float(x), float(y)
    return None


def tilt_after(state: MarbleState, action: int) -> np.ndarray:
    """Ticks about X and Y at the end of a step."""
    moved = np.asarray(state.tilt) + physics.UPDATES_PER_STEP * ACTIONS[action]
    return np.clip(moved, -MAX_TICKS, MAX_TICKS)


def _with(action: int, axis: int, key: int) -> int:
    """The action with another key on one axis."""
    keys = ACTIONS[action].copy()
    keys[axis] = key
    return _number(keys)


def _number(keys: np.ndarray) -> int:
    """The number of an action: 0, 1, −1 about X and about Y, in the paper's order."""
    return int(3 * (keys[0] % 3) + keys[1] % 3)


_way = jax.jit(lambda route, position: look_up(route.distance, position))
_nearest = jax.jit(min_margin)


# --- a set -----------------------------------------------------------------------------------------------------------


def play_set(setting: str, seed: int, episodes: int = 40, progress: Progress | None = None) -> Demonstrations:
    """Episodes of a crowd in a setting ("simple", "multiple" or "two-modes"), the same for the same seed.

    Args:
        setting: whose tray and whose crowd.
        seed: of the starts, the players and everything they do.
        episodes: how many. The players take turns in a shuffled order.
        progress: called after every episode with the number done and the number wanted.
    """
    check_request(setting, episodes)
    crowd, habits = CROWDS[setting], draw_crowd(setting, seed)
    starts = draw_starts(setting, seed, episodes, crowd.pairing)
    turns = np.random.default_rng([seed, 1]).permutation(episodes) % len(habits)
    made, kinds, spoilt = [], Counter(), Counter()
    tastes = cache(lambda player, side: make_taste(setting, habits[player], side))
    for index, (planned, player) in enumerate(zip(starts, turns.tolist())):
        taste = tastes(player, planned.side)
        for attempt in range(ATTEMPTS):
            rng = np.random.default_rng([seed, 2, index, attempt])
            played = play_episode(setting, habits[player], planned, rng, taste)
            if played.spoilt is None:
                break
            spoilt[played.spoilt] += 1
        else:
            x, y = planned.start
            raise ScopilError(
                f"{setting}, seed {seed}: player {player} failed {ATTEMPTS} times from ({x:.1f}, {y:.1f}); another "
                f"seed has other players and starts."
            )
        made.append(replay(setting, planned, played.actions))
        kinds += played.kinds
        if progress is not None:
            progress(len(made), episodes)
    about = {
        "seed": seed,
        "demonstrator": "scopil_bench.marble_maze.simulated_players, a crowd that plays on the true simulator",
        "players": [asdict(h) for h in habits],
        "played_by": turns.tolist(),
        "keys": dict(sorted(kinds.items())),
        "played_again": dict(sorted(spoilt.items())),
    }
    return as_set(setting, f"marble-maze/{setting}-people-v1", starts, made, about, crowd.pairing)


def play_library(progress: Callable[[str, int, int], None] | None = None) -> None:
    """Rewrite every shipped set of people and its card."""
    from scopil_bench.marble_maze.predictability import predictability  # trains cloning

    for setting, crowd in CROWDS.items():
        report = None if progress is None else lambda done, wanted, s=setting: progress(s, done, wanted)
        demos = play_set(setting, crowd.seed, progress=report)
        path = storage.LIBRARY / f"{demos.name}.npz"
        data = storage.to_bytes(demos)
        write_atomically(path, data)
        sets = demos, storage.load_demos(f"marble-maze/{setting}-v1")
        card = people_card(demos, data, *(predictability(one) for one in sets))
        write_atomically(path.with_suffix(".md"), card.encode())


if __name__ == "__main__":
    play_library(lambda setting, done, wanted: print(f"{setting}: {done} of {wanted} episodes", flush=True))
