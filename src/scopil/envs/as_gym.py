"""A compiled environment as a Gymnasium `Env` and `VectorEnv`: NumPy in, NumPy out."""

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from scopil.envs.jax_env import CompiledEnv
from scopil.envs.spaces import joint_sizes
from scopil.errors import EnvError


class FunctionalEnv(gym.Env):
    """One environment. `reset(options={"start": ...})` sets the start if the FuncEnv has `initial_at`."""

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 12}  # noqa: RUF012 (gymnasium's form)

    def __init__(self, compiled: CompiledEnv, render_mode: str | None = None):
        self.compiled, self.render_mode = compiled, render_mode
        self.observation_space, self.action_space = compiled.observation_space, _shown_actions(compiled)
        self._key = self._render_state = self._window = None
        self._begin, self._reset, self._step = _compiled_calls(compiled)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self._key, self._state, info = _begun(self, seed, options)
        if self.render_mode is not None:
            self._render_state = self.compiled.env.render_init(*self.compiled.given_params)
            self._look()
        return _fetch((self._state.obs, info))

    def step(self, action: Any):
        if self._key is None:
            raise gym.error.ResetNeeded("call reset() before step()")
        action = _numbers(action, self.compiled, self.compiled.action_space, self.action_space)
        self._key, self._state, out = self._step(self._state, action, self._key)
        obs, reward, terminated, truncated, info = out.unpack()
        if self.render_mode is not None:
            self._look()
        return obs, float(reward), bool(terminated), bool(truncated), info

    def render(self):
        if self.render_mode is None:
            gym.logger.warn("render() needs a render_mode, e.g. gym.make(id, render_mode='rgb_array')")
            return None
        return self._image if self.render_mode == "rgb_array" else None

    def _look(self) -> None:
        """Draw the state. Every state is drawn, since a picture may show the path so far."""
        self._render_state, self._image = self.compiled.env.render_image(
            self._state.inner, self._render_state, *self.compiled.given_params
        )
        if self.render_mode == "human":
            if self._window is None:
                from scopil.envs.window import Window

                self._window = Window("scopil", self.metadata["render_fps"])
            self._window.show(self._image)

    def close(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None


@lru_cache(maxsize=32)
def _compiled_calls(compiled: CompiledEnv) -> tuple[Callable, Callable, Callable]:
    """`begin`, `reset` and `step` of one environment, compiled once per `CompiledEnv`."""

    def at(inner, key):
        return compiled.begin(inner, key), compiled.env.state_info(inner, *compiled.given_params)

    begin = jax.jit(at)

    def begin_from(inner, key):
        key, k_obs = jax.random.split(key)
        return key, *begin(inner, k_obs)

    def reset(key):
        key, k_inner, k_obs = jax.random.split(key, 3)
        return key, *at(compiled.env.initial(k_inner, *compiled.given_params), k_obs)

    def step(state, action, key):
        key, k_step = jax.random.split(key)
        after, t = compiled.advance(state, action, k_step)
        info = compiled.step_info(state.inner, action, after.inner)
        return key, after, _pack((t.next_obs, t.reward, t.terminated, t.truncated, info))

    return begin_from, jax.jit(reset), jax.jit(step)


@lru_cache(maxsize=32)
def _compiled_vector_calls(compiled: CompiledEnv, num_envs: int) -> tuple[Callable, Callable, Callable]:
    """`begin`, `reset` and `step` of a batch, compiled once per `CompiledEnv` and batch size."""
    infos_of = jax.vmap(lambda inner: compiled.env.state_info(inner, *compiled.given_params))

    def reset(key):
        key, k_reset = jax.random.split(key)
        state = compiled.reset_batch(k_reset, num_envs)
        return key, state, infos_of(state.inner)

    def begin(inner, key):
        key, k_obs = jax.random.split(key)
        state = jax.vmap(lambda k: compiled.begin(inner, k))(jax.random.split(k_obs, num_envs))
        return key, state, infos_of(state.inner)

    def step(state, action, key):
        key, k_step = jax.random.split(key)
        new, t, after = compiled.step_batch(state, action, k_step)
        info = jax.vmap(compiled.step_info)(state.inner, action, after.inner)
        return key, new, (new.obs, t, info, infos_of(new.inner))

    return jax.jit(begin), jax.jit(reset), jax.jit(step)


class FunctionalVectorEnv(VectorEnv):
    """A batch of environments in one compiled call. Autoreset in the same step: `info["final_obs"]` and
    `info["final_info"]` hold the end of an episode; the returned observation is the first of the next.

    `reset(options={"start": ...})` starts every environment there; later episodes have random starts.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, compiled: CompiledEnv, num_envs: int = 1):
        self.compiled, self.num_envs, self.render_mode = compiled, num_envs, None
        self.single_observation_space = compiled.observation_space
        self.single_action_space = _shown_actions(compiled)
        self.observation_space = batch_space(compiled.observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._learners_space = batch_space(compiled.action_space, num_envs)
        self._key = None
        self._begin, self._reset, self._step = _compiled_vector_calls(compiled, num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed, options=options)
        self._key, self._state, info = _begun(self, seed, options)
        obs, info = _fetch((self._state.obs, info))
        return obs, _masked(info, np.ones(self.num_envs, bool))

    def step(self, actions: Any):
        if self._key is None:
            raise gym.error.ResetNeeded("call reset() before step()")
        actions = _numbers(actions, self.compiled, self._learners_space, self.action_space)
        self._key, self._state, out = self._step(self._state, actions, self._key)
        obs, t, info, fresh = _fetch(out)
        ended = t.terminated | t.truncated
        if not ended.any():
            return obs, t.reward.astype(np.float64), t.terminated, t.truncated, _masked(info, ~ended)
        # As in Gymnasium: `final_info` is the info of the ended episode, `info` that of the new episode.
        infos: dict[str, Any] = {}
        for k in info | fresh:
            blank = np.zeros_like(info.get(k, fresh.get(k)))
            infos[k] = np.where(_column(ended, blank), fresh.get(k, blank), info.get(k, blank))
            infos[f"_{k}"] = np.where(ended, k in fresh, k in info)
        final_obs = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(ended):
            final_obs[i] = t.next_obs[i]
        infos |= {"final_obs": final_obs, "final_info": _masked(info, ended)}
        infos |= {"_final_obs": ended.copy(), "_final_info": ended.copy()}
        return obs, t.reward.astype(np.float64), t.terminated, t.truncated, infos


def _begun(env: Any, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, Any, Any]:
    """The next key, the state and the info after a reset of a `FunctionalEnv` or `FunctionalVectorEnv`."""
    key = env._key
    if seed is not None or key is None:
        key = jax.random.key(int(env.np_random.integers(2**32)))
    if (start := (options or {}).get("start")) is None:
        return env._reset(key)
    initial_at = env.compiled.hook("initial_at")
    if initial_at is None:
        raise EnvError(f"{env.compiled.name} has no method initial_at(start, params); reset it without a start.")
    return env._begin(initial_at(start, env.compiled.params), key)


def _shown_actions(compiled: CompiledEnv) -> gym.Space:
    """The action space for callers. MultiDiscrete and MultiBinary stay as in the FuncEnv: agents predict vectors."""
    own = compiled.spaces.env_action
    return compiled.action_space if joint_sizes(own) is None else own


def _numbers(action: Any, compiled: CompiledEnv, space: gym.Space, shown: gym.Space) -> np.ndarray:
    """Convert actions, in the FuncEnv's form or as indices of joint actions, to `space`, the learner's. Errors name the
    space `shown`. Discrete actions are checked here, since compiled code does not check index bounds."""
    given = numbers = np.asarray(action)
    if isinstance(space, gym.spaces.Box):
        return given
    own, lead = compiled.spaces.env_action, space.shape or ()
    assert own.shape is not None
    if own is not compiled.action_space and given.shape == (*lead, *own.shape):
        with suppress(TypeError, ValueError):  # not in the space: the check below raises
            numbers = compiled.spaces.to_learner(given)
    if not space.contains(numbers):
        raise EnvError(f"action {given.tolist()} of dtype {given.dtype}; want one of {shown}.")
    return numbers if numbers is given else numbers.astype(np.int64)


def _fetch(tree: Any) -> Any:
    """The same tree in new NumPy arrays: arrays from the device are read-only."""
    return jax.tree.map(np.array, jax.device_get(tree))


class _Packed(eqx.Module):
    """A tree of small arrays as one row of bytes: one transfer from the device instead of one per array."""

    flat: Any
    form: Any = eqx.field(static=True)

    def unpack(self) -> Any:
        flat = np.asarray(self.flat)
        structure, leaves = self.form
        return jax.tree.unflatten(structure, [flat[a:b].copy().view(d).reshape(s) for a, b, s, d in leaves])


def _pack(tree: Any) -> _Packed:
    leaves, structure = jax.tree.flatten(tree)
    parts = [_bytes(leaf) for leaf in leaves]
    ends = np.cumsum([part.size for part in parts]).tolist()
    form = tuple((end - part.size, end, leaf.shape, leaf.dtype) for leaf, part, end in zip(leaves, parts, ends))
    return _Packed(jnp.concatenate(parts), (structure, form))


def _bytes(leaf: jax.Array) -> jax.Array:
    leaf = leaf.astype(jnp.uint8) if leaf.dtype == bool else leaf
    return jax.lax.bitcast_convert_type(leaf, jnp.uint8).ravel()


def _column(mask: np.ndarray, like: np.ndarray) -> np.ndarray:
    return mask.reshape((-1,) + (1,) * (like.ndim - 1))


def _masked(info: dict[str, np.ndarray], mask: np.ndarray) -> dict[str, np.ndarray]:
    """Gymnasium's vector convention: each key has a mask `_key` of the environments that report it."""
    return {k: np.where(_column(mask, v), v, np.zeros_like(v)) for k, v in info.items()} | {
        f"_{k}": mask.copy() for k in info
    }
