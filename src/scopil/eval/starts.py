"""Starts of evaluation episodes: demonstrated initial states, unseen initial states, or initial states from a file."""

from functools import lru_cache
from pathlib import Path

import jax
import numpy as np

from scopil.config import checked_seed
from scopil.data import storage
from scopil.data.dataset import Demonstrations
from scopil.envs.base import BatchEnv, EnvState, Starts
from scopil.errors import ConfigError, DatasetError, EnvError

UNSEEN_SEED = 20_250_709  # unseen starts are drawn from this seed; no run trains from it
WATCH_SEED = 20_250_710  # unseen starts of evaluations during training; never used to judge a run
EPISODES = 40
MOST = 10**6  # episodes of an evaluation, which are all in memory
FEWEST = 20  # smallest number of episodes per evaluation during training; slow environments play this many


def can_replay(demos: Demonstrations, env: BatchEnv | None) -> bool:
    """Whether the demonstrated actions can be replayed from the demonstrated starts."""
    return demos.starts is not None and env is not None and env.can_start_at


def demonstrated_starts(env: BatchEnv, demos: Demonstrations) -> EnvState:
    """The initial states of the demonstrations."""
    if not env.can_start_at:
        raise DatasetError(f"{env.name} cannot start at a demonstrated state; use unseen starts instead.")
    if demos.starts is None:
        raise DatasetError(f"{demos.name} does not record its starts; use unseen starts instead.")
    return env.starts_at(demos.starts)


def unseen_starts(env: BatchEnv, episodes: int = EPISODES, seed: int = 0) -> Starts:
    """Starts that no run has trained from. They depend on `seed` only, so every policy gets the same starts."""
    return env.random_starts([UNSEEN_SEED, seed] if seed else [UNSEEN_SEED], episodes)


def starts_from(
    which: str | np.ndarray,
    env: BatchEnv,
    demos: Demonstrations | None = None,
    episodes: int | None = None,
    seed: int = 0,
) -> Starts:
    """The starts of an evaluation.

    Args:
        which: `unseen`, `demonstrated`, a file (a demonstration set or a `.npy` array), or an array of starts.
        env: the environment to play in.
        demos: the demonstrations that `demonstrated` refers to.
        episodes: number of starts; by default all given starts, or 40 unseen starts. Given starts are repeated in
            order if there are too few.
        seed: the seed of the unseen starts.
    """
    seed = checked_seed(seed)
    if episodes is not None and not 1 <= episodes <= MOST:
        raise ConfigError(f"{episodes} episodes; want at least 1 and at most {MOST:,}.")
    if isinstance(which, np.ndarray):
        first = env.starts_at(which)
        return first if episodes is None else _cycled(first, episodes)
    if which == "unseen":
        return unseen_starts(env, episodes or EPISODES, seed)
    if which != "demonstrated" and not env.can_start_at:
        raise EnvError(f"starts = {which!r}: {env.name} cannot start at states of a file; use unseen starts instead.")
    if which == "demonstrated":
        if demos is None:
            raise DatasetError("there are no demonstrations to take starts from; use unseen starts or a file.")
        first = demonstrated_starts(env, demos)
    elif which.endswith(".npy"):
        first = env.starts_at(_read_starts(Path(which)))
    else:
        first = demonstrated_starts(env, storage.load_demos(which))
    return first if episodes is None else _cycled(first, episodes)


def _cycled(first: EnvState, episodes: int) -> EnvState:
    index = np.arange(episodes) % len(first.steps)
    return jax.tree.map(lambda leaf: leaf[index], first)


def watched_from(env: BatchEnv, demos: Demonstrations | None) -> str:
    """The kind of starts that evaluations during training use: `demonstrated` if there are enough, else `unseen`."""
    return "demonstrated" if demos is not None and len(demos) >= FEWEST and can_replay(demos, env) else "unseen"


def watched_starts(env: BatchEnv, demos: Demonstrations | None) -> Starts:
    """The starts of evaluations during training."""
    if env.slow:
        return env.random_starts([WATCH_SEED], FEWEST)
    if demos is None or watched_from(env, demos) == "unseen":
        return unseen_starts(env, seed=WATCH_SEED)
    return demonstrated_starts(env, demos)


@lru_cache(maxsize=16)
def demos_for(env_id: str | None, name: str | None = None) -> Demonstrations | None:
    """The shipped set called `name`. Without a name, the environment's set with the shortest name: `simple-v1`,
    not `simple-simulated-v1`. It supplies starts for a policy that was trained without demonstrations."""
    if name is not None:
        return storage.read(shipped) if (shipped := storage.library().get(name)) else None
    if env_id is None:
        return None
    by_length = sorted(storage.library().items(), key=lambda entry: (len(entry[0]), entry[0]))
    shipped = (storage.read(path) for _, path in by_length)
    return next((demos for demos in shipped if demos.env_id == env_id), None)


def _read_starts(path: Path) -> np.ndarray:
    try:
        starts = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise EnvError(f"cannot read starts from {path}: {error}.") from error
    if not isinstance(starts, np.ndarray) or starts.dtype.kind not in "iuf":
        raise EnvError(f"{path}: not an array of numbers; want one of shape (episodes, coordinates).")
    if starts.ndim != 2 or not len(starts):
        raise EnvError(f"{path}: array of shape {starts.shape}; want (episodes, coordinates).")
    return starts
