"""Demonstrations by a program: a scripted expert, a planner, a policy of another library."""

import inspect
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.experimental.functional import FuncEnv

from scopil.data.dataset import Demonstrations, Episode
from scopil.data.recorder import room_for, start_of
from scopil.envs.action_codec import joined, numbered
from scopil.envs.as_gym import FunctionalEnv
from scopil.envs.gym_env import most_steps, warn_endless
from scopil.envs.gym_vector import by_name, numbers_of
from scopil.envs.jax_env import CompiledEnv, id_of, make_env
from scopil.errors import ConfigError, EnvError


def record(
    env: Any,
    policy: Any,
    episodes: int = 50,
    *,
    seed: int = 0,
    name: str = "recorded",
    deterministic: bool = True,
    progress: Callable[[int], None] = lambda done: None,
) -> Demonstrations:
    """Let an expert play, and keep what it does.

    Args:
        env: a name, an environment, a JAX environment (`FuncEnv`), or a function that makes one.
        policy: a function from an observation, as the environment gives it, to an action as it takes it; or anything
            with `predict(observation)` → (action, …), an agent for example. Where it has a method `reset`, that is
            called before every episode.
        episodes: how many. Episode i starts from seed + i.
        seed: of the first episode.
        name: of the set.
        deterministic: handed on to a `predict` that takes it, as agents of ours and of Stable-Baselines3 do: the
            likeliest action, or a sampled one.
        progress: called with the number of episodes played.
    """
    if episodes < 1:
        raise ConfigError(f"{episodes} episodes; want at least 1.")
    opened, choose = _opened(env), _choice(policy, deterministic)
    try:
        space = opened.observation_space
        flat = is_flattened(space)
        played = []
        for i in range(episodes):
            getattr(policy, "reset", lambda: None)()
            played.append(_play(opened, choose, seed + i))
            progress(i + 1)
        seen: Any = gym.spaces.flatten_space(space) if flat else space
        about: dict[str, Any] = {"made_by": "scopil.record", "seeds": [seed, seed + episodes - 1]}
        seen, about = room_for(played, seen, about)
        return Demonstrations(
            episodes=tuple(played),
            observation_space=seen,
            action_space=numbered(opened.action_space),  # pyright: ignore[reportArgumentType]
            flattened_from=space if flat else None,
            name=name,
            env_id=id_of(env),
            about=about,
        )
    finally:
        if opened is not env:
            opened.close()


def _play(env: gym.Env, choose: Callable[[Any], Any], seed: int) -> Episode:
    obs, info = env.reset(seed=seed)
    start = start_of(env, info)
    space, most = env.observation_space, most_steps(env)
    seen, actions, rewards, infos = [row_of(obs, space)], [], [], [numbers_of(info)]
    terminated = truncated = False
    while not (terminated or truncated):
        action = _checked(choose(obs), env.action_space, len(actions))
        obs, reward, terminated, truncated, info = env.step(action)
        seen.append(row_of(obs, space))
        infos.append(numbers_of(info))
        actions.append(action)
        rewards.append(float(reward))
        if len(actions) >= most and not (terminated or truncated):
            truncated = True
            warn_endless(env, most)
    return Episode(
        observations=np.stack(seen),
        actions=_numbers(np.stack(actions), env.action_space),
        rewards=np.array(rewards, np.float32),
        terminated=bool(terminated),
        truncated=bool(truncated and not terminated),
        start=start,
        info=by_name(infos),
    )


def is_flattened(space: gym.Space) -> bool:
    """Whether observations of this space are kept as flat rows."""
    return not isinstance(space, gym.spaces.Box | gym.spaces.Discrete)


def row_of(obs: Any, space: gym.Space) -> np.ndarray:
    """An observation as it is kept: a copy, since an environment may change the array that it returned."""
    return np.array(gym.spaces.flatten(space, obs), np.float32) if is_flattened(space) else np.array(obs)


def _numbers(actions: np.ndarray, space: gym.Space) -> np.ndarray:
    """Several choices at a time are one number in a set, as learners see them."""
    if isinstance(space, gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
        return joined(actions, space)
    return actions.reshape(len(actions)) if isinstance(numbered(space), gym.spaces.Discrete) else actions


def _opened(env: Any) -> gym.Env:
    if isinstance(env, str):
        return make_env(env)
    if isinstance(env, FuncEnv):
        return FunctionalEnv(CompiledEnv(env))
    if isinstance(env, CompiledEnv):
        return FunctionalEnv(env)
    made = env if isinstance(env, gym.Env) else env() if callable(env) else env
    if not isinstance(made, gym.Env):
        raise EnvError(
            f"{type(made).__name__} is not an environment to record in; want a name, a gymnasium.Env, a FuncEnv, or a "
            f"function that makes one."
        )
    return made


def _choice(policy: Any, deterministic: bool) -> Callable[[Any], Any]:
    if hasattr(policy, "predict"):
        # Said aloud: left out, Stable-Baselines3 samples.
        how = {"deterministic": deterministic} if _takes_deterministic(policy.predict) else {}
        return lambda obs: policy.predict(obs, **how)[0]
    if not callable(policy):
        raise ConfigError(
            f"the expert is a {type(policy).__name__}; want a function act(obs) → action, or an object with `predict`."
        )
    return policy


def _takes_deterministic(predict: Callable[..., Any]) -> bool:
    try:
        inspect.signature(predict).bind(None, deterministic=True)
    except (TypeError, ValueError):  # ValueError: its signature cannot be read
        return False
    return True


def _checked(action: Any, space: gym.Space, step: int) -> Any:
    """The action in the space's own dtype: real numbers are rounded to its precision, whole ones stay what they are."""
    try:
        given = np.asarray(action)
        fitting = given.astype(space.dtype).reshape(space.shape or ())
        real = isinstance(space, gym.spaces.Box) and np.dtype(space.dtype).kind == "f"
        if space.contains(fitting) and (real or np.array_equal(fitting, given.reshape(fitting.shape))):
            return fitting if fitting.ndim else fitting[()]  # tables cannot be asked for an array
    except (TypeError, ValueError):
        pass
    raise ConfigError(f"the expert's action at step {step} is {action!r}; want one of {space}.")
