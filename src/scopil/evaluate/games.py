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

Act = Callable[[Array, PRNGKey], Array]  # (observation, key) → action
Script = Callable[[EnvState, PRNGKey], Array]


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


def play(env: CompiledEnv, act: Act, first: EnvState, key: PRNGKey) -> list[Game]:
    """One game from each of the batch of first states (see `first_states`)."""
    return _games(env, lambda state, k: act(state.obs, k), first, key)


def first_states(env: CompiledEnv, starts: np.ndarray) -> EnvState:
    """A batch of first states at given starts, for environments that can be put somewhere."""
    if not hasattr(env.env, "initial_at"):
        raise EnvError(f"{type(env.env).__name__} has no `initial_at`: play from random starts instead.")
    states = [env.begin(env.env.initial_at(s, env.params), jax.random.key(0)) for s in np.asarray(starts)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


def replay(env: CompiledEnv, demos: Demonstrations) -> list[Game]:
    """The demonstrated actions played again from the demonstrated starts."""
    if demos.starts is None:
        raise EnvError(f"{demos.name} does not say where its games start: it cannot be replayed.")
    longest = max(len(e) for e in demos)
    table = np.stack([np.resize(e.actions, (longest, *e.actions.shape[1:])) for e in demos])
    first = first_states(env, demos.starts)
    games = _games(env, _Scripted(jnp.asarray(table)), first, jax.random.key(0))
    return [_cut(g, len(e)) for g, e in zip(games, demos)]


class _Scripted:
    """Plays row i of a table in game i; `_games` hands it the game's number through `index`."""

    def __init__(self, table: Array):
        self.table = table

    def of(self, index: Array) -> Script:
        return lambda state, key: self.table[index][jnp.minimum(state.steps, self.table.shape[1] - 1)]


def _games(env: CompiledEnv, script: Script | _Scripted, first: EnvState, key: PRNGKey) -> list[Game]:
    count = first.steps.shape[0]
    keys = jax.random.split(key, count)

    def one(state, index, key):
        chosen = script.of(index) if isinstance(script, _Scripted) else script
        return _rollout(env, chosen, state, key)

    out = jax.device_get(jax.jit(jax.vmap(one))(first, jnp.arange(count), keys))
    return [_game(jax.tree.map(lambda leaf, i=i: leaf[i], out)) for i in range(count)]


def _rollout(env: CompiledEnv, script: Script, state: EnvState, key: PRNGKey) -> dict[str, Any]:
    begin_info = env.env.state_info(state.inner, env.params)

    def body(carry, k):
        state, alive = carry
        k_act, k_step = jax.random.split(k)
        action = script(state, k_act)
        after, t = env.advance(state, action, k_step)
        info = env.env.transition_info(state.inner, action, after.inner, env.params)
        over = t.terminated | t.truncated
        row = {"transition": t, "info": info, "alive": alive}
        return (jax.tree.map(lambda new, old: jnp.where(alive, new, old), after, state), alive & ~over), row

    _, rows = jax.lax.scan(body, (state, jnp.array(True)), jax.random.split(key, env.horizon))
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
