"""Demonstrations of the planner: the three Marble Maze sets, and sets for other trays (`demonstrate_tray`)."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int

from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.base import EnvState
from scopil.envs.jax_env import CompiledEnv
from scopil.envs.marble_maze import SETTINGS, Circle, MarbleMaze
from scopil.envs.marble_maze.constraints import MarbleParams, min_margin
from scopil.envs.marble_maze.physics import REACH, MarbleState
from scopil.envs.naming import IDS
from scopil.errors import ConfigError
from scopil_bench.marble_maze.planner import (
    SIDES,
    Care,
    TrayPlanner,
    Wedge,
    closed_to,
    look_up,
    make_planner,
    passing_side,
    plan,
)

Progress = Callable[[int, int], None]  # (episodes finished, total episodes)

RIM_DEPTH = 0.3  # px inside the circle, for violating starts; one step from rest moves the ball by at least 0.52 px


class Pairing(NamedTuple):
    """Limits for paired starts, which have one episode on each side of the circle."""

    nearby: float = 170.0  # maximum distance from the circle's centre in px
    detour: float = 1.4  # maximum ratio of the longer path around the circle to the shorter path


PAIRING = Pairing()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to generate one shipped set. Speeds are chosen so that episodes are as long as in the paper's Table 1."""

    care: Care
    seed: int  # seed of the shipped set
    violating: int  # number of episodes that start just inside a circle
    paired: bool = False  # two episodes per start, one on each side of the first circle


RECIPES = {
    "simple": Recipe(care=Care(clearance=15.0, speed=2.8, comfort=22.0), seed=0, violating=1),
    "multiple": Recipe(care=Care(clearance=9.0, speed=1.8, comfort=18.0), seed=0, violating=2),
    "two-modes": Recipe(care=Care(clearance=15.0, speed=2.2, comfort=22.0), seed=0, violating=1, paired=True),
}


class PlannedStart(NamedTuple):
    """The start of an episode, and the side on which the ball passes the circle (None: either)."""

    start: np.ndarray
    side: str | None = None


def generate(setting: str, seed: int, episodes: int = 40, progress: Progress | None = None) -> Demonstrations:
    """Episodes of the planner on a tray ("simple", "multiple" or "two-modes"). The seed determines the set."""
    check_request(setting, episodes)
    made, starts = [], draw_starts(setting, seed, episodes)
    for planned in starts:
        actions = plan(_planner(setting, planned.side), MarbleMaze(SETTINGS[setting]).initial_at(planned.start))
        made.append(replay(setting, planned, actions))
        if progress is not None:
            progress(len(made), episodes)
    about = {
        "seed": seed,
        "demonstrator": "scopil_bench.marble_maze.planner, a beam search on the true simulator",
        "planner": asdict(RECIPES[setting].care),
    }
    return as_set(setting, f"marble-maze/{setting}-v1", starts, made, about)


def demonstrate_tray(
    tray: MarbleParams,
    episodes: int = 20,
    *,
    clearance: float = 12.0,
    speed: float = 2.5,
    comfort: float = 20.0,
    seed: int = 0,
) -> Demonstrations:
    """Demonstrations of the planner on any tray, from random starts that violate no rule.

    Args:
        tray: hole and constraints of the tray.
        episodes: number of episodes; planning one takes about a second.
        clearance: distance in px that the ball keeps to every forbidden region.
        speed: px per update above which a speed has a cost.
        comfort: distance in px to a forbidden region below which a position has a cost.
        seed: seed of the random starts.
    """
    maze = MarbleMaze(tray)
    planner = make_planner(tray, Care(clearance=clearance, speed=speed, comfort=comfort))
    play, starts = _player(tray), map(maze.initial, jax.random.split(jax.random.key(seed), episodes))
    return Demonstrations(
        episodes=tuple(_played(play, first, plan(planner, first)) for first in starts),
        observation_space=maze.observation_space,  # pyright: ignore[reportArgumentType]
        action_space=maze.action_space,  # pyright: ignore[reportArgumentType]
        name="own-tray",
    )


def check_request(setting: str, episodes: int) -> None:
    if setting not in RECIPES:
        raise ConfigError(f"no tray {setting!r}; want one of {', '.join(RECIPES)}.")
    if episodes < 1:
        raise ConfigError(f"{episodes} episodes; want at least 1.")


def as_set(
    setting: str,
    name: str,
    starts: list[PlannedStart],
    episodes: list[Episode],
    about: dict[str, Any],
    pairing: Pairing = PAIRING,
) -> Demonstrations:
    """A set of the `episodes` that begin at `starts`. Its `about` also lists violating and paired starts."""
    constraints = SETTINGS[setting].constraints
    about |= {
        "setting": setting,
        "violating_starts": [i for i, s in enumerate(starts) if _margin(constraints, s.start) < 0],
    }
    if RECIPES[setting].paired:
        about["paired_episodes"] = [[i, i + 1] for i, s in enumerate(starts) if s.side == SIDES[0]]
        about["paired_starts"] = pairing._asdict()
    return Demonstrations(
        episodes=tuple(episodes),
        observation_space=MarbleMaze.observation_space,  # pyright: ignore[reportArgumentType]
        action_space=MarbleMaze.action_space,  # pyright: ignore[reportArgumentType]
        name=name,
        env_id=IDS[setting],
        about=about,
    )


