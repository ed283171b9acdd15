"""Whole games: a policy playing, on a compiled environment or on the host, or a demonstration replayed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from scopil.demos.dataset import Demonstrations, Episode
from scopil.envs.functional import CompiledEnv, EnvState
from scopil.envs.host import HostEnv
from scopil.envs.host_vector import HostVector as Group
from scopil.errors import ConfigError, EnvError
from scopil.types import PRNGKey

Act = Callable[[Any, Array, PRNGKey], Array]  # (policy parameters, observation, key) → action
# (observation, action, next observation) → a number, above 0 where unlawful, or such numbers by the kind of law
Cost = Callable[[np.ndarray, Any, np.ndarray], Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Game(Episode):
    """One finished game with what the environment says of every visited state, the initial one included."""

    kinds_add_up: bool = (
        True  # violations are the sum over kinds, as the paper counts them; else those of `cost`
    )

    @property
    def steps(self) -> int:
        return len(self.actions)


class Player:
    """Plays games from a batch of first states. Compiled on the first call, for all parameters after it."""

    def __init__(self, env: CompiledEnv, act: Act):
        def games(params, first, key):
            keys = jax.random.split(key, first.steps.shape[0])
            return jax.vmap(lambda s, k: _rollout(env, lambda s, k: act(params, s.obs, k), s, k))(first, keys)

        self._games = jax.jit(games)

    def __call__(self, params: Any, first: EnvState, key: PRNGKey) -> list[Game]:
        return _unstack(self._games(params, first, key))


class Seeds(NamedTuple):
    """First states of a foreign environment: what its games are reset with."""

    seeds: np.ndarray


class HostPlayer:
    """Plays games on foreign environments, some side by side. A game depends on its seed and its number alone."""

    def __init__(self, env: HostEnv, act: Act):
        def choose(params, obs, key, games, step):
            keys = jax.vmap(lambda game: jax.random.fold_in(jax.random.fold_in(key, game), step))(games)
            return jax.vmap(act, in_axes=(None, 0, 0))(params, obs, keys)

        self._env, self._choose = env, jax.jit(choose)

    def __call__(self, params: Any, first: Seeds, key: PRNGKey) -> list[Game]:
        group = self._env.players(len(first.seeds))
        games: list[Game] = []
        for begin in range(0, len(first.seeds), group.num_envs):
            seeds = first.seeds[begin : begin + group.num_envs]
            games += self._some(group, params, seeds, begin, key)
        return games

    def _some(self, group: Group, params: Any, seeds: np.ndarray, begin: int, key: PRNGKey) -> list[Game]:
        """As many games as there are environments, or fewer."""
        lanes, count = group.num_envs, len(seeds)
        obs, infos = group.reset(np.resize(seeds, lanes))
        diaries = [_Diary(obs[i], group.costs(infos, i)) for i in range(count)]
        alive, numbers = np.arange(lanes) < count, np.arange(begin, begin + lanes)
        for step in range(self._env.horizon):
            actions = np.asarray(self._choose(params, obs, key, numbers, step))
            out = group.step(actions, None, alive)
            given = self._env.flat.actions(actions)
            for i in np.flatnonzero(alive):
                costs = group.costs(out.infos, int(i))
                diaries[i].add(
                    given[i], float(out.reward[i]), out.next_obs[i], bool(out.terminated[i]), costs
                )
            obs, alive = out.obs, alive & ~(out.terminated | out.truncated)
            if not alive.any():
                break
        return [diary.game() for diary in diaries]


class _Diary:
    """A game while it is played."""

    def __init__(self, obs: np.ndarray, costs: dict[str, float]):
        self.observations, self.costs = [obs], [costs]
        self.actions: list[Any] = []
        self.rewards: list[float] = []
        self.terminated = False

    def add(
        self, action: Any, reward: float, obs: np.ndarray, terminated: bool, costs: dict[str, float]
    ) -> None:
        self.actions.append(action)
        self.rewards.append(reward)
        self.observations.append(obs)
        self.costs.append(costs)
        self.terminated = terminated

    def game(self) -> Game:
        names = dict.fromkeys(name for costs in self.costs for name in costs)
        return Game(
            observations=np.stack(self.observations),
            actions=np.stack(self.actions),
            rewards=np.array(self.rewards, np.float32),
            terminated=self.terminated,
            truncated=not self.terminated,  # by its own clock, or called off
            info={name: np.array([costs.get(name, 0.0) for costs in self.costs]) for name in names},
            kinds_add_up="cost" not in names,
        )


def with_cost(games: Sequence[Game], cost: Cost) -> list[Game]:
    """The same games under a law of the caller's own, in place of whatever the environment reported."""
    return [_judged(game, cost) for game in games]


