"""Loops that play whole episodes: in a compiled scan, in parallel host environments, in one Gymnasium environment."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import VectorEnv
from jaxtyping import Array

from scopil.data.dataset import Episode
from scopil.envs import base
from scopil.envs.base import Advance, EnvState, Mode
from scopil.envs.gym_vector import HostVector, begun, numbers_of
from scopil.envs.spaces import Spaces
from scopil.types import PRNGKey

if TYPE_CHECKING:
    from scopil.envs.jax_env import CompiledEnv


def act(policy: Any, obs: Array, key: PRNGKey, mode: Mode) -> Array:
    return policy.act(obs) if mode == "greedy" else policy.act(obs, key)


def owned_program(play: Callable[..., Any]) -> Callable[..., Any]:
    """`play(policy, *arrays)` as a program that is released with the result of this function. Leaves of the policy that
    are not arrays are part of the program. (`equinox.filter_jit` keeps its programs as long as the process runs.)"""

    @partial(jax.jit, static_argnums=(0, 1))
    def program(form, others, arrays, *rest):
        return play(jax.tree.unflatten(form, [a if o is None else o for a, o in zip(arrays, others)]), *rest)

    def run(policy: Any, *rest: Any) -> Any:
        leaves, form = jax.tree.flatten(policy)
        arrays = [leaf if isinstance(leaf, jax.Array | np.ndarray) else None for leaf in leaves]
        others = tuple(leaf if array is None else None for leaf, array in zip(leaves, arrays))
        return program(form, others, arrays, *rest)

    return run


def scan_episode(
    env: "CompiledEnv", choose: Callable[[EnvState, PRNGKey], Array], state: EnvState, key: PRNGKey
) -> dict[str, Any]:
    """One episode of `env.horizon` rows, inside a compiled program; in rows after its end, `alive` is False."""
    begin_info = env.env.state_info(state.inner, *env.given_params)

    def body(carry, step):
        state, alive = carry
        k_act, k_step = jax.random.split(jax.random.fold_in(key, step))
        action = choose(state, k_act)
        after, t = env.advance(state, action, k_step)
        info = env.step_info(state.inner, action, after.inner)
        over = t.terminated | t.truncated
        row = {"transition": t, "info": info, "alive": alive}
        return (jax.tree.map(lambda new, old: jnp.where(alive, new, old), after, state), alive & ~over), row

    _, rows = jax.lax.scan(body, (state, jnp.array(True)), jnp.arange(env.horizon))
    return rows | {"begin": state.obs, "begin_info": begin_info}


def scanned_episodes(rows: Any) -> list[Episode]:
    rows = jax.device_get(rows)
    return [_scanned(jax.tree.map(lambda leaf, i=i: leaf[i], rows)) for i in range(len(rows["begin"]))]


def _scanned(rows: dict[str, Any]) -> Episode:
    steps, t = int(rows["alive"].sum()), rows["transition"]
    info = {}
    for name, later in rows["info"].items():
        begin = rows["begin_info"].get(name, np.zeros_like(later[0]))
        info[name] = np.concatenate([begin[None], later[:steps]])
    return Episode(
        observations=np.concatenate([rows["begin"][None], t.next_obs[:steps]]),
        actions=t.action[:steps],
        rewards=t.reward[:steps],
        terminated=bool(t.terminated[steps - 1]),
        truncated=bool(t.truncated[steps - 1]),
        info=info,
    )


class Record:
    """The record of an episode in progress."""

    def __init__(self, obs: np.ndarray, info: Mapping[str, float]):
        self.observations, self.infos = [obs], [info]
        self.actions: list[Any] = []
        self.rewards: list[float] = []
        self.terminated = False

    def add(self, action: Any, reward: float, obs: np.ndarray, terminated: bool, info: Mapping[str, float]) -> None:
        self.actions.append(action)
        self.rewards.append(reward)
        self.observations.append(obs)
        self.infos.append(info)
        self.terminated = terminated

    def episode(self, start: np.ndarray | None = None) -> Episode:
        return Episode(
            observations=np.stack(self.observations),
            actions=np.stack(self.actions),
            rewards=np.array(self.rewards, np.float32),
            terminated=self.terminated,
            truncated=not self.terminated,  # by the environment's time limit or by ENDLESS
            start=start,
            info=by_name(self.infos),
        )


def by_name(infos: Sequence[Mapping[str, float]]) -> dict[str, np.ndarray]:
    """The infos of successive states as one array per name, with 0 for states whose info lacks the name."""
    names = dict.fromkeys(name for info in infos for name in info)
    return {name: np.array([info.get(name, 0.0) for info in infos]) for name in names}


def host_episodes(
    next_envs: Callable[[], HostVector],
    spaces: Spaces,
    choose: Callable[[np.ndarray, np.ndarray, np.int32], Any],
    seeds: np.ndarray,
    horizon: int,
    advance: Advance,
) -> list[Episode]:
    """Play one episode per seed, some at a time, in the environments that `next_envs` returns. These may be others each
    time, of the same number. `choose(obs, episode numbers, step)` gives the actions."""
    episodes: list[Episode] = []
    while (begin := len(episodes)) < len(seeds):
        envs = next_envs()
        lanes = envs.num_envs
        group = seeds[begin : begin + lanes]
        obs, infos = envs.reset(np.resize(group, lanes))
        records = [Record(obs[i], envs.numbers(infos, i)) for i in range(len(group))]
        alive, numbers = np.arange(lanes) < len(group), np.arange(begin, begin + lanes)
        for step in range(horizon):
            actions = np.asarray(choose(obs, numbers, np.int32(step)))
            out = envs.step(actions, None, alive)
            given = spaces.from_policy(actions)
            for i in np.flatnonzero(alive):
                info = envs.numbers(out.infos, int(i))
                records[i].add(given[i], float(out.reward[i]), out.next_obs[i], bool(out.terminated[i]), info)
            still = alive & ~(out.terminated | out.truncated)
            advance(int(alive.sum() - still.sum()))
            obs, alive = out.obs, still
            if not alive.any():
                break
        episodes += [record.episode() for record in records]
    return episodes


def gym_episode(
    env: gym.Env,
    choose: Callable[[Any], Any],
    seed: int | None = None,
    *,
    start: Any = None,
    row: Callable[[Any], np.ndarray] = np.array,
    watch: Callable[[Any, dict[str, Any]], None] = lambda obs, info: None,
    limit: int | None = None,
) -> Episode:
    """Play an episode of one Gymnasium environment, in its own observations and actions. An action of None stops it.
    `row` converts an observation for storage. `watch` is called at every visited state, including the initial state.
    `limit` is in steps; the default is the limit of evaluation, and reaching it gives a warning."""
    obs, info = begun(env.reset(seed=seed, options=None if start is None else {"start": start}))
    record, begin = Record(row(obs), numbers_of(info)), start_of(env, info)
    most = limit or max(base.ENDLESS, time_limit_of(env) or 0)
    watch(obs, info)
    over = False
    while not over and len(record.actions) < most and (action := choose(obs)) is not None:
        obs, reward, terminated, truncated, info = env.step(action)
        record.add(np.array(action), float(reward), row(obs), bool(terminated), numbers_of(info))
        watch(obs, info)
        over = terminated or truncated
    if not over and limit is None and len(record.actions) == most:
        warn_endless(env, most)
    return record.episode(begin)


def start_of(env: gym.Env, info: Mapping[str, Any]) -> np.ndarray | None:
    """The start of this episode, for `reset(options={"start": …})`; None if the environment does not support starts."""
    compiled = getattr(env.unwrapped, "compiled", None)
    if compiled is None or not compiled.can_start_at or "position" not in info:
        return None
    return np.array(info["position"])


def time_limit_of(env: gym.Env | VectorEnv) -> int | None:
    """The shortest time limit in the spec and the wrappers. An environment that is not registered has no spec."""
    limits = [getattr(env.spec, "max_episode_steps", None)]
    while isinstance(env, gym.Wrapper):
        limits.append(getattr(env, "_max_episode_steps", None) if isinstance(env, gym.wrappers.TimeLimit) else None)
        env = env.env
    return min(filter(None, limits), default=None)


_WARNED_OF: WeakValueDictionary[int, gym.Env | VectorEnv] = WeakValueDictionary()  # by id(): some are unhashable


def warn_endless(env: gym.Env | VectorEnv, steps: int) -> None:
    """Warn once per environment: an episode was stopped because the environment has no time limit."""
    if _WARNED_OF.get(id(env)) is env:
        return
    _WARNED_OF[id(env)] = env
    warnings.warn(
        f"{name_of(env)} has no time limit: an episode was not over after {steps:,} steps, where evaluating and "
        f"recording stop it; set one: Id(max_episode_steps=N), or --max-episode-steps N.",
        stacklevel=3,
    )


def name_of(env: gym.Env | VectorEnv) -> str:
    return str(getattr(env.spec, "id", None) or env)
