"""The one way from an environment's cost to training. Oracles alone walk it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.envs.functional import BatchEnv, CompiledEnv, EnvState
from scopil.errors import EnvError
from scopil.types import PRNGKey, Transition


class Costed(NamedTuple):
    """A step, and the true cost of the state it led to."""

    step: Transition
    cost: Float[Array, "*B"]


def step_with_cost(
    env: BatchEnv, state: EnvState, action: Array, key: PRNGKey
) -> tuple[EnvState, Transition, EnvState, Costed]:
    later, transition, after = env.step_batch(state, action, key)
    assert isinstance(env, CompiledEnv), env
    info = jax.vmap(lambda s, a, n: env.env.transition_info(s, a, n, env.params))
    cost = jnp.asarray(info(state.inner, action, after.inner)["cost"], jnp.float32)
    return later, transition, after, Costed(transition, cost)


def refuse_without_cost(env: BatchEnv) -> None:
    if not isinstance(env, CompiledEnv):
        raise EnvError(
            "an oracle is told the cost inside the compiled loop: want an environment written in JAX."
        )
    state = jax.eval_shape(env.reset, jax.random.key(0)).inner
    action: Any = jnp.asarray(env.action_space.sample())
    if "cost" not in jax.eval_shape(env.env.transition_info, state, action, state, env.params):
        raise EnvError(
            f"{type(env.env).__name__} reports no cost, which an oracle needs: want `cost` in its transition_info."
        )
