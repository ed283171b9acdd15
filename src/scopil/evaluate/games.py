"""Whole games on a compiled environment: a policy playing, or a demonstration replayed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from scopil.demos.dataset import Demonstrations
from scopil.envs.functional import CompiledEnv, EnvState
from scopil.errors import EnvError
from scopil.types import PRNGKey

Act = Callable[[Any, Array, PRNGKey], Array]  # (policy parameters, observation, key) → action


@dataclass(frozen=True, kw_only=True, eq=False)
class Game:
    """One finished game with what the environment says of every visited state, the initial one included."""

    observations: np.ndarray  # (T+1, …)
    actions: np.ndarray  # (T, …)
    rewards: np.ndarray  # (T,)
    terminated: bool
    truncated: bool
    info: dict[str, np.ndarray]  # (T+1, …) each: `cost`, `cost_<kind>`, `position`, …

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
        info = env.env.transition_info(state.inner, action, after.inner, env.params)
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
