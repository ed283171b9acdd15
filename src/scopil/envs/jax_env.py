"""Compiled environments, which step a Gymnasium `FuncEnv` in batches, and creation of environments by name."""

import inspect
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.envs.functional_jax_env import FunctionalJaxEnv
from gymnasium.envs.registration import EnvSpec
from gymnasium.experimental.functional import FuncEnv
from gymnasium.vector import VectorEnv
from jaxtyping import Array, Bool, Float

from scopil.data.dataset import Episode
from scopil.envs.base import Advance, BatchEnv, EnvState, Mode
from scopil.envs.naming import split_options
from scopil.envs.rollout import act, owned_program, scan_episode, scanned_episodes, time_limit_of
from scopil.envs.spaces import Spaces
from scopil.errors import ConfigError, EnvError
from scopil.types import PRNGKey, Transition
from scopil.user_code import findable, is_file_name, load_module, load_object, split_name

RESETS_AT_ONCE = 16
_WANTED = "--env my_env.py:MyEnv"


class CompiledEnv(BatchEnv):
    """A `FuncEnv` as pure functions that can be jitted, vmapped and scanned.

    Args:
        env: the environment. If it truncates episodes itself, it has a method `truncation(state, params)`.
        params: its parameters, by default `env.get_default_params()`. If this is None, its methods get no parameters.
        max_episode_steps: a time limit in addition to the environment's own limit.
    """

    def __init__(self, env: FuncEnv, params: Any = None, max_episode_steps: int | None = None):
        self.env, self.name = env, type(env).__name__
        self.spaces = Spaces(self.name, env.observation_space, env.action_space, compiled=True)
        self.observation_space, self.action_space = self.spaces.observation, self.spaces.action
        self._players: dict[Mode, Callable[..., Any]] = {}
        self.params = env.get_default_params() if params is None else params
        # The last argument of the environment's methods; empty if it has no parameters.
        self.given_params: tuple[Any, ...] = () if self.params is None else (self.params,)
        self.max_episode_steps = max_episode_steps
        self.time_limit = max_episode_steps or getattr(self.params, "max_steps", None)

    def reset(self, key: PRNGKey, initial: Callable[..., Any] | None = None) -> EnvState:
        k_state, k_obs = jax.random.split(key)
        return self.begin((initial or self.env.initial)(k_state, *self.given_params), k_obs)

    def begin(self, inner: Any, key: PRNGKey) -> EnvState:
        return EnvState(inner, self._observe(inner, key), jnp.int32(0))

    def _observe(self, inner: Any, key: PRNGKey) -> Array:
        return self.spaces.one_hot_in_jax(jnp.asarray(self.env.observation(inner, key, *self.given_params)))

    def advance(self, state: EnvState, action: Array, key: PRNGKey) -> tuple[EnvState, Transition]:
        k_move, k_obs, k_reward, k_end = jax.random.split(key, 4)
        env, played = self.env, self.spaces.to_env_in_jax(action)
        inner = env.transition(state.inner, played, k_move, *self.given_params)
        kept = jax.tree.map(_shaped_like, inner, state.inner)
        after = EnvState(kept, self._observe(inner, k_obs), state.steps + 1)
        reward = jnp.asarray(env.reward(state.inner, played, inner, k_reward, *self.given_params), jnp.float32)
        terminated = jnp.asarray(env.terminal(inner, k_end, *self.given_params), bool)
        truncated = self._out_of_time(after) & ~terminated
        return after, Transition(state.obs, action, reward, after.obs, terminated, truncated)

    def _out_of_time(self, state: EnvState) -> Bool[Array, ""]:
        own_clock = getattr(self.env, "truncation", None)
        late = jnp.array(False) if own_clock is None else own_clock(state.inner, *self.given_params)
        if self.max_episode_steps is not None:
            late = late | (state.steps >= self.max_episode_steps)
        return late

    def attribute(self, name: str) -> Any:
        return getattr(self.env, name, None)

    def random_starts(self, seeds: Sequence[int], episodes: int) -> EnvState:
        first, *others = seeds
        key = jax.random.key(first)
        for seed in others:
            for part in (seed % 2**32, seed >> 32):  # `fold_in` takes 32 bits at a time
                key = jax.random.fold_in(key, np.uint32(part)) if part else key
        return self._compiled_reset(key, episodes)

    @cached_property
    def _compiled_reset(self) -> Callable[[PRNGKey, int], EnvState]:
        # Without `jit`, each call would compile a loop in the environment's `initial` again and keep the program.
        draw = partial(self.reset, initial=self.hook("initial_unseen"))
        return jax.jit(lambda key, episodes: jax.vmap(draw)(jax.random.split(key, episodes)), static_argnums=1)

    @property
    def can_start_at(self) -> bool:
        return self.hook("initial_at") is not None

    def starts_at(self, starts: Any) -> EnvState:
        if not self.can_start_at:
            return super().starts_at(starts)
        place = self.hook("initial_at")
        states = [self.begin(place(start, self.params), jax.random.key(0)) for start in np.asarray(starts)]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)

    def play(
        self, policy: Any, starts: EnvState, key: PRNGKey, mode: Mode = "greedy", advance: Advance = lambda ended: None
    ) -> list[Episode]:
        if mode not in self._players:

            def episodes(policy, first, key):
                keys = jax.random.split(key, first.steps.shape[0])
                play = lambda s, k: scan_episode(self, lambda s, k: act(policy, s.obs, k, mode), s, k)  # noqa: E731
                return jax.vmap(play)(first, keys)

            self._players[mode] = owned_program(episodes)
        played = scanned_episodes(self._players[mode](policy, starts, key))
        advance(len(played))
        return played

    def replay(self, starts: EnvState, actions: np.ndarray) -> list[Episode]:
        return scanned_episodes(self._compiled_replay(starts, jnp.asarray(actions)))

    @cached_property
    def _compiled_replay(self) -> Callable[[EnvState, Array], dict[str, Any]]:
        def one(state, actions):
            choose = lambda s, _: actions[jnp.minimum(s.steps, len(actions) - 1)]  # noqa: E731
            return scan_episode(self, choose, state, jax.random.key(0))

        return jax.jit(jax.vmap(one))

    def reports_cost(self) -> bool:
        return "cost" in self._infos()[1]

    def info_keys(self, wanted: Collection[str]) -> set[str]:
        return {key for info in self._infos() for key in info}

    def _infos(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Shapes of the `info` of an initial state and of a step."""
        inner = jax.eval_shape(lambda: self.env.initial(jax.random.key(0), *self.given_params))
        space = self.action_space
        action = jax.ShapeDtypeStruct(space.shape or (), jax.dtypes.canonicalize_dtype(space.dtype))
        first = jax.eval_shape(self.env.state_info, inner, *self.given_params)
        return first, jax.eval_shape(self.step_info, inner, action, inner)

    def step_info(self, before: Any, action: Array, after: Any) -> dict[str, Any]:
        """The `info` of one step between two inner states."""
        return self.env.transition_info(before, self.spaces.to_env_in_jax(action), after, *self.given_params)

    def step_batch_with_cost(
        self, state: EnvState, action: Array, key: PRNGKey
    ) -> tuple[EnvState, Transition, EnvState, Float[Array, " N"]]:
        if not self.reports_cost():
            raise EnvError(
                f"{self.name} reports no cost; want `cost` in the dict that its transition_info returns (0 if no rule "
                f"is violated), or an algorithm that needs no true cost."
            )
        later, transition, after = self.step_batch(state, action, key)
        cost = jax.vmap(lambda *step: self.step_info(*step)["cost"])(state.inner, action, after.inner)
        return later, transition, after, jnp.asarray(cost, jnp.float32)

    def reset_batch(self, key: PRNGKey, num_envs: int, after: Array | None = None) -> EnvState:
        return jax.vmap(self.reset)(jax.random.split(key, num_envs))

    def advance_batch(self, state: EnvState, action: Array, key: PRNGKey) -> tuple[EnvState, Transition]:
        return jax.vmap(self.advance)(state, action, jax.random.split(key, state.steps.shape[0]))

    def step_batch(self, state: EnvState, action: Array, key: PRNGKey) -> tuple[EnvState, Transition, EnvState]:
        k_step, k_reset = jax.random.split(key)
        after, transition = self.advance_batch(state, action, k_step)
        return self.restart(after, transition.terminated | transition.truncated, k_reset), transition, after

    def restart(self, state: EnvState, which: Bool[Array, " N"], key: PRNGKey) -> EnvState:
        # Restart at most RESETS_AT_ONCE episodes at a time: on most steps few or no episodes end, and drawing an
        # initial state for every environment would cost more than the physics.
        num_envs = state.steps.shape[0]

        def restart_some(carry):
            state, ended, key = carry
            key, k_fresh = jax.random.split(key)
            count = min(num_envs, RESETS_AT_ONCE)
            # The fill value is out of range, so that mode="drop" ignores it below.
            which = jnp.nonzero(ended, size=count, fill_value=num_envs)[0]
            fresh = self.reset_batch(k_fresh, count)
            state = jax.tree.map(lambda old, new: old.at[which].set(new, mode="drop"), state, fresh)
            return state, ended.at[which].set(False, mode="drop"), key

        return jax.lax.while_loop(lambda c: c[1].any(), restart_some, (state, which, key))[0]


def _shaped_like(new: Array, old: Array) -> Array:
    """`new` in the shape of `old`. CliffWalking's states change shape at the first step; a compiled loop cannot."""
    return new if jnp.shape(new) == jnp.shape(old) else jnp.reshape(new, jnp.shape(old))


def make_env(env: str | EnvSpec, **options: Any) -> gym.Env:
    """`gym.make` for every name of `scopil.envs.naming`. Raises EnvError if the environment cannot be made."""
    if isinstance(env, str):
        env, own = split_options(env)
        options = own | options
    if isinstance(env, str) and env.endswith(".py"):
        raise EnvError(f"environment {env!r} names a file and no environment in it; want {_WANTED}.")
    if isinstance(env, str) and ":" in env:
        try:
            if is_file_name(env):
                return _from_file(env, options)
            load_module(split_name(env)[0], _WANTED)  # Gymnasium does not search the current folder
        except ConfigError as error:
            raise EnvError(f"environment {env!r}: {error}") from error
    here = findable(Path.cwd()) if isinstance(env, str) and ":" in env else nullcontext()
    try:
        with here:
            return gym.make(env, **options)
    except (gym.error.Error, ImportError) as error:
        advice = ""
        if isinstance(error, gym.error.DependencyNotInstalled | ImportError):
            advice = '. Some need an extra: pip install "scopil[phys2d]" (phys2d/…, tabular/…), "scopil[box2d]", …'
        elif isinstance(error, gym.error.UnregisteredEnv):
            advice = " A class in a file is named FILE.py:CLASS."
        raise EnvError(f"environment {str(getattr(env, 'id', env))!r}: {error}{advice}") from error


def _from_file(name: str, options: dict[str, Any]) -> gym.Env:
    """Make an environment that is not registered, from a class or a function in a file."""
    make = load_object(name, _WANTED)
    limit, mode = options.pop("max_episode_steps", None), options.pop("render_mode", None)

    def entry_point(render_mode: str | None = None, **kwargs: Any) -> gym.Env:
        if render_mode is not None and _takes(make, "render_mode"):
            kwargs["render_mode"] = render_mode
        made = make(**kwargs)
        if isinstance(made, FuncEnv):
            from scopil.envs.as_gym import FunctionalEnv

            return FunctionalEnv(CompiledEnv(made), render_mode)
        return made

    where, attribute = split_name(name)
    spec = EnvSpec(
        f"{Path(where).stem.partition('@')[0]}:{attribute}", entry_point=entry_point, max_episode_steps=limit
    )
    try:
        if not callable(make):
            raise TypeError(f"it is a {type(make).__name__}")
        return gym.make(spec, **({} if mode is None else {"render_mode": mode}), **options)
    except Exception as error:  # user code may raise anything
        raise EnvError(
            f"environment {name!r}: {type(error).__name__}: {error}; want a class or function that makes a "
            f"gymnasium.Env, with its arguments as in {name}(size=5)."
        ) from error


def _takes(make: Any, name: str) -> bool:
    try:
        known = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in known)


