"""The games that people played, as demonstrations.

A recording `trial_<level>_<time>.csv` has one row per tick: milliseconds, x, y, θ, v, Δθ. The needle points backwards
along θ: its heading is θ + π and its speed −v. Times between touches have no rows; nothing moves then, and the
environment's clock counts rows. One step is five ticks, for which the environment holds one action; `recover_actions`
finds it.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from scopil import compile_cache
from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.jax_env import CompiledEnv
from scopil.envs.naming import with_options
from scopil.errors import DatasetError, refused_as
from scopil.eval.episodes import cut
from scopil_bench.studies.needle_master import compiled
from scopil_bench.studies.needle_master.env import TILE, NeedleMaster, at_level, commanded, in_tissue, tile_of
from scopil_bench.studies.needle_master.geometry import Number
from scopil_bench.studies.needle_master.kinematics import MAX_SPEED, MAX_TURN, TICKS, tick
from scopil_bench.studies.needle_master.levels import WIDTH, LevelArrays

ENV = "scopil/NeedleMaster-v0"
SOURCE = "Needle Master trials of CoSTAR Plan (Paxton, Hundt, Barnoy, Yu; Johns Hopkins University; Apache License 2.0)"
RADIAN = 100.0  # px: an error of one radian in heading counts as this many px in position
ITERATIONS = 8  # of Gauss and Newton's method; it converges in three or four
DAMPING = 1e-3  # px² per unit of action²: keeps a component that has no effect, as a turn that tissue cuts off
ROWS = 512  # of ticks in one compiled call
_FILE = re.compile(r"trial_(\d+)_(\d+)\.csv")


class Recording(NamedTuple):
    """One game, one row per tick, in the environment's frame."""

    level: int
    name: str
    position: Float[np.ndarray, "T 2"]  # before the tick
    heading: Float[np.ndarray, " T"]
    speed: Float[np.ndarray, " T"]
    turn: Float[np.ndarray, " T"]

    @property
    def arrived(self) -> int | None:
        """The first row at the right edge; None if the game ended before."""
        beyond = self.position[:, 0] >= WIDTH
        return int(beyond.argmax()) if beyond.any() else None


def read_recordings(folder: str | Path) -> list[Recording]:
    """The recordings in a folder, by level and time. Raises DatasetError."""
    found = [(int(m[1]), int(m[2]), path) for path in Path(folder).glob("*.csv") if (m := _FILE.fullmatch(path.name))]
    if not found:
        raise DatasetError(f"{folder} has no games; want a folder of Needle Master files such as trial_1_<time>.csv.")
    return [_read(path, level) for level, _, path in sorted(found)]


def _read(path: Path, level: int) -> Recording:
    with refused_as(DatasetError, path):
        rows = np.loadtxt(path, delimiter=",", ndmin=2)
        if rows.shape[1:] != (6,) or len(rows) <= TICKS or not np.isfinite(rows).all():
            raise ValueError(f"a table of shape {rows.shape}; want more than {TICKS} rows of 6 finite numbers")
        _, x, y, angle, velocity, turn = rows.T
        return Recording(level, path.stem, np.stack([x, y], 1), np.unwrap(angle) + np.pi, -velocity, turn)


