"""Where episodes start: at the demonstrated initial states, at unseen ones, or at those of a file."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scopil.config import checked_seed
from scopil.data import storage
from scopil.data.dataset import Demonstrations
from scopil.envs.base import BatchEnv, EnvState
from scopil.envs.gym_env import PARALLEL_EPISODES, HostEnv
from scopil.envs.jax_env import CompiledEnv
from scopil.errors import ConfigError, DatasetError, EnvError
from scopil.eval.env_hooks import offer
from scopil.types import PRNGKey

UNSEEN_SEED = 20_250_709  # unseen starts are drawn from this seed alone: no run trains from it
WATCH_SEED = 20_250_710  # of unseen starts during training; never used to judge a run
EPISODES = 40


class Seeds(NamedTuple):
    """Starts of a host environment: the seeds that its episodes are reset with."""

    seeds: np.ndarray


Starts = EnvState | Seeds


def can_start_anywhere(env: BatchEnv | None) -> bool:
    """Whether an environment has an `initial_at`."""
    return isinstance(env, CompiledEnv) and offer(env, "initial_at") is not None


def can_replay(demos: Demonstrations, env: BatchEnv | None) -> bool:
    """Whether the demonstrated actions can be played again from the demonstrated starts."""
    return demos.starts is not None and can_start_anywhere(env)


def states_at(env: BatchEnv, starts: Any) -> EnvState:
    """A batch of initial states at given starts, for environments with an `initial_at`."""
    place = offer(env, "initial_at")
    if place is None or not isinstance(env, CompiledEnv):
        raise EnvError(f"{_name(env)} cannot start at a given state; use unseen starts instead.")
    states = [env.begin(place(s, env.params), jax.random.key(0)) for s in np.asarray(starts)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


def demonstrated_starts(env: BatchEnv, demos: Demonstrations) -> EnvState:
    """The initial states of the demonstrations."""
    if not can_start_anywhere(env):
        raise DatasetError(f"{_name(env)} cannot start at a demonstrated state; use unseen starts instead.")
    if demos.starts is None:
        raise DatasetError(f"{demos.name} does not record its starts; use unseen starts instead.")
    return states_at(env, demos.starts)


def unseen_starts(env: BatchEnv, episodes: int = EPISODES, seed: int = 0) -> Starts:
    """Initial states that no run has trained from. They depend on `seed` alone, so every policy gets the same."""
    if isinstance(env, HostEnv):
        return _seeds([UNSEEN_SEED, seed] if seed else UNSEEN_SEED, episodes)
    key = jax.random.key(UNSEEN_SEED)
    for part in (seed % 2**32, seed >> 32):  # as many bits as a key takes in at a time
        key = jax.random.fold_in(key, np.uint32(part)) if part else key
    return _compiled_reset(env)(key, episodes)


@lru_cache(maxsize=16)
def _compiled_reset(env: BatchEnv) -> Callable[[PRNGKey, int], EnvState]:
    """Outside of a program, a loop in an environment's `initial` would be compiled, and kept, at every call."""
    return jax.jit(env.reset_batch, static_argnums=1)


def starts_from(
    which: str | np.ndarray,
    env: BatchEnv,
    demos: Demonstrations | None = None,
    episodes: int | None = None,
    seed: int = 0,
) -> Starts:
    """The initial states to play from.

    Args:
        which: `unseen`, `demonstrated`, a file (a demonstration set or a `.npy` array of starts), or such an array.
        env: the environment to play in.
        demos: the demonstrations that `demonstrated` refers to.
        episodes: how many; by default one per start, and 40 unseen ones. More episodes than starts cycle through them.
        seed: other unseen starts for every number.
    """
    seed = checked_seed(seed)
    if episodes is not None and episodes < 1:
        raise ConfigError(f"{episodes} episodes; want at least 1.")
    if isinstance(which, np.ndarray):
        first = states_at(env, which)
        return first if episodes is None else _cycled(first, episodes)
    if which == "unseen":
        return unseen_starts(env, episodes or EPISODES, seed)
    if isinstance(env, HostEnv) and which != "demonstrated":
        raise EnvError(
            f"starts = {which!r}: want unseen or demonstrated ones, or a file; {env.name} cannot start at states of a "
            f"file, so use unseen ones."
        )
    if which == "demonstrated":
        if demos is None:
            raise DatasetError("there are no demonstrations to take starts from; use unseen starts or a file.")
        first = demonstrated_starts(env, demos)
    elif which.endswith(".npy"):
        first = states_at(env, _read_starts(Path(which)))
    else:
        first = demonstrated_starts(env, storage.load_demos(which))
    return first if episodes is None else _cycled(first, episodes)


def _cycled(first: EnvState, episodes: int) -> EnvState:
    index = np.arange(episodes) % len(first.steps)
    return jax.tree.map(lambda leaf: leaf[index], first)


def watched_from(env: BatchEnv, demos: Demonstrations | None) -> str:
    """The kind of starts that evaluations during training use: `demonstrated` where possible, else `unseen`."""
    return "demonstrated" if demos is not None and can_replay(demos, env) else "unseen"


def watched_starts(env: BatchEnv, demos: Demonstrations | None) -> Starts:
    """The starts of evaluations during training. Host environments are slow, so there they are few."""
    if isinstance(env, HostEnv):
        return _seeds(WATCH_SEED, PARALLEL_EPISODES)
    if demos is None or not can_replay(demos, env):
        return unseen_starts(env, seed=WATCH_SEED)
    return demonstrated_starts(env, demos)


@lru_cache(maxsize=16)
def demos_for(env_id: str | None, name: str | None = None) -> Demonstrations | None:
    """The shipped set whose starts are the demonstrated ones where no other is at hand: of that name; without a name,
    for what was trained without demonstrations, that of an environment. Of several it is the one with the shortest
    name: `simple-v1`, not `simple-simulated-v1`."""
    if name is not None:
        return storage.read(shipped) if (shipped := storage.library().get(name)) else None
    if env_id is None:
        return None
    by_length = sorted(storage.library().items(), key=lambda entry: (len(entry[0]), entry[0]))
    shipped = (storage.read(path) for _, path in by_length)
    return next((demos for demos in shipped if demos.env_id == env_id), None)


def _seeds(seed: int | list[int], count: int) -> Seeds:
    return Seeds(np.random.default_rng(seed).integers(2**31, size=count))


def _name(env: BatchEnv) -> str:
    return env.name if isinstance(env, HostEnv) else type(getattr(env, "env", env)).__name__


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