def id_of(env: Any) -> str | None:
    """The id from which `gym.make` makes this environment; None if its wrappers or options differ from the id's."""
    if isinstance(env, str):
        return env
    spec = getattr(env, "spec", None)
    if spec is None or spec.id not in gym.registry or _other_wrapper(env) is not None:
        return None
    usual = gym.spec(spec.id)
    options = {k: v for k, v in spec.kwargs.items() if k != "render_mode"}
    same = options == usual.kwargs and spec.max_episode_steps == usual.max_episode_steps
    return spec.id if same else None


def find_compiled(env: gym.Env | VectorEnv) -> CompiledEnv | None:
    """The compiled FuncEnv inside a Gymnasium env; None if it has no FuncEnv, or a wrapper that would be ignored."""
    inner, limit = env.unwrapped, time_limit_of(env)
    if _other_wrapper(env) is not None:
        return None
    if isinstance(compiled := getattr(inner, "compiled", None), CompiledEnv):
        own = compiled.max_episode_steps
        if limit is None or (own is not None and own <= limit):
            return compiled  # one object per id, so that its programs are compiled once
        return CompiledEnv(compiled.env, compiled.params, limit)
    if isinstance(inner, FunctionalJaxEnv):
        return CompiledEnv(inner.func_env, max_episode_steps=limit)
    return None


def _other_wrapper(env: gym.Env | VectorEnv) -> str | None:
    """The name of a wrapper that `CompiledEnv` would ignore, or None. The wrappers of `gym.make` do not count."""
    known = (gym.wrappers.PassiveEnvChecker, gym.wrappers.OrderEnforcing, gym.wrappers.TimeLimit)
    while env is not env.unwrapped:
        if not isinstance(env, known):
            return type(env).__name__
        env = env.env  # pyright: ignore[reportAttributeAccessIssue]
    return None
