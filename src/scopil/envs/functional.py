"""Compiled environments: a Gymnasium `FuncEnv` stepped in batches, with its clock and an autoreset that keeps
the last observation.

Gymnasium's own `FunctionalJaxVectorEnv` loses the other environments' transitions when one resets, so stepping
is done here.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.envs.functional_jax_env import FunctionalJaxEnv
from gymnasium.envs.registration import EnvSpec
from gymnasium.experimental.functional import FuncEnv
from gymnasium.vector import VectorEnv
from jaxtyping import Array, Bool, Int

from scopil.envs.host_vector import counted
from scopil.errors import EnvError
from scopil.types import PRNGKey, Transition

RESETS_AT_ONCE = 16
ENDLESS = 10_000  # steps after which a game without a time limit is called off


class EnvState(NamedTuple):
    """One environment between two steps (or a batch of them, with a leading axis)."""

    inner: Any  # the FuncEnv's own state
    obs: Array
    steps: Int[Array, "..."]  # steps played in this episode


class BatchEnv(ABC):
    """What a training loop steps: a `CompiledEnv`, or a `HostEnv` for what is not written in JAX."""

    observation_space: gym.Space  # one row of numbers: what a learner sees
    action_space: gym.Space
    time_limit: int | None  # of one episode, in steps

    @property
    def horizon(self) -> int:
        """No game that is watched is longer than this."""
        return self.time_limit or ENDLESS

    @abstractmethod
    def reset_batch(self, key: PRNGKey, num_envs: int) -> EnvState: ...

    @abstractmethod
    def step_batch(
        self, state: EnvState, action: Array, key: PRNGKey
    ) -> tuple[EnvState, Transition, EnvState]:
        """Step a batch and begin a new episode where one ended.

        Returns the states to act from next, the transitions (whose `next_obs` is the true successor), and the
        states before any reset."""

    @abstractmethod
    def advance_batch(self, state: EnvState, action: Array, key: PRNGKey) -> tuple[EnvState, Transition]:
        """One step of each, for games that nobody looks at any more once they have ended."""

    @abstractmethod
    def refuse_faults(self) -> None:
        """Raise what went wrong in the compiled program that has just ended."""

    @abstractmethod
    def stale(self, state: EnvState) -> bool:
        """Whether training cannot go on from `state` and has to begin new episodes."""

    @abstractmethod
    def flatten(self, observation: Any) -> np.ndarray:
        """An observation, or a batch of them, as a learner sees it."""

    @abstractmethod
    def close(self) -> None: ...


class CompiledEnv(BatchEnv):
    """A `FuncEnv`, its params and its time limit behind pure functions that can be jitted, vmapped and scanned.

    `max_episode_steps` truncates from outside; a FuncEnv that keeps its own clock says so with a method
    `truncation(state, params)`.
    """

    def __init__(self, env: FuncEnv, params: Any = None, max_episode_steps: int | None = None):
        self.action_space = counted(env.action_space)
        if getattr(self.action_space, "start", 0) != 0:
            raise EnvError(
                f"{type(env).__name__}: action space {env.action_space}; want actions counted from 0."
            )
        self.env = env
        self.params = env.get_default_params() if params is None else params
        self._told = () if self.params is None else (self.params,)  # some FuncEnvs without any take none
        self.max_episode_steps = max_episode_steps
        self.time_limit = max_episode_steps or getattr(self.params, "max_steps", None)
        self.observation_space = env.observation_space

    def given(self, action: Array) -> Array:
        """A learner's action in the form that the environment takes."""
        known = self.env.action_space
        return action if self.action_space is known else action.reshape(known.shape)  # pyright: ignore[reportCallIssue, reportArgumentType]

    def reset(self, key: PRNGKey) -> EnvState:
        k_state, k_obs = jax.random.split(key)
        return self.begin(self.env.initial(k_state, *self._told), k_obs)

    def begin(self, inner: Any, key: PRNGKey) -> EnvState:
        """An episode that starts from a given inner state."""
        return EnvState(inner, self._observe(inner, key), jnp.int32(0))

    def _observe(self, inner: Any, key: PRNGKey) -> Array:
        return jnp.asarray(self.env.observation(inner, key, *self._told), jnp.float32)

    def advance(self, state: EnvState, action: Array, key: PRNGKey) -> tuple[EnvState, Transition]:
        """One step of one environment, without autoreset."""
        k_move, k_obs, k_reward, k_end = jax.random.split(key, 4)
        env, played = self.env, self.given(action)
        inner = env.transition(state.inner, played, k_move, *self._told)
        kept = jax.tree.map(_shaped_like, inner, state.inner)
        after = EnvState(kept, self._observe(inner, k_obs), state.steps + 1)
        reward = jnp.asarray(env.reward(state.inner, played, inner, k_reward, *self._told), jnp.float32)
        terminated = jnp.asarray(env.terminal(inner, k_end, *self._told), bool)
        truncated = self._out_of_time(after) & ~terminated
        return after, Transition(state.obs, action, reward, after.obs, terminated, truncated)

    def _out_of_time(self, state: EnvState) -> Bool[Array, ""]:
        own_clock = getattr(self.env, "truncation", None)
        late = jnp.array(False) if own_clock is None else own_clock(state.inner, self.params)
        if self.max_episode_steps is not None:
            late = late | (state.steps >= self.max_episode_steps)
        return late

    def refuse_faults(self) -> None:
        """There are none: what a FuncEnv does wrong shows in its numbers."""

    def stale(self, state: EnvState) -> bool:
        return False

    def flatten(self, observation: Any) -> np.ndarray:
        return np.asarray(observation, np.float32)

    def close(self) -> None:
        """There is nothing to close."""

    def reset_batch(self, key: PRNGKey, num_envs: int) -> EnvState:
        return jax.vmap(self.reset)(jax.random.split(key, num_envs))

    def advance_batch(self, state: EnvState, action: Array, key: PRNGKey) -> tuple[EnvState, Transition]:
        return jax.vmap(self.advance)(state, action, jax.random.split(key, state.steps.shape[0]))

    def step_batch(
        self, state: EnvState, action: Array, key: PRNGKey
    ) -> tuple[EnvState, Transition, EnvState]:
        # Ended episodes are restarted a handful at a time: on most steps few or none end, and drawing an initial
        # state for every environment would cost more than the physics.
        num_envs = state.steps.shape[0]
        k_step, k_reset = jax.random.split(key)
        after, transition = self.advance_batch(state, action, k_step)

        def restart_some(carry):
            state, ended, key = carry
            key, k_fresh = jax.random.split(key)
            count = min(num_envs, RESETS_AT_ONCE)
            which = jnp.nonzero(ended, size=count, fill_value=num_envs)[
                0
            ]  # the fill is out of range: dropped
            fresh = self.reset_batch(k_fresh, count)
            state = jax.tree.map(lambda old, new: old.at[which].set(new, mode="drop"), state, fresh)
            return state, ended.at[which].set(False, mode="drop"), key

        ended = transition.terminated | transition.truncated
        state, _, _ = jax.lax.while_loop(lambda c: c[1].any(), restart_some, (after, ended, k_reset))
        return state, transition, after


