"""The three Marble Maze sets: where episodes start, which way they go, and the files that are shipped.

`python -m scopil_bench.marble_maze.generate` rewrites the shipped sets and their cards. That is needed when the
geometry changes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int

from scopil.data import storage
from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.base import EnvState
from scopil.envs.jax_env import CompiledEnv
from scopil.envs.marble_maze import SETTINGS, Circle, MarbleMaze
from scopil.envs.marble_maze.constraints import min_margin
from scopil.envs.marble_maze.physics import MarbleState
from scopil.envs.marble_maze.settings import MarbleParams
from scopil.envs.registration import IDS
from scopil.errors import ConfigError
from scopil.files import write_atomically
from scopil_bench.marble_maze.planner import Care, TrayPlanner, make_planner, plan
from scopil_bench.marble_maze.route import look_up
from scopil_bench.marble_maze.set_card import set_card
from scopil_bench.marble_maze.sides import SIDES, Wedge, closed_to, passing_side

Progress = Callable[[int, int], None]  # episodes done, episodes wanted

RIM_DEPTH = 0.3  # px inside a circle for a violating start; one step from rest moves 0.52 px or more


class Pairing(NamedTuple):
    """Which starts beyond the circle have an episode on either side of it."""

    nearby: float = 170.0  # px from the circle's centre at most: from further away its sides are no choice yet
    detour: float = 1.4  # the longer way round is at most this many times the shorter one


PAIRING = Pairing()  # of the planner's set


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One shipped set. The speeds were set so that episodes take as long as those the paper's people played."""

    care: Care
    seed: int  # of the shipped set
    violating: int  # episodes that start just inside a circle
    paired: bool = False  # from each start one episode on either side of the first circle


RECIPES = {
    "simple": Recipe(care=Care(clearance=15.0, speed=2.8, comfort=22.0), seed=0, violating=1),
    "multiple": Recipe(care=Care(clearance=9.0, speed=1.8, comfort=18.0), seed=0, violating=2),
    "two-modes": Recipe(care=Care(clearance=15.0, speed=2.2, comfort=22.0), seed=0, violating=1, paired=True),
}


class PlannedStart(NamedTuple):
    """Where an episode starts, and on which side it passes the circle (None: on either)."""

    start: np.ndarray
    side: str | None = None


def generate(setting: str, seed: int, episodes: int = 40, progress: Progress | None = None) -> Demonstrations:
    """Careful episodes of a setting ("simple", "multiple" or "two-modes"), the same for the same seed."""
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
        "planner": RECIPES[setting].care.about(),
    }
    return as_set(setting, f"marble-maze/{setting}-v1", starts, made, about)


def check_request(setting: str, episodes: int) -> None:
    if setting not in RECIPES:
        raise ConfigError(f"no setting {setting!r} to generate; want one of {', '.join(RECIPES)}.")
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
    """Episodes from planned starts as a set; `about` is told what follows from the starts."""
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
    """The starts of a set: the environment's own, single or in pairs, then those that violate a rule."""
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
    """Whether the circle lies between start and hole, so that a person might pass it on either side."""
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
    """Play a plan through the environment."""
    params, steps = SETTINGS[setting], len(actions)
    padded = np.zeros(RECIPES[setting].care.max_steps, np.int32)  # one length, one compilation
    padded[:steps] = actions
    seen = _play(params)(MarbleMaze(params).initial_at(planned.start), padded)
    first, observations, rewards, terminated, positions, costs = (np.asarray(x) for x in jax.device_get(seen))
    assert terminated.argmax() == steps - 1, "a plan ends when the ball falls"
    assert not costs[:steps].any(), "a plan violates no rule after its start"
    path = np.vstack([planned.start, positions[:steps]])
    if planned.side is not None:
        assert passing_side(path, _circles(params)[0], params.hole) == planned.side, (
            "a plan passes on the side it was given"
        )
    return Episode(
        observations=np.vstack([first, observations[:steps]]),
        actions=actions,
        rewards=rewards[:steps],
        terminated=True,
        truncated=False,
        start=planned.start,
    )


@cache
def _play(params: MarbleParams):
    """A whole episode through the compiled environment, in one piece."""
    compiled = CompiledEnv(MarbleMaze(params))

    def play(inner: MarbleState, actions: Int[Array, " T"]):
        k_begin, k_steps = jax.random.split(jax.random.key(0))  # the tray is deterministic and spends none
        state = compiled.begin(inner, k_begin)

        def move(state: EnvState, given: tuple[Array, Array]):
            state, seen = compiled.advance(state, *given)
            info = compiled.env.state_info(state.inner, params)
            return state, (state.obs, seen.reward, seen.terminated, info["position"], info["cost"])

        return state.obs, *jax.lax.scan(move, state, (actions, jax.random.split(k_steps, len(actions))))[1]

    return jax.jit(play)


def generate_library(progress: Callable[[str, int, int], None] | None = None) -> None:
    """Rewrite every shipped set and its card."""
    for setting, recipe in RECIPES.items():
        report = None if progress is None else lambda done, wanted, s=setting: progress(s, done, wanted)
        demos = generate(setting, recipe.seed, progress=report)
        path = storage.LIBRARY / f"{demos.name}.npz"
        data = storage.to_bytes(demos)
        write_atomically(path, data)
        write_atomically(path.with_suffix(".md"), set_card(demos, data).encode())


def _env_starts(params: MarbleParams, seed: int) -> Iterator[np.ndarray]:
    draw = jax.jit(MarbleMaze(params).initial)
    key = jax.random.key(seed)
    while True:
        key, k_start = jax.random.split(key)
        yield np.asarray(draw(k_start).position)


def _rim_starts(params: MarbleParams, seed: int, count: int) -> list[np.ndarray]:
    """Starts just inside `count` different circles, clear of everything else."""
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
    """The planner's own constraint that leaves one side of the first circle open; none for None."""
    params = SETTINGS[setting]
    return () if side is None else (closed_to(side, _circles(params)[0], params.hole),)


if __name__ == "__main__":
    generate_library(lambda setting, done, wanted: print(f"{setting}: {done} of {wanted} episodes", flush=True))
