"""The three Marble Maze sets: where games start, which way they go, and the files that are shipped.

`python -m scopil.studies.marble_maze.generate` rewrites the shipped sets and their cards; needed when the geometry changes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int

from scopil.demos import store
from scopil.demos.dataset import Demonstrations, Episode
from scopil.envs.functional import CompiledEnv, EnvState
from scopil.envs.registration import IDS
from scopil.errors import ConfigError
from scopil.files import write_atomically
from scopil.studies.marble_maze import SETTINGS, Circle, MarbleMaze
from scopil.studies.marble_maze.constraints import lawful_margin
from scopil.studies.marble_maze.physics import MarbleState
from scopil.studies.marble_maze.planner import Care, Player, make_player, plan
from scopil.studies.marble_maze.route import look_up
from scopil.studies.marble_maze.set_card import card
from scopil.studies.marble_maze.settings import MarbleParams
from scopil.studies.marble_maze.sides import SIDES, closed_to, passing_side

Progress = Callable[[int, int], None]  # games done, games wanted

RIM_DEPTH = 0.3  # px inside a circle for an unlawful start; one step from rest moves 0.52 px or more
NEARBY = 170.0  # px from the circle's centre to a paired start: from further away its sides are no choice yet
DETOUR = 1.4  # a start is paired when its longer way round is at most this many times its shorter one


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One shipped set. The speeds were set so that games take as long as the paper's people took."""

    care: Care
    seed: int  # of the shipped set
    unlawful: int  # games that start just inside a circle
    paired: bool = False  # from each start one game on either side of the first circle


RECIPES = {
    "simple": Recipe(care=Care(clearance=15.0, speed=2.8, comfort=22.0), seed=0, unlawful=1),
    "multiple": Recipe(care=Care(clearance=9.0, speed=1.8, comfort=18.0), seed=0, unlawful=2),
    "two-modes": Recipe(care=Care(clearance=15.0, speed=2.2, comfort=22.0), seed=0, unlawful=1, paired=True),
}


class Game(NamedTuple):
    """A game to be played: from where, and round the circle on which side (None: as it comes)."""

    start: np.ndarray
    side: str | None = None


def generate(setting: str, seed: int, games: int = 40, progress: Progress | None = None) -> Demonstrations:
    """`games` careful games of a setting ("simple", "multiple" or "two-modes"), the same for the same seed."""
    if setting not in RECIPES:
        raise ConfigError(f"no setting {setting!r} to generate; want one of {', '.join(RECIPES)}.")
    if games < 1:
        raise ConfigError(f"{games} games; want at least 1.")
    recipe, params = RECIPES[setting], SETTINGS[setting]
    episodes, wanted = [], draw_games(setting, seed, games)
    for game in wanted:
        actions = plan(_player(setting, game.side), MarbleMaze(params).initial_at(game.start))
        episodes.append(replay(setting, game, actions))
        if progress is not None:
            progress(len(episodes), games)
    about = {
        "setting": setting,
        "seed": seed,
        "player": "scopil.studies.marble_maze.planner, a beam search on the true simulator",
        "planner": recipe.care.about(),
        "unlawful_starts": [i for i, g in enumerate(wanted) if _margin(params.constraints, g.start) < 0],
    }
    if recipe.paired:
        about["pairs_of_games"] = [[i, i + 1] for i, g in enumerate(wanted) if g.side == SIDES[0]]
        about["paired_starts"] = {"nearby": NEARBY, "detour": DETOUR}
    return Demonstrations(
        episodes=tuple(episodes),
        observation_space=MarbleMaze.observation_space,  # pyright: ignore[reportArgumentType]
        action_space=MarbleMaze.action_space,  # pyright: ignore[reportArgumentType]
        name=f"marble-maze/{setting}-v1",
        env_id=IDS[setting],
        about=about,
    )


def draw_games(setting: str, seed: int, games: int) -> list[Game]:
    """The games of a set: ordinary or paired ones from the environment's own starts, then the unlawful ones."""
    recipe, params = RECIPES[setting], SETTINGS[setting]
    unlawful = min(recipe.unlawful, games // 2)
    pairs, singles = divmod(games - unlawful, 2) if recipe.paired else (0, games - unlawful)
    starts = _env_starts(params, seed)
    wanted = []
    while len(wanted) < 2 * pairs:
        start = next(starts)
        if goes_both_ways(setting, start):
            wanted += [Game(start, side) for side in SIDES]
    wanted += [Game(next(starts)) for _ in range(singles)]
    return wanted + [Game(start) for start in _rim_starts(params, seed, unlawful)]


def goes_both_ways(setting: str, start: np.ndarray) -> bool:
    """Whether the circle lies between start and hole, so that a person might pass it on either side."""
    params = SETTINGS[setting]
    centre = np.array([_circles(params)[0].x, _circles(params)[0].y])
    beyond = np.dot(start - centre, params.hole - centre) < 0
    if not beyond or np.linalg.norm(start - centre) > NEARBY:
        return False
    ways = []
    for side in SIDES:
        player = _player(setting, side)
        if _margin(player.laws, start) < player.care.clearance:
            return False
        ways.append(float(_way(player.route, start)))
    return max(ways) <= DETOUR * min(ways)


def replay(setting: str, game: Game, actions: np.ndarray) -> Episode:
    """Play a plan through the environment and write down what a recorder would."""
    params, steps = SETTINGS[setting], len(actions)
    padded = np.zeros(RECIPES[setting].care.max_steps, np.int32)  # one length, one compilation
    padded[:steps] = actions
    seen = _play(params)(MarbleMaze(params).initial_at(game.start), padded)
    first, observations, rewards, terminated, positions, costs = (np.asarray(x) for x in jax.device_get(seen))
    assert terminated.argmax() == steps - 1, "a plan ends when the ball falls"
    assert not costs[:steps].any(), "a plan keeps the law after its start"
    path = np.vstack([game.start, positions[:steps]])
    if game.side is not None:
        assert passing_side(path, _circles(params)[0], params.hole) == game.side, (
            "a plan passes on the side it was given"
        )
    return Episode(
        observations=np.vstack([first, observations[:steps]]),
        actions=actions,
        rewards=rewards[:steps],
        terminated=True,
        truncated=False,
        start=game.start,
    )


@cache
def _play(params: MarbleParams):
    """A whole game through the compiled environment, in one piece."""
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
        tell = None if progress is None else lambda done, wanted, s=setting: progress(s, done, wanted)
        demos = generate(setting, recipe.seed, progress=tell)
        path = store.LIBRARY / f"{demos.name}.npz"
        data = store.to_bytes(demos)
        write_atomically(path, data)
        write_atomically(path.with_suffix(".md"), card(demos, data).encode())


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
            start = np.array(
                [circle.x + radius * np.cos(angle), circle.y + radius * np.sin(angle)], np.float32
            )
            if _margin(others, start) > 2 * RIM_DEPTH:
                starts.append(start)
                break
    return starts


def _circles(params: MarbleParams) -> list[Circle]:
    return [c for c in params.constraints if isinstance(c, Circle)]


_margin = jax.jit(lawful_margin)
_way = jax.jit(lambda route, position: look_up(route.distance, position))


@cache
def _player(setting: str, side: str | None) -> Player:
    params = SETTINGS[setting]
    extra = () if side is None else (closed_to(side, _circles(params)[0], params.hole),)
    return make_player(params, RECIPES[setting].care, extra)


if __name__ == "__main__":
    generate_library(lambda setting, done, wanted: print(f"{setting}: {done} of {wanted} games", flush=True))
