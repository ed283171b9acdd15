"""Gymnasium's faces of a compiled environment: NumPy in, NumPy out, single and vectorised."""

from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from scopil.envs.functional import CompiledEnv
from scopil.errors import EnvError


class FunctionalEnv(gym.Env):
    """One environment. `reset(options={"start": ...})` starts a FuncEnv with `initial_at` from a given place."""

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 12}  # noqa: RUF012 (gymnasium's form)

    def __init__(self, compiled: CompiledEnv, render_mode: str | None = None):
        self.compiled = compiled
        self.observation_space = compiled.observation_space
        self.action_space = compiled.action_space
        self.render_mode = render_mode
        self._key = None
        self._render_state = None
        self._window = None

        def begin(inner, key):
            state = compiled.begin(inner, key)
            return state, compiled.env.state_info(inner, compiled.params)

        def reset(key):
            key, k_inner, k_obs = jax.random.split(key, 3)
            return key, *begin(compiled.env.initial(k_inner, compiled.params), k_obs)

        def step(state, action, key):
            key, k_step = jax.random.split(key)
            after, t = compiled.advance(state, action, k_step)
            info = compiled.env.transition_info(state.inner, action, after.inner, compiled.params)
            return key, after, _pack((t.next_obs, t.reward, t.terminated, t.truncated, info))

        self._begin, self._reset, self._step = jax.jit(begin), jax.jit(reset), jax.jit(step)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        if seed is not None or self._key is None:
            self._key = jax.random.key(int(self.np_random.integers(2**32)))
        start = (options or {}).get("start")
        if start is None:
            self._key, self._state, info = self._reset(self._key)
        else:
            if not hasattr(self.compiled.env, "initial_at"):
                raise EnvError(f"{type(self.compiled.env).__name__} has no `initial_at`: it cannot take a start.")
            self._key, k_obs = jax.random.split(self._key)
            inner = self.compiled.env.initial_at(start, self.compiled.params)
            self._state, info = self._begin(inner, k_obs)
        if self.render_mode is not None:
            self._render_state = self.compiled.env.render_init(self.compiled.params)
            self._look()
        return jax.device_get((self._state.obs, info))

    def step(self, action: Any):
        if self._key is None:
            raise gym.error.ResetNeeded("call reset() before step()")
        self._key, self._state, out = self._step(self._state, np.asarray(action), self._key)
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
        """Draw every state, asked or not: the picture shows the way the ball came."""
        self._render_state, self._image = self.compiled.env.render_image(
            self._state.inner, self._render_state, self.compiled.params
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


class FunctionalVectorEnv(VectorEnv):
    """A batch of environments in one compiled call. Autoreset in the same step: `info["final_obs"]` and
    `info["final_info"]` carry the end of an episode, the returned observation opens the next."""

    metadata = {  # noqa: RUF012
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(self, compiled: CompiledEnv, num_envs: int = 1):
        self.compiled = compiled
        self.num_envs = num_envs
        self.render_mode = None
        self.single_observation_space = compiled.observation_space
        self.single_action_space = compiled.action_space
        self.observation_space = batch_space(compiled.observation_space, num_envs)
        self.action_space = batch_space(compiled.action_space, num_envs)
        self._key = None
        env, params = compiled.env, compiled.params

        def reset(key):
            key, k_reset = jax.random.split(key)
            state = compiled.reset_batch(k_reset, num_envs)
            return key, state, jax.vmap(lambda inner: env.state_info(inner, params))(state.inner)

        def step(state, action, key):
            key, k_step = jax.random.split(key)
            new, t, after = compiled.step_batch(state, action, k_step)
            info = jax.vmap(lambda s, a, n: env.transition_info(s, a, n, params))(state.inner, action, after.inner)
            fresh = jax.vmap(lambda inner: env.state_info(inner, params))(new.inner)
            return key, new, (new.obs, t, info, fresh)

        self._reset, self._step = jax.jit(reset), jax.jit(step)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed, options=options)
        if seed is not None or self._key is None:
            self._key = jax.random.key(int(self.np_random.integers(2**32)))
        self._key, self._state, info = self._reset(self._key)
        obs, info = jax.device_get((self._state.obs, info))
        return obs, _masked(info, np.ones(self.num_envs, bool))

    def step(self, actions: Any):
        if self._key is None:
            raise gym.error.ResetNeeded("call reset() before step()")
        self._key, self._state, out = self._step(self._state, np.asarray(actions), self._key)
        obs, t, info, fresh = jax.device_get(out)
        ended = t.terminated | t.truncated
        everyone = np.ones(self.num_envs, bool)
        infos = info
        if ended.any():
            # As in Gymnasium: what an ended episode said goes to final_info, `info` speaks of the new one.
            infos = {k: np.where(_column(ended, v), fresh[k], v) if k in fresh else v for k, v in info.items()}
        infos = _masked(infos, everyone)
        if ended.any():
            final_obs = np.full(self.num_envs, None, dtype=object)
            for i in np.flatnonzero(ended):
                final_obs[i] = t.next_obs[i]
            infos |= {"final_obs": final_obs, "_final_obs": ended}
            infos |= {"final_info": _masked(info, ended), "_final_info": ended}
        return obs, t.reward.astype(np.float64), t.terminated, t.truncated, infos


@jax.tree_util.register_pytree_node_class
class _Packed:
    """A tree of small arrays as one float32 vector: fetching it from the device costs one call instead of ten."""

    def __init__(self, flat: Any, form: Any):
        self.flat, self.form = flat, form

    def unpack(self) -> Any:
        flat = np.array(self.flat)
        structure, leaves = self.form
        return jax.tree.unflatten(structure, [flat[a:b].reshape(s).astype(d, copy=False) for a, b, s, d in leaves])

    def tree_flatten(self):
        return (self.flat,), self.form

    @classmethod
    def tree_unflatten(cls, form, children):
        return cls(children[0], form)


def _pack(tree: Any) -> _Packed:
    leaves, structure = jax.tree.flatten(tree)
    ends = np.cumsum([leaf.size for leaf in leaves]).tolist()
    form = tuple((end - leaf.size, end, leaf.shape, leaf.dtype) for leaf, end in zip(leaves, ends))
    flat = jnp.concatenate([leaf.ravel().astype(jnp.float32) for leaf in leaves])
    return _Packed(flat, (structure, form))


def _column(mask: np.ndarray, like: np.ndarray) -> np.ndarray:
    return mask.reshape((-1,) + (1,) * (like.ndim - 1))


def _masked(info: dict[str, np.ndarray], mask: np.ndarray) -> dict[str, np.ndarray]:
    """Gymnasium's vector convention: beside each key its `_key`, telling where it holds."""
    return {k: np.where(_column(mask, v), v, np.zeros_like(v)) for k, v in info.items()} | {
        f"_{k}": mask.copy() for k in info
    }
