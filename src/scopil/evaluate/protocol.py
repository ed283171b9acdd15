"""The paper's protocol: games from demonstrated ("train") or fresh ("test") starts, greedy or sampled."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Array

from scopil.algos.base import Algorithm
from scopil.demos import store
from scopil.demos.dataset import Demonstrations
from scopil.envs.functional import BatchEnv, CompiledEnv, EnvState
from scopil.envs.host import PARALLEL_EPISODES as LANES
from scopil.envs.host import HostEnv
from scopil.errors import ConfigError, DatasetError, EnvError
from scopil.evaluate.games import Game, HostPlayer, Player, Seeds, first_states
from scopil.types import PRNGKey

Mode = Literal["greedy", "sampled"]
TEST_SEED = 20_250_709  # fresh starts are drawn from this seed alone: no run trains from it
WATCH_SEED = (
    20_250_710  # of games watched while a foreign environment is trained on: not the ones it is judged by
)
GAMES = 40
Starts = EnvState | Seeds
Play = Callable[[Any, Any, PRNGKey], list[Game]]  # (learner, starts, key) → games


@lru_cache(maxsize=16)
def player(env: BatchEnv, algorithm: Algorithm, mode: Mode) -> Play:
    """A compiled player whose parameters are the learner's state; the same one for the same environment."""

    def act(learner: Any, obs: Array, key: PRNGKey) -> Array:
        pi = algorithm.policy(learner, obs)
        return pi.mode() if mode == "greedy" else pi.sample(key)

    return HostPlayer(env, act) if isinstance(env, HostEnv) else Player(_compiled(env), act)


def train_starts(env: BatchEnv, demos: Demonstrations) -> EnvState:
    """The demonstrated initial states."""
    if isinstance(env, HostEnv):
        raise DatasetError(
            f"{env.name} cannot be put at a demonstrated start; play fresh games: --starts test."
        )
    if demos.starts is None:
        raise DatasetError(
            f"{demos.name} does not record its starts; evaluate from fresh ones: --starts test."
        )
    return first_states(_compiled(env), demos.starts)


def _compiled(env: BatchEnv) -> CompiledEnv:
    assert isinstance(env, CompiledEnv), env
    return env


def fresh_starts(env: BatchEnv, games: int = GAMES, seed: int = TEST_SEED) -> Starts:
    """Fresh initial states, the same for everybody."""
    if isinstance(env, HostEnv):
        return Seeds(np.random.default_rng(seed).integers(2**31, size=games))
    return env.reset_batch(jax.random.key(seed), games)


def starts_from(which: str, env: BatchEnv, demos: Demonstrations | None, games: int | None = None) -> Starts:
    """`train`, `test`, or a file: a demonstration set or a `.npy` array of starts. More games than starts cycle
    through them."""
    if games is not None and games < 1:
        raise ConfigError(f"{games} games; want at least 1.")
    if which == "test":
        return fresh_starts(env, games or GAMES)
    if isinstance(env, HostEnv) and which != "train":
        raise EnvError(f"{env.name} cannot be put at a start from {which}; play fresh games: --starts test.")
    if which == "train":
        if demos is None:
            raise DatasetError(
                "there are no demonstrations to take train starts from: name a file, or use test."
            )
        first = train_starts(env, demos)
    elif which.endswith(".npy"):
        first = first_states(_compiled(env), _read_starts(Path(which)))
    else:
        first = train_starts(env, store.load_demos(which))
    if games is None:
        return first
    index = np.arange(games) % len(first.steps)
    return jax.tree.map(lambda leaf: leaf[index], first)


def usual_starts(env: BatchEnv, demos: Demonstrations | None) -> str:
    """`train` where there are demonstrated starts to play from, `test` elsewhere."""
    return "test" if isinstance(env, HostEnv) or demos is None or demos.starts is None else "train"


def watched_starts(env: BatchEnv, demos: Demonstrations | None) -> Starts:
    """Where a run under training is played from. On the host games cost time, so they are few."""
    if isinstance(env, HostEnv):
        return fresh_starts(env, LANES, WATCH_SEED)
    if demos is None or demos.starts is None:
        return fresh_starts(env)
    return train_starts(env, demos)


def demos_for(env_id: str | None) -> Demonstrations | None:
    """The shipped set for an environment: what its "train starts" are when a run used no demonstrations."""
    from scopil.envs.registration import IDS

    for setting, known in IDS.items():
        if known == env_id:
            shipped = store.library().get(f"marble-maze/{setting}-v1")
            return None if shipped is None else store.read(shipped)
    return None


def _read_starts(path: Path) -> np.ndarray:
    try:
        starts = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise EnvError(f"cannot read starts from {path}: {error}.") from error
    if not isinstance(starts, np.ndarray) or starts.dtype.kind not in "iuf":
        raise EnvError(f"{path}: not an array of numbers; want one of shape (games, coordinates).")
    if starts.ndim != 2 or not len(starts):
        raise EnvError(f"{path}: array of shape {starts.shape}; want (games, coordinates).")
    return starts
