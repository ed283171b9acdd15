"""Any Gymnasium environment behind the calls of a compiled one.

A training loop is one compiled program; here it calls back to Python for every step of its environments, in order.
The policy that acts is always the newest, and no second loop exists. What the environment does wrong is held until
the program is done, since an exception inside it would take the training state along.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.experimental.functional import FuncEnv
from gymnasium.vector import VectorEnv
from jax.experimental import io_callback
from jaxtyping import Array, Int

from scopil.envs.functional import BatchEnv, CompiledEnv, EnvState, find_compiled, make_env
from scopil.envs.host_vector import Copies, Flat, Group, Vector
from scopil.errors import EnvError
from scopil.types import PRNGKey, Transition

Foreign = gym.Env | VectorEnv
LANES = 10  # games played side by side
AnyEnv = str | EnvSpec | FuncEnv | gym.Env | VectorEnv | BatchEnv | Callable[[], Foreign]


def open_env(env: Any) -> BatchEnv:
    """The environment to train on: compiled where it is written in JAX, on the host where not.

    An id, a spec, an environment (its wrappers are kept), a vector environment, or a function that makes one.
    """
    if isinstance(env, CompiledEnv | HostEnv):
        return env
    if isinstance(env, FuncEnv):
        return CompiledEnv(env)
    again: Any = None  # a function that makes another one
    if isinstance(env, str | EnvSpec):
        again = partial(make_env, env)
    elif isinstance(env, gym.Env):
        again = None if env.spec is None else partial(_copy, env)
    elif not isinstance(env, VectorEnv):
        if not callable(env):
            raise EnvError(
                f"{type(env).__name__} is no environment; want a Gymnasium id, an environment, or a function that "
                f"makes one."
            )
        again = env
    first = env if isinstance(env, gym.Env | VectorEnv) else again()
    if not isinstance(first, gym.Env | VectorEnv):
        raise EnvError(f"{env} made a {type(first).__name__}; want a gymnasium.Env or VectorEnv.")
    return find_compiled(first) or HostEnv(first, again, ours=first is not env)


class HostEnv(BatchEnv):
    """Foreign environments, in as many copies as asked for. Only what is in an `EnvState` can be saved: the inner
    state of a foreign environment cannot, so that a state that was loaded is `stale` and has to begin anew."""

    def __init__(self, first: Foreign, again: Callable[[], Foreign] | None = None, ours: bool = False):
        self.name = str(getattr(first.spec, "id", None) or first)
        self._vector = isinstance(first, VectorEnv)
        if isinstance(first, VectorEnv):
            spaces = first.single_observation_space, first.single_action_space
        else:
            spaces = first.observation_space, first.action_space
        self.flat = Flat(self.name, *spaces)
        self.observation_space, self.action_space = self.flat.observation, self.flat.action
        self.time_limit: int | None = getattr(first.spec, "max_episode_steps", None)
        self._size = first.num_envs if isinstance(first, VectorEnv) else 1  # of what was given
        self._spare: Foreign | None = first  # nobody steps it yet
        self._again = again
        self._ours: list[Foreign] = [first] if ours else []  # to close
        self._training: dict[int, Group] = {}
        self._playing: dict[int, Group] = {}
        self._tickets: dict[int, int] = {}  # the newest reset of each training group: other states are stale
        self._issued = 0
        self._fault: BaseException | None = None

    @property
    def num_envs(self) -> int | None:
        """How many environments there are to step together; None when it can be any number."""
        return self._size if self._vector or self._again is None else None

    # --- inside compiled programs ---------------------------------------------------------------------------------

    def reset_batch(self, key: PRNGKey, num_envs: int) -> EnvState:
        self._group(num_envs)  # what cannot be had is refused before anything is compiled
        shapes = (_like((), jnp.int32), _like((num_envs, self.flat.size)))
        ticket, obs = io_callback(partial(self._reset, shapes), shapes, _seeds(key, num_envs), ordered=True)
        return EnvState(ticket, obs, jnp.zeros(num_envs, jnp.int32))

    def step_batch(
        self, state: EnvState, action: Array, key: PRNGKey
    ) -> tuple[EnvState, Transition, EnvState]:
        """`key` seeds the episodes that begin."""
        n = state.steps.shape[0]
        row, number, flag = _like((n, self.flat.size)), _like((n,)), _like((n,), jnp.bool)
        shapes = (row, number, flag, flag, row)
        # One array crosses over: each costs as much as a small environment's step.
        sent = jnp.concatenate([state.inner[None], _seeds(key, n), _bits(action).reshape(-1)])
        crossed = partial(self._step, shapes, n, action.shape, np.dtype(action.dtype))
        next_obs, reward, terminated, truncated, obs = io_callback(crossed, shapes, sent, ordered=True)
        transition = Transition(state.obs, action, reward, next_obs, terminated, truncated & ~terminated)
        steps = state.steps + 1
        later = jnp.where(terminated | truncated, 0, steps)
        return EnvState(state.inner, obs, later), transition, EnvState(state.inner, next_obs, steps)

    def advance_batch(self, state: EnvState, action: Array, key: PRNGKey) -> tuple[EnvState, Transition]:
        later, transition, _ = self.step_batch(state, action, key)
        return later, transition

    # --- the host's side ------------------------------------------------------------------------------------------

    def _reset(self, shapes: Any, seeds: Any) -> Any:
        def begin() -> Any:
            n = len(seeds)
            obs, _ = self._group(n).reset(np.asarray(seeds))
            return np.int32(self._take(n)), obs

        return self._held(begin, shapes)

    def _step(self, shapes: Any, n: int, shape: tuple[int, ...], dtype: np.dtype, sent: Any) -> Any:
        def step() -> Any:
            ticket, seeds, action = np.split(np.asarray(sent), (1, n + 1))
            if ticket[0] != self._tickets.get(n):
                raise EnvError(f"{self.name} was reset by somebody else while it was stepped.")
            return self._group(n).step(action.view(dtype).reshape(shape), seeds)[:5]

        return self._held(step, shapes)

    def _held(self, call: Callable[[], Any], shapes: Any) -> Any:
        """What `call` returns. After a fault only zeros come, until `refuse_faults` has told of it."""
        if self._fault is None:
            try:
                return call()
            except BaseException as error:  # Ctrl-C too may land here
                self._fault = error
        return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)

    def _take(self, num_envs: int) -> int:
        self._issued += 1
        self._tickets[num_envs] = self._issued
        return self._issued

    def refuse_faults(self) -> None:
        fault, self._fault = self._fault, None
        if fault is not None:
            self._tickets.clear()
            raise fault

    def stale(self, state: EnvState) -> bool:
        return int(state.inner) != self._tickets.get(state.steps.shape[0])

    # --- who has which environments -------------------------------------------------------------------------------

    def _group(self, num_envs: int) -> Group:
        """The environments to train on: the one that was given is among the first of them."""
        if num_envs not in self._training:
            self._training[num_envs] = self._make(num_envs)
        return self._training[num_envs]

    def players(self, games: int) -> Group:
        """Environments to play games on, apart from those of the training. Where no other can be had, these are lent
        and their episodes begin anew afterwards."""
        n = self._size if self._vector else min(games, LANES)
        if n in self._playing:
            return self._playing[n]
        if self._again is not None:
            spare, self._spare = self._spare, None  # it is the training's
            try:
                return self._playing.setdefault(n, self._make(n))
            except NoCopyError:
                self._again = None
            finally:
                self._spare = spare
        self._tickets.pop(self._size, None)
        return self._group(self._size)

    def _make(self, num_envs: int) -> Group:
        if self.num_envs not in (None, num_envs):
            raise EnvError(
                f"num_envs = {num_envs}, but {self.name} is {self.num_envs} and cannot be multiplied: set "
                f"num_envs={self.num_envs}, or give an id or a function that makes one environment."
            )
        envs: list[Any] = [self._next() for _ in range(1 if self._vector else num_envs)]
        return Vector(self.flat, envs[0]) if self._vector else Copies(self.flat, envs)

    def _next(self) -> Foreign:
        env, self._spare = self._spare, None
        if env is None:
            if self._again is None:
                raise NoCopyError(f"{self.name} cannot be copied; give an id or a function that makes one.")
            env = self._again()
            self._ours.append(env)
        return env

    def flatten(self, observation: Any) -> np.ndarray:
        raw = self.flat.raw
        if isinstance(raw, gym.spaces.Box):
            rows = np.asarray(observation, np.float32)
            rest = rows.ndim - len(raw.shape)
            return rows.reshape((*rows.shape[:rest], -1)) if rows.shape[rest:] == raw.shape else rows
        flat = isinstance(observation, np.ndarray) and observation.shape[-1:] == (self.flat.size,)
        return np.asarray(observation if flat else gym.spaces.flatten(raw, observation), np.float32)

    def close(self) -> None:
        """Close what was made here. Whatever is wanted later is made again."""
        for env in self._ours:
            env.close()
        self._ours.clear()
        if self._again is not None:
            self._spare = None
            self._training.clear()
        self._playing.clear()
        self._tickets.clear()


class NoCopyError(EnvError):
    """There is one environment and no way to a second."""


def _copy(env: gym.Env) -> gym.Env:
    """Another one like `env`, its wrappers included."""
    way_out = "give a function that makes one, or use num_envs=1"
    try:
        made = gym.make(env.spec)  # pyright: ignore[reportArgumentType]
    except Exception as error:
        raise NoCopyError(f"{env} cannot be copied ({error}); {way_out}.") from error
    if str(made) != str(env):
        raise NoCopyError(f"{env} cannot be copied: its spec makes {made}; {way_out}.")
    return made


def _like(shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def _bits(action: Array) -> Int[Array, "..."]:
    assert action.dtype in (jnp.int32, jnp.float32), action.dtype
    return jax.lax.bitcast_convert_type(action, jnp.int32)


def _seeds(key: PRNGKey, count: int) -> Int[Array, " N"]:
    """31 bits each: what every generator takes."""
    return (jax.random.bits(key, (count,), jnp.uint32) >> 1).astype(jnp.int32)
