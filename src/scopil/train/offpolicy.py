"""Off-policy training as one compiled program: act, store, sample, update, thousands of times a dispatch.

The functions are pure: `jax.vmap` them over keys or over the numbers in a config (examples/sweep.py does).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from scopil.algos.base import Algorithm, Metrics, Pairs, spaces_of
from scopil.algos.continuous import ContinuousAlgorithm
from scopil.core import replay as ring
from scopil.core.draws import uniform_indices
from scopil.core.replay import Replay
from scopil.demos.dataset import Demonstrations
from scopil.envs.functional import BatchEnv, EnvState
from scopil.errors import DatasetError
from scopil.train.episodes import summary, tally
from scopil.types import PRNGKey, Transition


class TrainState(NamedTuple):
    """Everything a run is: save it, load it, and the run goes on as if nothing had happened."""

    learner: Any
    env: EnvState
    replay: Replay
    key: PRNGKey  # never changes; each step folds its own number in
    env_steps: Int[Array, ""]
    episode_return: Float[Array, " N"]  # of the episodes being played


@dataclass(frozen=True, eq=False)
class OffPolicy:
    """A learner, an environment and demonstrations, ready to run. Hashable by identity, so jit can close over it."""

    algorithm: Algorithm
    env: BatchEnv
    demos: Pairs | None = None

    def init(self, key: PRNGKey, cfg: Any) -> TrainState:
        """Fresh networks, fresh environments, an empty replay."""
        k_learner, k_env, k_run = jax.random.split(key, 3)
        spaces = spaces_of(self.env.observation_space, self.env.action_space)
        return TrainState(
            learner=self.algorithm.init(k_learner, spaces, cfg),
            env=self.env.reset_batch(k_env, cfg.num_envs),
            replay=ring.empty(cfg.replay_size, self._like()),
            key=k_run,
            env_steps=jnp.int32(0),
            episode_return=jnp.zeros(cfg.num_envs, jnp.float32),
        )

    def warm_up(self, state: TrainState, blocks: Int[Array, ""] | int) -> TrainState:
        """Steps of all environments under the untrained policy, without learning."""
        return jax.lax.fori_loop(0, blocks, lambda _, s: self._interact(s, self._keys(s)[0])[0], state)

    def run(self, state: TrainState, cfg: Any, blocks: Int[Array, ""] | int) -> tuple[TrainState, Metrics]:
        """`blocks` times: one step of every environment, then the gradient steps. The number of blocks is data,
        not structure, so that one compiled program serves every length."""
        shapes = jax.eval_shape(self._block, state, cfg)[1]
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        def body(_, carry):
            state, sums = carry
            state, metrics = self._block(state, cfg)
            return state, jax.tree.map(jnp.add, sums, metrics)

        state, sums = jax.lax.fori_loop(0, blocks, body, (state, zeros))
        return state, summary(sums, blocks, self.block_steps(cfg))

    def _block(self, state: TrainState, cfg: Any) -> tuple[TrainState, dict[str, Metrics]]:
        k_interact, k_update = self._keys(state)
        state, episodes = self._interact(state, k_interact)
        learner, metrics = state.learner, {}
        for k in jax.random.split(k_update, cfg.grad_steps):
            learner, metrics = self._update(learner, state.replay, cfg, k)
        return state._replace(learner=learner), {"update": metrics, "episodes": episodes}

    def _keys(self, state: TrainState) -> tuple[PRNGKey, PRNGKey]:
        k_interact, k_update = jax.random.split(jax.random.fold_in(state.key, state.env_steps))
        return k_interact, k_update

    def _interact(self, state: TrainState, key: PRNGKey) -> tuple[TrainState, Metrics]:
        k_act, k_step = jax.random.split(key)
        action = self.algorithm.policy(state.learner, state.env.obs).sample(k_act)
        env, transition, after = self.env.step_batch(state.env, action, k_step)
        so_far, episodes = tally(transition, after, state.episode_return)
        state = state._replace(
            env=env,
            replay=ring.add(state.replay, self._kept(state.env, transition, after)),
            env_steps=state.env_steps + action.shape[0],
            episode_return=so_far,
        )
        return state, episodes

    def _kept(self, before: EnvState, transition: Transition, after: EnvState) -> Any:
        """What the replay keeps of a step."""
        return transition

    def _update(self, learner: Any, replay: Replay, cfg: Any, key: PRNGKey) -> tuple[Any, Metrics]:
        noise = ()
        if isinstance(self.algorithm, ContinuousAlgorithm):
            key, *noise = jax.random.split(key)
        wanted: list[tuple[int, Any]] = [(cfg.batch_size, replay.size)]
        if self.demos is not None:
            wanted.append((cfg.demo_batch_size, self.demos.action.shape[0]))
        index, *shown = uniform_indices(key, *wanted)
        batch = ring.take(replay, index, self._like())
        demo = None if self.demos is None else Pairs(self.demos.obs[shown[0]], self.demos.action[shown[0]])
        return self.algorithm.update(learner, batch, demo, cfg, *noise)

    def _like(self) -> Any:
        """Shapes and types of what the replay keeps of one step."""
        obs = jnp.zeros(self.env.observation_space.shape, jnp.float32)
        space, flag = self.env.action_space, jnp.array(False)
        action = jnp.zeros(space.shape, jnp.float32 if isinstance(space, gym.spaces.Box) else jnp.int32)
        return Transition(obs, action, jnp.float32(0), obs, flag, flag)

    # --- what the trainer calls: the same functions, compiled -----------------------------------------------------

    def start(self, key: PRNGKey, cfg: Any) -> TrainState:
        """A fresh state with one batch of transitions by the untrained policy in the replay."""
        warmup = -(-cfg.batch_size // cfg.num_envs)
        return self._warm_up(self._init(key, cfg), jnp.int32(warmup))

    def block_steps(self, cfg: Any) -> int:
        """Environment steps a block."""
        return cfg.num_envs

    def run_blocks(self, state: TrainState, cfg: Any, blocks: int) -> tuple[TrainState, Metrics]:
        return self._run(state, cfg, jnp.int32(blocks))

    @partial(jax.jit, static_argnums=0)
    def _init(self, key: PRNGKey, cfg: Any) -> TrainState:
        return self.init(key, cfg)

    @partial(jax.jit, static_argnums=0, donate_argnums=1)
    def _warm_up(self, state: TrainState, blocks: Any) -> TrainState:
        return self.warm_up(state, blocks)

    @partial(jax.jit, static_argnums=0, donate_argnums=1)
    def _run(self, state: TrainState, cfg: Any, blocks: Any) -> tuple[TrainState, Metrics]:
        return self.run(state, cfg, blocks)


def demo_pairs(demos: Demonstrations | None, env: BatchEnv) -> Pairs:
    """The demonstrated pairs for a learner, refused before training starts when they do not fit."""
    if demos is None:
        raise DatasetError(
            "this algorithm learns from demonstrations; give it some: --demos marble-maze/simple-v1."
        )
    for what in ("observation_space", "action_space"):
        found, want = getattr(demos, what), getattr(env, what)
        if type(found) is not type(want) or found.shape != want.shape or not _inside(found, want):
            raise DatasetError(
                f"{demos.name}: {what.replace('_', ' ')} {found}; the environment wants {want}."
            )
    obs = jnp.asarray(demos.observations)
    if isinstance(env.action_space, gym.spaces.Discrete):  # learners count actions from 0
        return Pairs(obs, jnp.asarray(demos.actions - int(env.action_space.start), jnp.int32))
    assert isinstance(env.action_space, gym.spaces.Box)
    _refuse_outside(demos, env.action_space)
    return Pairs(obs, jnp.asarray(demos.actions, jnp.float32))


def _inside(found: gym.Space, want: gym.Space) -> bool:
    """Whether all numbers of one Discrete are numbers of the other; of boxes the demonstrated values are asked."""
    if not (isinstance(found, gym.spaces.Discrete) and isinstance(want, gym.spaces.Discrete)):
        return True
    return bool(want.start <= found.start and found.start + found.n <= want.start + want.n)


def _refuse_outside(demos: Demonstrations, box: gym.spaces.Box) -> None:
    low, high = box.low.astype(np.float32), box.high.astype(np.float32)
    actions = np.asarray(demos.actions, np.float32)
    if (outside := (actions < low) | (actions > high)).any():
        at = np.argwhere(outside)[0]
        raise DatasetError(
            f"{demos.name}: component {at[1]} of action {at[0]} is {actions[tuple(at)]:g}; the environment's actions "
            f"lie in [{low[at[1]]:g}, {high[at[1]]:g}]. Rescale or clip the demonstrations."
        )
