"""Record demonstrations by a program: a scripted expert, a planner or a policy of another library."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, cast

import gymnasium as gym
import jax
import numpy as np
from gymnasium.experimental.functional import FuncEnv

from scopil.data.dataset import Demonstrations, Episode, Space
from scopil.envs.as_gym import FunctionalEnv
from scopil.envs.base import Advance, BatchEnv, EnvState, Seeds, Starts
from scopil.envs.gym_env import compile_env
from scopil.envs.jax_env import CompiledEnv, id_of, make_env
from scopil.envs.rollout import gym_episode
from scopil.envs.spaces import Spaces
from scopil.errors import ConfigError, EnvError, ScopilError
from scopil.types import PRNGKey, Transition
from scopil.user_code import place_of

LEFT_BOUNDS = "the environment leaves the bounds of its own observation space: they are dropped"


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
    """Play episodes with an expert and return them as demonstrations.

    Args:
        env: a name, an environment, a JAX environment (`FuncEnv`), or a function that makes one.
        policy: a function from an observation to an action, both in the environment's own form; or an object with
            `predict(observation)` → (action, …), for example an agent. If the policy has a method `reset`, it is called
            before every episode.
        episodes: the number of episodes. Episode i is reset with seed + i.
        seed: the seed of the first episode.
        name: the name of the set.
        deterministic: passed to `predict` if it has this argument, as in scopil and Stable-Baselines3. True: the most
            likely action. False: a sampled action.
        progress: called after every episode with the number of episodes played.

    Raises:
        ConfigError: the policy is not a function and has no `predict`, or its action is not in the action space.
        EnvError: `env` is not an environment, or the expert or the environment raises an exception.
    """
    if episodes < 1:
        raise ConfigError(f"{episodes} episodes; want at least 1.")
    opened, choose = _opened(env), choice(policy, deterministic)
    try:
        spaces = Spaces(name, opened.observation_space, opened.action_space)
        played = []
        for i in range(episodes):
            getattr(policy, "reset", lambda: None)()
            step = count()
            checked = lambda obs: _checked(choose(obs), opened.action_space, next(step))  # noqa: B023, E731
            try:
                episode = gym_episode(opened, checked, seed + i, row=spaces.to_stored)
            except ScopilError:
                raise
            except Exception as error:  # of the expert or of the environment
                raise EnvError(f"episode {i} (seed {seed + i}): {place_of(error)}.") from error
            played.append(replace(episode, actions=spaces.to_learner(episode.actions)))
            progress(i + 1)
        about: dict[str, Any] = {"made_by": "scopil.record", "seeds": f"{seed} to {seed + episodes - 1}"}
        seen, about = widened(played, spaces.stored, about)  # pyright: ignore[reportArgumentType]
        return Demonstrations(
            episodes=tuple(played),
            observation_space=seen,
            action_space=spaces.action,  # pyright: ignore[reportArgumentType]
            flattened_from=spaces.flattened_from,
            name=name,
            env_id=id_of(env),
            about=about,
        )
    finally:
        if opened is not env:
            opened.close()


def play_expert(
    env: BatchEnv, name: str, policy: Any, starts: Starts, advance: Advance = lambda ended: None
) -> list[Episode]:
    """Episodes of an expert, as in `record`, from the starts of an evaluation in the environment `name`."""
    if isinstance(starts, Seeds):
        opened = make_env(name)
        try:
            played = []
            for seed in starts.seeds:
                played += record(opened, policy, 1, seed=int(seed)).episodes
                advance(1)
            return played
        finally:
            opened.close()
    assert isinstance(env, CompiledEnv)
    compiled, choose, space = env, choice(policy), env.spaces.env_action

    @jax.jit
    def move(state: EnvState, action: Any, key: PRNGKey) -> tuple[EnvState, Transition, dict[str, Any]]:
        after, transition = compiled.advance(state, action, key)
        return after, transition, compiled.step_info(state.inner, action, after.inner)

    episodes = []
    for i in range(len(starts.steps)):
        getattr(policy, "reset", lambda: None)()
        state = jax.tree.map(lambda leaf: leaf[i], starts)  # noqa: B023
        first, steps, infos = np.asarray(state.obs), [], [env.env.state_info(state.inner, *env.given_params)]
        while not steps or not (steps[-1].terminated or steps[-1].truncated or len(steps) == env.horizon):
            action = env.spaces.to_learner(_checked(choose(env.as_given(np.asarray(state.obs))), space, len(steps)))
            state, t, info = move(state, action, jax.random.fold_in(jax.random.key(i), len(steps)))
            steps.append(jax.device_get(t))
            infos.append(jax.device_get(info))
        filled = [{name: info.get(name, np.zeros_like(value)) for name, value in infos[-1].items()} for info in infos]
        episodes.append(
            Episode(
                observations=np.stack([first, *(t.next_obs for t in steps)]),
                actions=np.stack([t.action for t in steps]),
                rewards=np.array([t.reward for t in steps], np.float32),
                terminated=bool(steps[-1].terminated),
                truncated=not steps[-1].terminated,
                info={name: np.stack([np.asarray(info[name]) for info in filled]) for name in infos[-1]},
            )
        )
        advance(1)
    return episodes


def _opened(env: Any) -> gym.Env:
    if isinstance(env, str):
        return make_env(env)
    if isinstance(env, FuncEnv):
        return FunctionalEnv(compile_env(env))
    made = env if isinstance(env, gym.Env) else env() if callable(env) else env
    if not isinstance(made, gym.Env):
        found = type(made).__name__
        raise EnvError(f"{found} is no environment; want a name, a gymnasium.Env, a FuncEnv, or a function making one.")
    return made


def choice(policy: Any, deterministic: bool = True) -> Callable[[Any], Any]:
    """The function from an observation to an action of an expert, as `record` takes it."""
    if isinstance(policy, type):
        raise ConfigError(f"the expert is the class {policy.__name__}; want a function act(obs), or an object of it.")
    if hasattr(policy, "predict"):
        how = {"deterministic": deterministic}  # passed explicitly: Stable-Baselines3 samples by default
        try:
            inspect.signature(policy.predict).bind(None, **how)
        except (TypeError, ValueError):  # ValueError: `predict` has no readable signature
            how = {}
        return lambda obs: policy.predict(obs, **how)[0]
    if not callable(policy):
        raise ConfigError(f"the expert is a {type(policy).__name__}; want a function act(obs), or a `predict` method.")
    return policy


def _checked(action: Any, space: gym.Space, step: int) -> Any:
    """The action in the dtype of its space. Real numbers are rounded to this dtype; other values must not change."""
    try:
        given = np.asarray(action)
        fitting = given.astype(space.dtype).reshape(space.shape or ())
        real = isinstance(space, gym.spaces.Box) and np.dtype(space.dtype).kind == "f"
        if space.contains(fitting) and (real or np.array_equal(fitting, given.reshape(fitting.shape))):
            return fitting if fitting.ndim else fitting[()]  # scalar: some environments use actions as dict keys
    except (TypeError, ValueError):
        pass
    raise ConfigError(f"the expert's action at step {step} is {action!r}; want one of {space}.")


# --- spaces and starts ------------------------------------------------------------------------------------------------


def widened(episodes: Sequence[Episode], space: Space, about: dict[str, Any]) -> tuple[Space, dict[str, Any]]:
    """Return `space` and `about`. If an observation is out of bounds, drop the bounds and note this in `about`."""
    wide, box = without_bounds(space), cast(gym.spaces.Box, space)
    rows = [e.observations for e in episodes]
    if wide == space or all(np.all(r >= box.low) and np.all(r <= box.high) for r in rows):
        return space, about
    return wide, about | {"assumed": [*about.get("assumed", []), LEFT_BOUNDS]}


def without_bounds(space: Space) -> Space:
    """A Box with only the limits of its dtype as bounds. Other spaces are unchanged."""
    if not isinstance(space, gym.spaces.Box) or space.dtype == np.bool_:
        return space
    kind: Any = space.dtype.type
    whole = np.iinfo(kind) if issubclass(kind, np.integer) else None
    low, high = (-np.inf, np.inf) if whole is None else (whole.min, whole.max)
    return gym.spaces.Box(low, high, space.shape, kind)