def _shaped_like(new: Array, old: Array) -> Array:
    """CliffWalking's states change their form with the first step; a compiled loop needs one form."""
    return new if jnp.shape(new) == jnp.shape(old) else jnp.reshape(new, jnp.shape(old))


def compile_env(env: str | FuncEnv | gym.Env | CompiledEnv) -> CompiledEnv:
    """The compiled form of an id, a FuncEnv or the Gymnasium env of one; anything else is refused."""
    if isinstance(env, CompiledEnv):
        return env
    if isinstance(env, FuncEnv):
        return CompiledEnv(env)
    if isinstance(env, str):
        env = make_env(env)
    if (compiled := find_compiled(env)) is not None:
        return compiled
    if (lost := _foreign_wrapper(env)) is not None:
        raise EnvError(
            f"{lost} around {env.unwrapped} would be lost by compiled stepping: want the bare environment; put what "
            f"the wrapper does into its FuncEnv."
        )
    raise EnvError(
        f"{env.unwrapped} is not written in JAX: want a gymnasium FuncEnv, the Gymnasium env of one, or an id of such "
        f"an env (for example 'scopil/MarbleMaze-Simple-v0' or 'phys2d/CartPole-v1')."
    )


def make_env(env: str | EnvSpec) -> gym.Env:
    try:
        return gym.make(env)
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        raise EnvError(
            f"environment {str(getattr(env, 'id', env))!r}: {error}. Gymnasium's kinds of environments are extras: "
            f'pip install "scopil[phys2d]" (phys2d/…, tabular/…), "scopil[box2d]" or "scopil[mujoco]".'
        ) from error
    except gym.error.Error as error:
        raise EnvError(f"environment {str(getattr(env, 'id', env))!r}: {error}") from error


def id_of(env: Any) -> str | None:
    """The id that makes such an environment again, if there is one: wrappers and options have none."""
    if isinstance(env, str):
        return env
    spec = getattr(env, "spec", None)
    if spec is None or spec.id not in gym.registry or _foreign_wrapper(env) is not None:
        return None
    usual = gym.spec(spec.id)
    options = {k: v for k, v in spec.kwargs.items() if k != "render_mode"}
    same = options == usual.kwargs and spec.max_episode_steps == usual.max_episode_steps
    return spec.id if same else None


def find_compiled(env: gym.Env | VectorEnv) -> CompiledEnv | None:
    """The FuncEnv inside a Gymnasium env, compiled; None when there is none, or a wrapper would be lost."""
    inner, limit = env.unwrapped, getattr(env.spec, "max_episode_steps", None)
    if _foreign_wrapper(env) is not None:
        return None
    if isinstance(compiled := getattr(inner, "compiled", None), CompiledEnv):
        if limit is None or compiled.max_episode_steps is not None:
            return compiled  # one object an id: whatever is compiled for it is compiled once
        return CompiledEnv(compiled.env, compiled.params, limit)
    if isinstance(inner, FunctionalJaxEnv):
        return CompiledEnv(inner.func_env, max_episode_steps=limit)
    return None


def _foreign_wrapper(env: gym.Env | VectorEnv) -> str | None:
    """Compiled stepping goes past wrappers. Those of `gym.make` have their counterpart here; others would be lost."""
    known = (gym.wrappers.PassiveEnvChecker, gym.wrappers.OrderEnforcing, gym.wrappers.TimeLimit)
    while env is not env.unwrapped:
        if not isinstance(env, known):
            return type(env).__name__
        env = env.env  # pyright: ignore[reportAttributeAccessIssue]
    return None
