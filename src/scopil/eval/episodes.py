"""Whole episodes: a policy playing, on a compiled environment or on the host, or a demonstration replayed."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.base import BatchEnv, EnvState
from scopil.envs.gym_env import HostEnv
from scopil.envs.gym_vector import HostVector, by_name
from scopil.envs.jax_env import CompiledEnv
from scopil.errors import EnvError
from scopil.eval.rules import by_own_rules
from scopil.eval.starts import Seeds, states_at
from scopil.policy import Policy
from scopil.types import PRNGKey

Mode = Literal["greedy", "sampled"]
Advance = Callable[[int], None]  # called as episodes are played, with how many have ended since the last call


@runtime_checkable
class Play(Protocol):
    def __call__(
        self, policy: Policy, first: Any, key: PRNGKey, advance: Advance = lambda ended: None
    ) -> list[Episode]: ...


@lru_cache(maxsize=16)
def player(env: BatchEnv, mode: Mode) -> Play:
    """What plays a policy in `env`: `player(env, mode)(policy, starts, key)`. It is compiled on its first call for all
    policies of one form, and is the same object for the same environment and mode."""
    if isinstance(env, HostEnv):
        return HostPlayer(env, mode)
    assert isinstance(env, CompiledEnv), env
    return CompiledPlayer(env, mode)


def _act(policy: Policy, obs: Array, key: PRNGKey, mode: Mode) -> Array:
    return policy.act(obs) if mode == "greedy" else policy.act(obs, key)


class CompiledPlayer:
    """Plays episodes from a batch of initial states in one compiled program."""

    def __init__(self, env: CompiledEnv, mode: Mode):
        def episodes(policy, first, key):
            keys = jax.random.split(key, first.steps.shape[0])
            play = lambda s, k: _rollout(env, lambda s, k: _act(policy, s.obs, k, mode), s, k)  # noqa: E731
            return jax.vmap(play)(first, keys)

        self._env, self._episodes = env, eqx.filter_jit(episodes)

    def __call__(
        self, policy: Policy, first: EnvState, key: PRNGKey, advance: Advance = lambda ended: None
    ) -> list[Episode]:
        episodes = _unstack(self._episodes(policy, first, key))
        advance(len(episodes))
        return by_own_rules(self._env, episodes)


class HostPlayer:
    """Plays episodes on host environments, several at a time. An episode depends on its seed and its number alone."""

    def __init__(self, env: HostEnv, mode: Mode):
        def choose(policy, obs, key, numbers, step):
            keys = jax.vmap(lambda number: jax.random.fold_in(jax.random.fold_in(key, number), step))(numbers)
            return jax.vmap(lambda o, k: _act(policy, o, k, mode))(obs, keys)

        self._env, self._choose = env, eqx.filter_jit(choose)

    def __call__(
        self, policy: Policy, first: Seeds, key: PRNGKey, advance: Advance = lambda ended: None
    ) -> list[Episode]:
        group = self._env.envs_to_play(len(first.seeds))
        episodes: list[Episode] = []
        for begin in range(0, len(first.seeds), group.num_envs):
            seeds = first.seeds[begin : begin + group.num_envs]
            episodes += self._batch(group, policy, seeds, begin, key, advance)
        return by_own_rules(self._env, episodes)

    def _batch(
        self, group: HostVector, policy: Policy, seeds: np.ndarray, begin: int, key: PRNGKey, advance: Advance
    ) -> list[Episode]:
        """As many episodes as there are environments, or fewer."""
        lanes, count = group.num_envs, len(seeds)
        obs, infos = group.reset(np.resize(seeds, lanes))
        records = [Record(obs[i], group.numbers(infos, i)) for i in range(count)]
        alive, numbers = np.arange(lanes) < count, np.arange(begin, begin + lanes)
        for step in range(self._env.horizon):
            actions = np.asarray(self._choose(policy, obs, key, numbers, np.int32(step)))
            out = group.step(actions, None, alive)
            given = self._env.flat.actions(actions)
            for i in np.flatnonzero(alive):
                info = group.numbers(out.infos, int(i))
                records[i].add(given[i], float(out.reward[i]), out.next_obs[i], bool(out.terminated[i]), info)
            still = alive & ~(out.terminated | out.truncated)
            advance(int(alive.sum() - still.sum()))
            obs, alive = out.obs, still
            if not alive.any():
                break
        return [record.episode() for record in records]


def play_distinct(
    env: BatchEnv, mode: Mode, policy: Policy, first: Any, key: PRNGKey, advance: Advance = lambda ended: None
) -> list[Episode]:
    """`player(env, mode)`, but where starts are repeated round after round, a greedy policy plays one round if another
    would give the same episodes again."""
    play = player(env, mode)
    if mode == "sampled" or isinstance(first, Seeds):
        return play(policy, first, key, advance)
    round_of = _round(first)
    if round_of == first.steps.shape[0]:
        return play(policy, first, key, advance)
    index = np.array([*range(round_of), 0])
    *episodes, again = play(policy, jax.tree.map(lambda leaf: leaf[index], first), key, advance)
    one = episodes[0]
    same = np.array_equal(one.observations, again.observations) and np.array_equal(one.actions, again.actions)
    return episodes if same else play(policy, first, key, advance)


def _round(first: EnvState) -> int:
    """After how many starts they repeat themselves. A start that was demonstrated twice counts twice in each round."""
    leaves = [
        np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)
        for leaf in jax.tree.leaves(first)
    ]
    count = first.steps.shape[0]
    rows = [b"".join(leaf[i].tobytes() for leaf in leaves) for i in range(count)]
    return next(p for p in range(1, count + 1) if rows[p:] == rows[: count - p])


class Record:
    """An episode while it is played."""

    def __init__(self, obs: np.ndarray, info: dict[str, float]):
        self.observations, self.infos = [obs], [info]
        self.actions: list[Any] = []
        self.rewards: list[float] = []
        self.terminated = False

    def add(self, action: Any, reward: float, obs: np.ndarray, terminated: bool, info: dict[str, float]) -> None:
        self.actions.append(action)
        self.rewards.append(reward)
        self.observations.append(obs)
        self.infos.append(info)
        self.terminated = terminated

    def episode(self) -> Episode:
        return Episode(
            observations=np.stack(self.observations),
            actions=np.stack(self.actions),
            rewards=np.array(self.rewards, np.float32),
            terminated=self.terminated,
            truncated=not self.terminated,  # by its own time limit, or by ours
            info=by_name(self.infos),
        )


def replay(env: BatchEnv, demos: Demonstrations) -> list[Episode]:
    """The demonstrated actions played again from the demonstrated starts, in an environment written in JAX."""
    if not isinstance(env, CompiledEnv):
        raise EnvError("episodes can be replayed only in an environment written in JAX that starts where it is told.")
    if demos.starts is None:
        raise EnvError(f"{demos.name} does not record its starts, so it cannot be replayed.")
    longest = max(len(e) for e in demos)
    table = np.stack([np.resize(e.actions, (longest, *e.actions.shape[1:])) for e in demos])
    first = states_at(env, demos.starts)

    def one(state, actions):
        play = lambda s, _: actions[jnp.minimum(s.steps, longest - 1)]  # noqa: E731
        return _rollout(env, play, state, jax.random.key(0))

    episodes = _unstack(jax.jit(jax.vmap(one))(first, jnp.asarray(table)))
    return by_own_rules(env, [_cut(played, len(shown)) for played, shown in zip(episodes, demos)])


def _rollout(
    env: CompiledEnv, choose: Callable[[EnvState, PRNGKey], Array], state: EnvState, key: PRNGKey
) -> dict[str, Any]:
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


def _unstack(out: Any) -> list[Episode]:
    out = jax.device_get(out)
    count = len(out["begin"])
    return [_episode(jax.tree.map(lambda leaf, i=i: leaf[i], out)) for i in range(count)]


def _episode(out: dict[str, Any]) -> Episode:
    steps = int(out["alive"].sum())
    t = out["transition"]
    info = {}
    for name, later in out["info"].items():
        begin = out["begin_info"].get(name, np.zeros_like(later[0]))
        info[name] = np.concatenate([begin[None], later[:steps]])
    return Episode(
        observations=np.concatenate([out["begin"][None], t.next_obs[:steps]]),
        actions=t.action[:steps],
        rewards=t.reward[:steps],
        terminated=bool(t.terminated[steps - 1]),
        truncated=bool(t.truncated[steps - 1]),
        info=info,
    )


def _cut(episode: Episode, steps: int) -> Episode:
    """A demonstration may stop before the environment would."""
    steps = min(steps, len(episode))
    whole = steps == len(episode)
    assert episode.rewards is not None
    return Episode(
        observations=episode.observations[: steps + 1],
        actions=episode.actions[:steps],
        rewards=episode.rewards[:steps],
        terminated=whole and episode.terminated,
        truncated=whole and episode.truncated,
        info={k: v[: steps + 1] for k, v in episode.info.items()},
    )
