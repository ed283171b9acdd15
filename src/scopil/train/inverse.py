"""Training that alternates forward phases (on-policy blocks under the learned constraint) with backward ones."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from scopil.algos.base import Metrics
from scopil.algos.onpolicy import InverseAlgorithm, Trajectories
from scopil.core.normalise import restarted
from scopil.demos.dataset import Demonstrations
from scopil.envs.functional import BatchEnv, EnvState
from scopil.train.onpolicy import OnPolicy
from scopil.types import PRNGKey


class TrainState(NamedTuple):
    """An on-policy run's state, and what the backward phases need and say."""

    learner: Any
    env: EnvState
    key: PRNGKey
    env_steps: Int[Array, ""]  # of forward phases; games sampled for the backward ones come on top
    episode_return: Float[Array, " N"]
    outer_key: PRNGKey
    last: Metrics  # of the newest backward phase and of all together; zeros before the first


@dataclass(frozen=True, eq=False, kw_only=True)
class Inverse(OnPolicy):
    """After every forward phase: sample games, learn the constraint from them and the experts', begin anew."""

    algorithm: InverseAlgorithm
    experts: Trajectories  # every demonstrated game

    def init(self, key: PRNGKey, cfg: Any) -> TrainState:
        k_run, k_outer = jax.random.split(key)
        begun = super().init(k_run, cfg)
        state = TrainState(**begun._asdict(), outer_key=k_outer, last={})
        shapes = jax.eval_shape(self._outer, state, cfg).last
        return state._replace(last=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes))

    def run(self, state: TrainState, cfg: Any, blocks: Int[Array, ""] | int) -> tuple[TrainState, Metrics]:
        """The blocks' means, and what the newest backward phase said: a mean over phases would count nothing."""
        state, metrics = super().run(state, cfg, blocks)
        return state, metrics | state.last

    def block(self, state: TrainState, cfg: Any) -> tuple[TrainState, dict[str, Metrics]]:
        state, metrics = super().block(state, cfg)
        phase = self._phase_steps(cfg)
        due = state.env_steps // phase > (state.env_steps - self.block_steps(cfg)) // phase
        return jax.lax.cond(due, lambda s: self._outer(s, cfg), lambda s: s, state), metrics

    def _phase_steps(self, cfg: Any) -> int:
        block = self.block_steps(cfg)
        return -(-cfg.forward_steps // block) * block

    def _outer(self, state: TrainState, cfg: Any) -> TrainState:
        """The end of a forward phase. Networks, multipliers and statistics stay, the environments are reset."""
        phase = state.env_steps // self._phase_steps(cfg)
        k_draw, k_games, k_env = jax.random.split(jax.random.fold_in(state.outer_key, phase), 3)
        own = self.games(state.learner, k_games, cfg.rollouts)
        learner, last = self.algorithm.backward(
            state.learner, self.draw(k_draw, cfg.rollouts), own, cfg, phase - 1
        )
        last |= {
            "constraint/games_steps": own.mask.sum().astype(jnp.float32),
            "constraint/phases": phase.astype(jnp.float32),
            "constraint/all_steps": state.last.get("constraint/all_steps", 0.0) + last["constraint/steps"],
        }
        scales = {name: restarted(getattr(learner, name)) for name in ("reward_scale", "cost_scale")}
        return state._replace(
            learner=learner._replace(**scales),
            env=self.env.reset_batch(k_env, cfg.num_envs),
            episode_return=jnp.zeros_like(state.episode_return),
            last=last,
        )

    def draw(self, key: PRNGKey, count: int) -> Trajectories:
        """Demonstrated games: some of them when there are enough, or all of them again and again."""
        games = self.experts.mask.shape[0]
        index = jax.random.choice(key, games, (count,), replace=games < count)
        return Trajectories(*(leaf[index] for leaf in self.experts))

    def games(self, learner: Any, key: PRNGKey, count: int) -> Trajectories:
        """Whole games of the sampling policy."""
        k_first, k_play = jax.random.split(key)

        def step(carry, key):
            env, alive = carry
            k_act, k_step = jax.random.split(key)
            action = self.algorithm.policy(learner, env.obs).sample(k_act)
            after, transition = self.env.advance_batch(env, action, k_step)
            over = transition.terminated | transition.truncated
            # Beyond its end a game may be anything, even NaN, whose gradient a mask would not stop.
            obs = jnp.where(jnp.broadcast_to(alive[:, None], env.obs.shape), env.obs, 0.0)
            return (after, alive & ~over), Trajectories(obs, action, alive)

        first = (self.env.reset_batch(k_first, count), jnp.ones(count, bool))
        _, rows = jax.lax.scan(step, first, jax.random.split(k_play, self.env.horizon))
        return Trajectories(*(jnp.swapaxes(leaf, 0, 1) for leaf in rows))


def padded(demos: Demonstrations, env: BatchEnv) -> Trajectories:
    """Demonstrated games, padded to the longest."""
    first = getattr(env.action_space, "start", 0)  # learners count actions from 0
    longest = max(len(e) for e in demos)

    def pad(rows: np.ndarray, dtype: Any) -> np.ndarray:
        return np.concatenate([rows, np.zeros((longest - len(rows), *rows.shape[1:]), rows.dtype)]).astype(
            dtype
        )

    return Trajectories(
        jnp.asarray(np.stack([pad(e.observations[:-1], np.float32) for e in demos])),
        jnp.asarray(np.stack([pad(e.actions - first, np.int32) for e in demos])),
        jnp.asarray(np.stack([np.arange(longest) < len(e) for e in demos])),
    )