def draw_starts(setting: str, seed: int, episodes: int, pairing: Pairing = PAIRING) -> list[PlannedStart]:
    """The starts of a set: first starts drawn by the environment, single or paired, then starts that violate a rule."""
    recipe, params = RECIPES[setting], SETTINGS[setting]
    violating = min(recipe.violating, episodes // 2)
    pairs, singles = divmod(episodes - violating, 2) if recipe.paired else (0, episodes - violating)
    starts = _env_starts(params, seed)
    wanted = []
    while len(wanted) < 2 * pairs:
        start = next(starts)
        if goes_both_ways(setting, start, pairing):
            wanted += [PlannedStart(start, side) for side in SIDES]
    wanted += [PlannedStart(next(starts)) for _ in range(singles)]
    return wanted + [PlannedStart(start) for start in _rim_starts(params, seed, violating)]


def goes_both_ways(setting: str, start: np.ndarray, pairing: Pairing = PAIRING) -> bool:
    """Whether the circle lies between start and hole such that the paths on both sides are of similar length."""
    params = SETTINGS[setting]
    centre = np.array([_circles(params)[0].x, _circles(params)[0].y])
    beyond = np.dot(start - centre, params.hole - centre) < 0
    if not beyond or np.linalg.norm(start - centre) > pairing.nearby:
        return False
    ways = []
    for side in SIDES:
        planner = _planner(setting, side)
        if _margin(planner.constraints, start) < planner.care.clearance:
            return False
        ways.append(float(_way(planner.route, start)))
    return max(ways) <= pairing.detour * min(ways)


def replay(setting: str, planned: PlannedStart, actions: np.ndarray) -> Episode:
    """Play a plan in the environment."""
    params = SETTINGS[setting]
    episode = _played(_player_of(setting), MarbleMaze(params).initial_at(planned.start), actions)
    if planned.side is not None:
        path = episode.observations[:, :2] * REACH
        side = passing_side(path, _circles(params)[0], params.hole)
        assert side == planned.side, "a plan passes on the side it was given"
    return episode


def _played(play: Callable[..., Any], first: MarbleState, actions: np.ndarray) -> Episode:
    """The episode of a plan."""
    steps = len(actions)
    padded = np.zeros(Care.max_steps, np.int32)  # a fixed length avoids recompilation
    padded[:steps] = actions
    begin, observations, rewards, terminated, costs = map(np.asarray, jax.device_get(play(first, padded)))
    assert terminated.argmax() == steps - 1, "a plan ends when the ball falls"
    assert not costs[:steps].any(), "a plan violates no rule after its start"
    return Episode(
        observations=np.vstack([begin, observations[:steps]]),
        actions=actions,
        rewards=rewards[:steps],
        start=np.asarray(first.position),
    )


@cache
def _player_of(setting: str) -> Callable[..., Any]:
    return _player(SETTINGS[setting])


def _player(params: MarbleParams) -> Callable[..., Any]:
    """A function that plays a whole episode in the compiled environment."""
    compiled = CompiledEnv(MarbleMaze(params))

    def play(inner: MarbleState, actions: Int[Array, " T"]):
        k_begin, k_steps = jax.random.split(jax.random.key(0))  # unused: the tray is deterministic
        state = compiled.begin(inner, k_begin)

        def move(state: EnvState, given: tuple[Array, Array]):
            state, seen = compiled.advance(state, *given)
            cost = compiled.env.state_info(state.inner, params)["cost"]
            return state, (state.obs, seen.reward, seen.terminated, cost)

        return state.obs, *jax.lax.scan(move, state, (actions, jax.random.split(k_steps, len(actions))))[1]

    return jax.jit(play)


def _env_starts(params: MarbleParams, seed: int) -> Iterator[np.ndarray]:
    draw = jax.jit(MarbleMaze(params).initial)
    key = jax.random.key(seed)
    while True:
        key, k_start = jax.random.split(key)
        yield np.asarray(draw(k_start).position)


def _rim_starts(params: MarbleParams, seed: int, count: int) -> list[np.ndarray]:
    """Starts just inside `count` different circles, and outside all other constraints."""
    rng = np.random.default_rng(seed)
    circles = _circles(params)
    starts = []
    for index in rng.permutation(len(circles))[:count]:
        circle, others = circles[index], tuple(c for c in params.constraints if c is not circles[index])
        while True:
            angle, radius = rng.uniform(0, 2 * np.pi), circle.radius - RIM_DEPTH
            start = np.array([circle.x + radius * np.cos(angle), circle.y + radius * np.sin(angle)], np.float32)
            if _margin(others, start) > 2 * RIM_DEPTH:
                starts.append(start)
                break
    return starts


def _circles(params: MarbleParams) -> list[Circle]:
    return [c for c in params.constraints if isinstance(c, Circle)]


_margin = jax.jit(min_margin)
_way = jax.jit(lambda route, position: look_up(route.distance, position))


@cache
def _planner(setting: str, side: str | None) -> TrayPlanner:
    return make_planner(SETTINGS[setting], RECIPES[setting].care, closing(setting, side))


def closing(setting: str, side: str | None) -> tuple[Wedge, ...]:
    """The planner's extra constraint that leaves only `side` of the first circle open. Empty if `side` is None."""
    params = SETTINGS[setting]
    return () if side is None else (closed_to(side, _circles(params)[0], params.hole),)
