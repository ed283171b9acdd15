"""On-policy training as one compiled program. A block is a rollout and the update it is used for."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from scopil.algos.base import Metrics, Pairs, discrete_spaces
from scopil.algos.onpolicy import OnPolicyAlgorithm, Rollout
from scopil.core.normalise import absorb, normalise
from scopil.envs.functional import BatchEnv, CompiledEnv, EnvState
from scopil.errors import EnvError
from scopil.train.episodes import summary, tally
from scopil.types import PRNGKey


class TrainState(NamedTuple):
    """Everything a run is: save it, load it, and the run goes on as if nothing had happened."""

    learner: Any
    env: EnvState
    key: PRNGKey  # never changes; each block folds its own number in
    env_steps: Int[Array, ""]
    episode_return: Float[Array, " N"]  # of the episodes being played


@dataclass(frozen=True, eq=False)
class OnPolicy:
    """A learner, an environment and demonstrations, ready to run. Hashable by identity, so jit can close over it."""

    algorithm: OnPolicyAlgorithm
    env: BatchEnv
    demos: Pairs | None = None

    def __post_init__(self):
        if self.algorithm.oracle:
            refuse_without_cost(self.env)

    def init(self, key: PRNGKey, cfg: Any) -> Any:
        """Fresh networks, fresh environments."""
        k_learner, k_env, k_run = jax.random.split(key, 3)
        spaces = discrete_spaces(self.env.observation_space, self.env.action_space)
        return TrainState(
            learner=self.algorithm.init(k_learner, spaces, cfg),
            env=self.env.reset_batch(k_env, cfg.num_envs),
            key=k_run,
            env_steps=jnp.int32(0),
            episode_return=jnp.zeros(cfg.num_envs, jnp.float32),
        )

    def run(self, state: Any, cfg: Any, blocks: Int[Array, ""] | int) -> tuple[Any, Metrics]:
        """`blocks` times: a rollout, then its update. The number of blocks is data, not structure."""
        shapes = jax.eval_shape(self.block, state, cfg)[1]
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        def body(_, carry):
            state, sums = carry
            state, metrics = self.block(state, cfg)
            return state, jax.tree.map(jnp.add, sums, metrics)

        state, sums = jax.lax.fori_loop(0, blocks, body, (state, zeros))
        return state, summary(sums, blocks, self.block_steps(cfg))

    def block(self, state: Any, cfg: Any) -> tuple[Any, dict[str, Metrics]]:
        k_rollout, k_update = jax.random.split(jax.random.fold_in(state.key, state.env_steps))
        state, rollout, episodes = self.rollout(state, cfg, k_rollout)
        learner, metrics = self.algorithm.update(state.learner, rollout, self.demos, cfg, k_update)
        return state._replace(learner=learner), {"update": metrics, "episodes": episodes}

    def rollout(self, state: Any, cfg: Any, key: PRNGKey) -> tuple[Any, Rollout, Metrics]:
        """`rollout_steps` of every environment. Observation statistics learn from each observation to act on."""

        def step(carry, key):
            learner, env, so_far = carry
            k_act, k_step = jax.random.split(key)
            seen = normalise(learner.obs_stats, env.obs)
            action = self.algorithm.policy(learner, env.obs).sample(k_act)
            later, transition, after = self.env.step_batch(env, action, k_step)
            told = true_cost(self.env, env, action, after) if self.algorithm.oracle else None
            learner = learner._replace(obs_stats=absorb(learner.obs_stats, later.obs))
            so_far, sums = tally(transition, after, so_far)
            next_seen = normalise(learner.obs_stats, transition.next_obs)
            return (learner, later, so_far), (Rollout(transition, seen, next_seen, told), sums)

        carry = (state.learner, state.env, state.episode_return)
        (learner, env, so_far), (rollout, sums) = jax.lax.scan(
            step, carry, jax.random.split(key, cfg.rollout_steps)
        )
        state = state._replace(
            learner=learner, env=env, episode_return=so_far, env_steps=state.env_steps + self.block_steps(cfg)
        )
        return state, rollout, jax.tree.map(jnp.sum, sums)

    # --- what the trainer calls: the same functions, compiled -----------------------------------------------------

    def block_steps(self, cfg: Any) -> int:
        """Environment steps a block."""
        return cfg.num_envs * cfg.rollout_steps

    @partial(jax.jit, static_argnums=0)
    def start(self, key: PRNGKey, cfg: Any) -> Any:
        return self.init(key, cfg)

    def run_blocks(self, state: Any, cfg: Any, blocks: int) -> tuple[Any, Metrics]:
        return self._run(state, cfg, jnp.int32(blocks))

    @partial(jax.jit, static_argnums=0, donate_argnums=1)
    def _run(self, state: Any, cfg: Any, blocks: Any) -> tuple[Any, Metrics]:
        return self.run(state, cfg, blocks)


def true_cost(env: BatchEnv, before: EnvState, action: Array, after: EnvState) -> Float[Array, " N"]:
    """The one way from an environment's cost to training, walked by oracles alone."""
    assert isinstance(env, CompiledEnv), env
    info = jax.vmap(lambda s, a, n: env.env.transition_info(s, a, n, env.params))
    return jnp.asarray(info(before.inner, action, after.inner)["cost"], jnp.float32)


def refuse_without_cost(env: BatchEnv) -> None:
    if not isinstance(env, CompiledEnv):
        raise EnvError(
            "an oracle is told the cost inside the compiled loop: want an environment written in JAX."
        )
    state = jax.eval_shape(env.reset, jax.random.key(0)).inner
    action = jnp.asarray(env.action_space.sample())
    if "cost" not in jax.eval_shape(env.env.transition_info, state, action, state, env.params):
        raise EnvError(
            f"{type(env.env).__name__} reports no cost, which an oracle is told: want `cost` in its transition_info."
        )