def _judged(game: Game, cost: Cost) -> Game:
    seen = game.observations
    try:
        found = [_by_kind(cost(seen[t], game.actions[t], seen[t + 1])) for t in range(game.steps)]
        info = {name: np.array([0.0, *(kinds[name] for kinds in found)]) for name in found[0]}
    except Exception as error:
        raise ConfigError(
            f"the cost function failed: {type(error).__name__}: {error}; want cost(obs, action, next_obs) → a number, "
            f"or numbers by name."
        ) from error
    kept = {k: v for k, v in game.info.items() if k != "cost" and not k.startswith("cost_")}
    return replace(game, info=kept | info, kinds_add_up=True)


def _by_kind(cost: Any) -> dict[str, float]:
    if isinstance(cost, Mapping):
        return {f"cost_{kind}": float(value) for kind, value in cost.items()}
    return {"cost": float(cost)}


def first_states(env: CompiledEnv, starts: np.ndarray) -> EnvState:
    """A batch of first states at given starts, for environments that can be put somewhere."""
    if not hasattr(env.env, "initial_at"):
        raise EnvError(f"{type(env.env).__name__} has no `initial_at`: play from random starts instead.")
    place = env.env.initial_at  # pyright: ignore[reportAttributeAccessIssue]
    states = [env.begin(place(s, env.params), jax.random.key(0)) for s in np.asarray(starts)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


def replay(env: CompiledEnv, demos: Demonstrations) -> list[Game]:
    """The demonstrated actions played again from the demonstrated starts."""
    if demos.starts is None:
        raise EnvError(f"{demos.name} does not say where its games start: it cannot be replayed.")
    longest = max(len(e) for e in demos)
    table = np.stack([np.resize(e.actions, (longest, *e.actions.shape[1:])) for e in demos])
    first = first_states(env, demos.starts)

    def one(state, actions):
        play = lambda s, _: actions[jnp.minimum(s.steps, longest - 1)]  # noqa: E731
        return _rollout(env, play, state, jax.random.key(0))

    games = _unstack(jax.jit(jax.vmap(one))(first, jnp.asarray(table)))
    return [_cut(g, len(e)) for g, e in zip(games, demos)]


def _unstack(out: Any) -> list[Game]:
    out = jax.device_get(out)
    count = len(out["begin"])
    return [_game(jax.tree.map(lambda leaf, i=i: leaf[i], out)) for i in range(count)]


def _rollout(
    env: CompiledEnv, script: Callable[[EnvState, PRNGKey], Array], state: EnvState, key: PRNGKey
) -> dict[str, Any]:
    begin_info = env.env.state_info(state.inner, env.params)

    def body(carry, step):
        state, alive = carry
        k_act, k_step = jax.random.split(jax.random.fold_in(key, step))
        action = script(state, k_act)
        after, t = env.advance(state, action, k_step)
        info = env.env.transition_info(state.inner, env.given(action), after.inner, env.params)
        over = t.terminated | t.truncated
        row = {"transition": t, "info": info, "alive": alive}
        return (jax.tree.map(lambda new, old: jnp.where(alive, new, old), after, state), alive & ~over), row

    _, rows = jax.lax.scan(body, (state, jnp.array(True)), jnp.arange(env.horizon))
    return rows | {"begin": state.obs, "begin_info": begin_info}


def _game(out: dict[str, Any]) -> Game:
    steps = int(out["alive"].sum())
    t = out["transition"]
    info = {}
    for name, later in out["info"].items():
        begin = out["begin_info"].get(name, np.zeros_like(later[0]))
        info[name] = np.concatenate([begin[None], later[:steps]])
    return Game(
        observations=np.concatenate([out["begin"][None], t.next_obs[:steps]]),
        actions=t.action[:steps],
        rewards=t.reward[:steps],
        terminated=bool(t.terminated[steps - 1]),
        truncated=bool(t.truncated[steps - 1]),
        info=info,
    )


def _cut(game: Game, steps: int) -> Game:
    """A demonstration may stop before the environment would."""
    steps = min(steps, game.steps)
    whole = steps == game.steps
    return Game(
        observations=game.observations[: steps + 1],
        actions=game.actions[:steps],
        rewards=game.rewards[:steps],
        terminated=whole and game.terminated,
        truncated=whole and game.truncated,
        info={k: v[: steps + 1] for k, v in game.info.items()},
    )