def tick_errors(recording: Recording, env: NeedleMaster) -> Float[np.ndarray, " N"]:
    """Distances in px between recorded positions and one tick of the environment from the row before."""
    count = len(recording.speed) - 1
    whole = -(-count // ROWS) * ROWS  # repeated rows, so that games of all lengths share a compiled program
    columns = (recording.position, recording.heading, recording.speed, recording.turn)
    rows = (jnp.asarray(np.resize(column[:-1], (whole, *column.shape[1:])), jnp.float32) for column in columns)
    moved = _ticked(env.get_default_params().levels, jnp.int32(_index(env, recording.level)), *rows)
    return np.hypot(*(np.asarray(moved)[:count] - recording.position[1:]).T)


@jax.jit
def _ticked(levels: LevelArrays, level: Array, *rows: Array) -> Float[Array, "N 2"]:
    here = at_level(levels, level)

    def after(position: Array, heading: Number, speed: Number, turn: Number) -> Array:
        return tick(position, heading, speed, turn, in_tissue(here, position))[0]

    return jax.vmap(after)(*rows)


def _index(env: NeedleMaster, number: int) -> int:
    return [level.name for level in env.levels].index(str(number))


@jax.jit
def _fit(levels: LevelArrays, level: Array, begin: Array, poses: Array, guesses: Array) -> Float[Array, "S 2"]:
    """Actions that lead, one after the other, as near as possible to the recorded poses (x, y, heading × RADIAN)."""
    here = at_level(levels, level)

    def moved(action: Array, pose: Array) -> Array:
        speed, turn = commanded(action)

        def advance(_: Any, now: tuple[Array, Array]) -> tuple[Array, Array]:
            return tick(*now, speed, turn, in_tissue(here, now[0]))

        position, heading = jax.lax.fori_loop(0, TICKS, advance, (pose[:2], pose[2] / RADIAN))
        return jnp.append(position, heading * RADIAN)

    def fit(pose: Array, target: tuple[Array, Array]) -> tuple[Array, Array]:
        goal, guess = target

        def improve(_: Any, action: Array) -> Array:
            error, slope = goal - moved(action, pose), jax.jacfwd(moved)(action, pose)
            change = jnp.linalg.solve(slope.T @ slope + DAMPING * jnp.eye(2), slope.T @ error)
            return jnp.clip(action + change, -1.0, 1.0)

        action = jax.lax.fori_loop(0, ITERATIONS, improve, guess)
        return moved(action, pose), action

    return jax.lax.scan(fit, begin, (poses, guesses))[1]


def recover_actions(recordings: Sequence[Recording], env: NeedleMaster) -> list[Float[np.ndarray, "S 2"]]:
    """The actions of each game's steps, up to the right edge. Each step begins where the step before has led
    the environment, so that errors do not add up."""
    ends = [_step_ends(recording) for recording in recordings]
    levels, most, found = env.get_default_params().levels, max(map(len, ends)), []
    for recording, end in zip(recordings, ends):
        poses = np.column_stack([recording.position, recording.heading * RADIAN])
        commands = np.stack([recording.speed / MAX_SPEED, recording.turn / MAX_TURN], 1)
        guesses = np.stack([commands[row - TICKS : row].mean(axis=0) for row in end])
        # Rows after the end make all games equally long, for one compiled program.
        rows = (np.resize(array, (most, array.shape[1])) for array in (poses[end], guesses))
        given = (jnp.asarray(array, jnp.float32) for array in (poses[0], *rows))
        found.append(np.asarray(_fit(levels, jnp.int32(_index(env, recording.level)), *given))[: len(end)])
    return found


def _step_ends(recording: Recording) -> Int[np.ndarray, " S"]:
    """The rows at which steps end. A last step of fewer ticks is played as a slower one of five."""
    last = len(recording.speed) - 1
    steps = -(-(recording.arrived or last) // TICKS)
    return np.minimum(TICKS * np.arange(1, steps + 1), last)


class Games(NamedTuple):
    """Recordings as episodes of the environment, which has played their recovered actions."""

    recordings: list[Recording]
    episodes: list[Episode]
    errors: Float[np.ndarray, " N"]  # px between recorded and replayed positions, at the ends of all steps


def replayed(env: CompiledEnv, recordings: Sequence[Recording]) -> Games:
    inner: Any = env.env
    tiles = [TILE * np.array(tile_of(_index(inner, recording.level))) for recording in recordings]
    starts = np.stack([recording.position[0] + tile for recording, tile in zip(recordings, tiles)])
    actions = recover_actions(recordings, inner)
    played = env.replay(env.starts_at(starts), np.stack([np.resize(each, (env.horizon, 2)) for each in actions]))
    episodes = [replace(cut(episode, len(mine)), start=start) for episode, mine, start in zip(played, actions, starts)]
    errors = []
    for recording, episode, tile in zip(recordings, episodes, tiles):
        true = recording.position[_step_ends(recording)[: len(episode)]]
        away = episode.info["position"][1:] - tile - true
        errors.append(np.hypot(*away[true[:, 0] < WIDTH].T))  # at the edge the environment stops within a step
    return Games(list(recordings), episodes, np.concatenate(errors))


def read_games(data: str | Path, left_out: Collection[int] = (), only: Collection[int] | None = None) -> Games:
    """The games on the levels in `only`, by default on those that are not left out. Games on levels without gates show
    no rules and are not used."""
    env = compiled(str(data), tuple(left_out))
    levels = {int(level.name) for level in env.env.levels}  # pyright: ignore[reportAttributeAccessIssue]
    wanted = levels - set(left_out) if only is None else levels & set(only)
    games = [recording for recording in read_recordings(data) if recording.level in wanted]
    if not games:
        raise DatasetError(f"{data} has no games on levels {sorted(wanted)}; leave out fewer levels.")
    return replayed(env, games)


def demonstrations(data: str | Path, left_out: Collection[int] = ()) -> Demonstrations:
    """The games on the levels that are not left out, as demonstrations for training."""
    compile_cache.use()
    games, env = read_games(data, left_out), compiled(str(data), tuple(left_out))
    options = {"data": str(data)} | ({"left_out": tuple(left_out)} if left_out else {})
    middle, high, most = np.percentile(games.errors, [50, 95, 100])
    return Demonstrations(
        episodes=tuple(replace(episode, info={}) for episode in games.episodes),
        observation_space=env.observation_space,  # pyright: ignore[reportArgumentType]
        action_space=env.action_space,  # pyright: ignore[reportArgumentType]
        name="needle-master/people",
        env_id=with_options(ENV, options),
        about={
            "source": SOURCE,
            "games": [recording.name for recording in games.recordings],
            "replay error": f"median {middle:.2g} px, 95 % {high:.2g}, largest {most:.2g} at the ends of 100 ms steps",
        },
    )
