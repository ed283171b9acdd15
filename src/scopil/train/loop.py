"""Training as one compiled program. An iteration acts, stores and updates; one call runs thousands of iterations.

One loop serves all algorithms and collects the data listed in `Algorithm.wants`. The functions are pure: `jax.vmap`
works over keys and over the numeric settings of a config (see examples/sweep.py).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import MethodType
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from scopil.algos.base import Algorithm, Data, Metrics, PaddedEpisodes, TrueCost, spaces_of
from scopil.buffers import replay as ring
from scopil.buffers.replay import Replay, uniform_indices
from scopil.envs.base import BatchEnv, EnvState
from scopil.errors import ConfigError, EnvError
from scopil.nn.nets import Network
from scopil.policy import Policy
from scopil.train.demo_data import DemoData, demo_data
from scopil.types import PRNGKey, Transition

MEMORY_SHARE = 0.8  # largest share of the machine's memory for a replay or a rollout
CGROUP = Path("/sys/fs/cgroup/memory.max")  # memory limit of a container
# Compiler options for short programs, which take longer to compile than to run. XLA's older emitters compile several
# times faster; XLA stops at an option that it does not know.
FAST_COMPILE: dict[str, Any] = {"xla_backend_optimization_level": 0}
if jax.__version__.startswith("0.10."):
    FAST_COMPILE |= {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}


class TrainState(NamedTuple):
    """The whole state of training. With a compiled environment, a run restored from it gives bit-identical results."""

    learner: Any
    env: EnvState | None  # None if the algorithm steps no environment
    replay: Replay | None
    key: PRNGKey  # constant; each iteration folds in its step number
    env_steps: Int[Array, ""]  # environment steps so far; gradient steps if the algorithm steps no environment
    episode_return: Float[Array, " N"]  # returns so far of the unfinished episodes
    chunk: "Accumulator | None" = None  # in a checkpoint: the chunk that has no row of metrics yet


class Accumulator(NamedTuple):
    """Sums over the iterations of a chunk. `Loop.metrics_of` computes the metrics of the chunk from them."""

    sums: Metrics  # sums of the updates' metrics; with rollouts, the metrics of the newest update
    episodes: Metrics  # sums over the finished episodes
    iterations: Int[Array, ""]


class Costed(NamedTuple):
    """A step with the true cost of its next state. Only algorithms that want the true cost store it."""

    step: Transition
    cost: Float[Array, "*B"]


def _compiled(method: Callable[..., Any], **options: Any) -> Any:
    """A method as a compiled program. The object owns the program: both are released together."""
    return cached_property(lambda self: jax.jit(MethodType(method, self), **options))


@dataclass(frozen=True, eq=False)
class Loop:
    """An algorithm with its environment and demonstrations."""

    algorithm: Algorithm
    env: BatchEnv
    demos: DemoData | None = None
    counts: bool = True  # whether to count violations while learning, if the environment can

    def __post_init__(self) -> None:
        if self._wants("true_cost") and not self.env.reports_cost():
            raise EnvError(
                f"{self.algorithm.title} learns from the true cost, but the environment reports none; want "
                f'info["cost"] at every step (for a JAX environment: `cost` in its transition_info).'
            )

    def refuse_settings(self, cfg: Any) -> None:
        """Raise if settings for the wanted data are missing, do not suit the actions, or need too much memory."""
        needed = {"replay": ("replay_size", "batch_size", "num_envs"), "rollout": ("rollout_steps", "num_envs")}
        needed |= {"demo_batch": ("demo_batch_size",)}
        for part, names in needed.items():
            if missing := [n for n in names if self._wants(part) and not hasattr(cfg, n)]:
                raise ConfigError(f"{self.algorithm.name} wants {part}; its config lacks {', '.join(missing)}.")
        spaces = spaces_of(self.env.observation_space, self.env.action_space, self.env.spaces)
        if problem := getattr(cfg, "problem_with", lambda head: None)(spaces.head):
            raise ConfigError(problem)
        if getattr(cfg, "overlap", False) and (self._wants("newest") or self._wants("true_cost")):
            raise ConfigError(
                f"overlap = True; {self.algorithm.title} learns from the newest step, which an update with overlap "
                f"does not have; want overlap = False.",
                setting="overlap",
            )
        if self._wants("replay"):
            row = ring.bytes_per_row(jax.eval_shape(self._stored_shape))
            _refuse_too_large("replay_size", cfg.replay_size, row, spaces.obs_dim)
        if self._wants("rollout"):
            row = ring.bytes_per_row(jax.eval_shape(self._kept_shape))
            _refuse_too_large("rollout_steps", cfg.rollout_steps, row * cfg.num_envs, spaces.obs_dim)
        try:
            policy = jax.eval_shape(lambda key: self.algorithm.policy(self.init_learner(key, cfg)), jax.random.key(0))
        except OverflowError as error:
            raise ConfigError(f"{self.algorithm.name}: the networks exceed all memory; lower hidden.") from error
        if not isinstance(policy, Policy) or not isinstance(policy.network, Network):
            raise ConfigError(
                f"{self.algorithm.name}: policy(state) is not a Policy with an MLP, a ConvNet or a GaussianNet; "
                f"saving and export need one of these."
            )

    # --- the program --------------------------------------------------------------------------------------------------

    def init(self, key: PRNGKey, cfg: Any) -> TrainState:
        """The state before training, with new networks, new episodes and a new replay."""
        k_learner, k_env, k_run = jax.random.split(key, 3)
        stepped = self.algorithm.steps_environment
        num_envs = cfg.num_envs if stepped else 0
        learner = self.init_learner(k_learner, cfg)
        if self.algorithm.prepare is not None:
            assert self.demos is not None
            k_prepare = jax.random.fold_in(k_learner, jnp.uint32(2**32 - 1))  # a key that `init` does not use
            shown = Data(demos=self.demos.transitions, demo_starts=self.demos.starts)
            learner = self.algorithm.prepare(learner, shown, cfg, k_prepare)
        return TrainState(
            learner=learner,
            env=self.env.reset_batch(k_env, num_envs) if stepped else None,
            replay=self._first_replay(cfg) if self._wants("replay") else None,
            key=k_run,
            env_steps=jnp.int32(0),
            episode_return=jnp.zeros(num_envs, jnp.float32),
        )

    def _first_replay(self, cfg: Any) -> Replay:
        """The replay before training: empty, or with the demonstrated steps. Its size is a multiple of num_envs."""
        replay = ring.empty(cfg.replay_size // cfg.num_envs * cfg.num_envs, self._stored_shape())
        if not self.algorithm.replay_demos or self.demos is None or self.demos.transitions.reward is None:
            return replay
        demos = self.demos.transitions
        never = jnp.zeros(len(demos.obs), bool)
        steps = Transition(demos.obs, demos.action, demos.reward, demos.next_obs, demos.terminated, never)
        # If a demonstration set lacks the last observation of an episode, `next_obs` repeats `obs` there. Such steps
        # are left out: a critic would learn that the state leads back to itself.
        last = np.append(np.diff(np.asarray(demos.episode)) != 0, True)
        same = (np.asarray(demos.obs) == np.asarray(demos.next_obs)).all(axis=-1)
        whole = np.flatnonzero(~(last & same & ~np.asarray(demos.terminated)))
        whole = whole[: min(len(whole), replay.rows.shape[0]) // cfg.num_envs * cfg.num_envs]
        return ring.begin_with(replay, self._stored(jax.tree.map(lambda leaf: leaf[whole], steps)))

    def init_learner(self, key: PRNGKey, cfg: Any) -> Any:
        spaces = spaces_of(self.env.observation_space, self.env.action_space, self.env.spaces)
        return self.algorithm.init(key, spaces, cfg)

    def warm_up(self, state: TrainState, iterations: Int[Array, ""] | int) -> TrainState:
        """Step all environments with the untrained policy, without updates."""
        return jax.lax.fori_loop(0, iterations, lambda _, s: self._collect(s, self._keys(s)[0])[0], state)

    def run(self, state: TrainState, cfg: Any, iterations: Int[Array, ""] | int) -> tuple[TrainState, Metrics]:
        """Run iterations. Each steps every environment, then updates the learner. The number of iterations is an
        argument of the compiled program, so that one program serves every length."""
        state, accumulator = self.run_on(state, cfg, iterations, self.new_accumulator(state, cfg))
        return state, self.metrics_of(accumulator, cfg)

    def new_accumulator(self, state: TrainState, cfg: Any) -> Accumulator:
        """An accumulator of zero iterations."""
        shapes = jax.eval_shape(self._iteration, state, cfg)[1]
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return Accumulator(*zeros, iterations=jnp.int32(0))

    def run_on(
        self, state: TrainState, cfg: Any, iterations: Int[Array, ""] | int, accumulator: Accumulator
    ) -> tuple[TrainState, Accumulator]:
        """A part of `run`. Each call continues with the state and the accumulator of the previous call."""

        def body(_, carry):
            state, (sums, episodes) = carry
            state, (metrics, played) = self._iteration(state, cfg)
            # With rollouts, updates are few and long: the metrics are those of the newest update. Otherwise they are
            # summed for the mean.
            sums = metrics if self._wants("rollout") else jax.tree.map(jnp.add, sums, metrics)
            return state, (sums, jax.tree.map(jnp.add, episodes, played))

        state, (sums, episodes) = jax.lax.fori_loop(
            0, iterations, body, (state, (accumulator.sums, accumulator.episodes))
        )
        return state, Accumulator(sums, episodes, accumulator.iterations + iterations)

    def metrics_of(self, accumulator: Accumulator, cfg: Any) -> Metrics:
        count = 1 if self._wants("rollout") else accumulator.iterations
        metrics = {name: value / count for name, value in accumulator.sums.items()}
        return metrics | _summary(accumulator.episodes, accumulator.iterations * self.iteration_steps(cfg))

    def iteration(self, state: TrainState, cfg: Any) -> tuple[TrainState, tuple[Metrics, Metrics]]:
        """One iteration. Returns the new state, the metrics of its last update, and sums over ended episodes."""
        k_collect, k_update, k_restart = self._keys(state)
        if getattr(cfg, "overlap", False):
            return self._overlapped(state, cfg, k_collect, k_update, k_restart)
        began = None if state.env is None else (state.env.steps == 0) | self._stops(state)
        if not self.algorithm.steps_environment:
            state, collected, episodes = state._replace(env_steps=state.env_steps + 1), None, {}
        elif self._wants("rollout"):
            state, collected, episodes = self._rollout(state, cfg, k_collect)
        else:
            state, collected, episodes = self._collect(state, k_collect)
        learner, metrics = self._learn(state, collected, cfg, k_update, began)
        state = self._restart(state._replace(learner=learner), cfg, k_restart)
        return state, (metrics, episodes)

    def _learn(self, state: TrainState, collected: Any, cfg: Any, key: PRNGKey, began: Any) -> tuple[Any, Metrics]:
        learner, metrics = state.learner, {}
        for k in jax.random.split(key, getattr(cfg, "grad_steps", 1)):
            k_data, k_learn = jax.random.split(k)
            data = self._data(state, collected, cfg, k_data, began)
            learner, metrics = self.algorithm.update(learner, data, cfg, k_learn)
        return learner, metrics

    def _overlapped(
        self, state: TrainState, cfg: Any, k_collect: PRNGKey, k_update: PRNGKey, k_restart: PRNGKey
    ) -> tuple[TrainState, tuple[Metrics, Metrics]]:
        """An iteration whose environments step during the update. The step is stored after the update, so that the next
        iteration begins with a complete state."""
        assert state.env is not None
        action, k_step = _act(self._behaviour(state), state.env, k_collect)
        zero = self.env.begin_batch(state.env, action, k_step)
        # The sum makes XLA begin the step before the update.
        k_update = jax.random.wrap_key_data(jax.random.key_data(k_update) + zero.astype(jnp.uint32))
        learner, metrics = self._learn(state, None, cfg, k_update, None)
        state, _, episodes = self._store(state, action, k_step, after=_some_number(learner))
        return self._restart(state._replace(learner=learner), cfg, k_restart), (metrics, episodes)

    # With jit, JAX traces `iteration` only once, for its shapes and for the loop. `inline` keeps the program unchanged.
    _iteration = _compiled(iteration, inline=True)

    def _stops(self, state: TrainState) -> Any:
        """The environments whose episodes are stopped before the next step."""
        return False if self.algorithm.stops is None else self.algorithm.stops(state.learner)

    def _wants(self, part: str) -> bool:
        return part in self.algorithm.wants

    def _keys(self, state: TrainState) -> tuple[PRNGKey, ...]:
        """The random keys of one iteration: for collecting, for updates and for restarts."""
        return tuple(jax.random.split(jax.random.fold_in(state.key, state.env_steps), 3))

    # --- collecting ---------------------------------------------------------------------------------------------------

    def _behaviour(self, state: TrainState) -> Policy:
        return (self.algorithm.behaviour or self.algorithm.policy)(state.learner)

    def _step(
        self, env: EnvState, action: Array, key: PRNGKey, so_far: Float[Array, " N"], after: Any = None
    ) -> tuple[EnvState, Float[Array, " N"], Any, Metrics]:
        """One step of every environment. Returns the next state of the environments, the returns of unfinished
        episodes, the step to store, and sums over the episodes that ended. If `after` is given, the step was begun
        before, and ends when `after` is computed."""
        counted: Metrics = {}
        if self._wants("true_cost") or (after is None and self.counts and self.env.counts_violations()):
            later, transition, before_reset, cost = self.env.step_batch_with_cost(env, action, key)
            counted = {"violations": (cost > 0).sum().astype(jnp.float32)}
            kept = Costed(transition, cost) if self._wants("true_cost") else transition
        else:
            stepped = self.env.step_batch if after is None else partial(self.env.finish_batch, after=after)
            later, transition, before_reset = stepped(env, action, key)
            kept = transition
        so_far, sums = _episode_sums(transition, before_reset, so_far)
        sums |= counted
        return later, so_far, kept, sums

    def collect(self, state: TrainState, key: PRNGKey) -> tuple[TrainState, Any, Metrics]:
        """One step of every environment, stored in the replay."""
        assert state.env is not None
        if self.algorithm.stops is None:
            return self._store(state, *_act(self._behaviour(state), state.env, key))
        stopped = self._stops(state) & (state.env.steps > 0)
        env = self.env.restart(state.env, stopped, jax.random.fold_in(key, 1))
        state = state._replace(env=env, episode_return=jnp.where(stopped, 0.0, state.episode_return))
        state, kept, sums = self._store(state, *_act(self._behaviour(state), env, key))
        return state, kept, sums | {"stopped": stopped.sum().astype(jnp.float32)}

    _collect = _compiled(collect, inline=True)  # traced once, for `warm_up` and for `iteration`

    def _store(
        self, state: TrainState, action: Array, key: PRNGKey, after: Any = None
    ) -> tuple[TrainState, Any, Metrics]:
        assert state.env is not None
        assert state.replay is not None
        env, so_far, kept, sums = self._step(state.env, action, key, state.episode_return, after)
        state = state._replace(
            env=env,
            replay=ring.add(state.replay, self._stored(kept)),
            env_steps=state.env_steps + len(so_far),
            episode_return=so_far,
        )
        return state, kept, sums

    def _rollout(self, state: TrainState, cfg: Any, key: PRNGKey) -> tuple[TrainState, Any, Metrics]:
        """`rollout_steps` steps of every environment with the same policy."""
        policy = self._behaviour(state)

        def step(carry, key):
            env, so_far = carry
            env, so_far, kept, sums = self._step(env, *_act(policy, env, key), so_far)
            return (env, so_far), (kept, sums)

        (env, so_far), (kept, sums) = jax.lax.scan(
            step, (state.env, state.episode_return), jax.random.split(key, cfg.rollout_steps)
        )
        steps = state.env_steps + self.iteration_steps(cfg)
        state = state._replace(env=env, episode_return=so_far, env_steps=steps)
        return state, kept, jax.tree.map(jnp.sum, sums)

    def _restart(self, state: TrainState, cfg: Any, key: PRNGKey) -> TrainState:
        """Restart all episodes if the algorithm asks for it."""
        if self.algorithm.restart_every is None:
            return state
        assert state.env is not None
        every, iteration = self.algorithm.restart_every(cfg), self.iteration_steps(cfg)
        due = state.env_steps // every > (state.env_steps - iteration) // every

        def anew(state: TrainState) -> TrainState:
            assert state.env is not None
            # Episodes of `play` may have used the same environments; the learner depends on them.
            env = self.env.reset_batch(key, cfg.num_envs, after=_some_number((state.learner, state.env)))
            return state._replace(env=env, episode_return=jnp.zeros_like(state.episode_return))

        return jax.lax.cond(due, anew, lambda s: s, state)

    # --- data for an update -------------------------------------------------------------------------------------------

    def _data(self, state: TrainState, collected: Any, cfg: Any, key: PRNGKey, began: Any = None) -> Data:
        data = Data()
        wanted: list[tuple[int, Any]] = []
        if state.replay is not None:
            wanted.append((cfg.batch_size, state.replay.size))
        if self._wants("demo_batch"):
            assert self.demos is not None
            wanted.append((cfg.demo_batch_size, len(self.demos.transitions.obs)))
        index = list(uniform_indices(key, *wanted)) if wanted else []
        if state.replay is not None:
            batch = ring.take(state.replay, index.pop(0), self._stored_shape())
            batch = _with_observations(batch, jnp.float32)
            data = _with_steps(data, "replay", batch, collected)
        if self._wants("newest"):
            newest = collected.step if isinstance(collected, Costed) else collected
            data = data._replace(newest=newest, began=began)
        if self._wants("rollout"):
            data = _with_steps(data, "rollout", collected, collected)
        if self.demos is not None:
            if self._wants("demo_batch"):
                rows = index.pop(0)
                batch = jax.tree.map(lambda leaf: leaf[rows], self.demos.transitions)
                data = data._replace(demo_batch=batch)
            data = data._replace(
                demos=self.demos.transitions if self._wants("demos") else None,
                demo_starts=self.demos.starts if self._wants("demo_starts") else None,
                demo_episodes=self.demos.episodes if self._wants("demo_episodes") else None,
            )
        return data._replace(play=self.play) if self._wants("play") else data

    def play(self, policy: Policy, key: PRNGKey, count: int) -> PaddedEpisodes:
        """Whole episodes of the sampled policy from new starts."""
        k_first, k_play = jax.random.split(key)
        world = self.env.for_episodes()

        def step(carry, key):
            env, alive = carry
            k_act, k_step = jax.random.split(key)
            # Observations after the end of an episode may be NaN. A mask does not keep NaN out of the gradient.
            obs = jnp.where(jnp.broadcast_to(alive[:, None], env.obs.shape), env.obs, 0.0)
            action = policy.act(obs, k_act)
            after, transition = world.advance_batch(env, action, k_step)
            over = transition.terminated | transition.truncated
            return (after, alive & ~over), PaddedEpisodes(obs, action, alive)

        first = (world.reset_batch(k_first, count, after=_some_number(policy)), jnp.ones(count, bool))
        _, rows = jax.lax.scan(step, first, jax.random.split(k_play, world.horizon))
        return PaddedEpisodes(*(jnp.swapaxes(leaf, 0, 1) for leaf in rows))

    def _kept_shape(self) -> Any:
        """A step of one environment, filled with zeros, which gives the shapes and types of its arrays."""
        obs = jnp.zeros(self.env.observation_space.shape, jnp.float32)
        space, flag = self.env.action_space, jnp.array(False)
        action = jnp.zeros(space.shape, jnp.float32 if isinstance(space, gym.spaces.Box) else jnp.int32)
        step = Transition(obs, action, jnp.float32(0), obs, flag, flag)
        return Costed(step, jnp.float32(0)) if self._wants("true_cost") else step

    def _stored(self, kept: Any) -> Any:
        """A step in the form that the replay stores: image observations as bytes."""
        return _with_observations(kept, jnp.float32 if self.env.spaces.image is None else jnp.uint8)

    def _stored_shape(self) -> Any:
        return self._stored(self._kept_shape())

    # --- for the trainer: the same functions, compiled ------------------------------------------------------------

    def start(self, key: PRNGKey, cfg: Any) -> TrainState:
        """A new state, with one batch of transitions of the untrained policy in the replay."""
        return self.first_batch(self.begin(key, cfg), cfg)

    def begin(self, key: PRNGKey, cfg: Any) -> TrainState:
        """A new state, before the first step."""
        # `prepare` may compute for seconds.
        return (self._init_quickly if self.algorithm.prepare is None else self._init)(key, cfg)

    def first_batch(self, state: TrainState, cfg: Any) -> TrainState:
        """The state with one batch of transitions of the untrained policy in the replay, if there is a replay."""
        iterations = -(-cfg.batch_size // cfg.num_envs) if self._wants("replay") else 0
        return self._warm_up(state, jnp.int32(iterations)) if iterations else state

    def iteration_steps(self, cfg: Any) -> int:
        """Environment steps per iteration; 1 if the algorithm steps no environment."""
        if self._wants("rollout"):
            return cfg.num_envs * cfg.rollout_steps
        return cfg.num_envs if self.algorithm.steps_environment else 1

    def overshoot(self, cfg: Any, steps: int) -> str | None:
        """A remark if whole iterations take many more than `steps` environment steps."""
        iteration = self.iteration_steps(cfg)
        whole = -(-steps // iteration) * iteration
        if whole <= 1.1 * steps:
            return None
        each = f"{self.algorithm.title} trains in iterations of {iteration:,} steps (num_envs × rollout_steps)"
        return f"{each}: it runs {whole:,} steps instead of {steps:,}."

    def run_iterations(self, state: TrainState, cfg: Any, iterations: int) -> tuple[TrainState, Metrics]:
        return self._run(state, cfg, jnp.int32(iterations))

    def run_piece(
        self, state: TrainState, cfg: Any, iterations: int, accumulator: Accumulator | None
    ) -> tuple[TrainState, Accumulator]:
        accumulator = self._new_accumulator(state, cfg) if accumulator is None else accumulator
        return self._run_on(state, cfg, jnp.int32(iterations), accumulator)

    _init = _compiled(init)
    _init_quickly = _compiled(init, compiler_options=FAST_COMPILE)
    _warm_up = _compiled(warm_up, donate_argnums=0, compiler_options=FAST_COMPILE)
    _run = _compiled(run, donate_argnums=0)
    _run_on = _compiled(run_on, donate_argnums=0)
    _new_accumulator = _compiled(new_accumulator, compiler_options=FAST_COMPILE)
    piece_metrics = _compiled(metrics_of, compiler_options=FAST_COMPILE)


def make_loop(algorithm: Algorithm, env: BatchEnv, demos: Any = None) -> Loop:
    """The loop for an algorithm. Raises if the algorithm needs demonstrations and `demos` is None."""
    return Loop(algorithm, env, demo_data(demos, env, algorithm.demo_filter) if algorithm.needs_demos else None)


def _act(policy: Policy, env: EnvState, key: PRNGKey) -> tuple[Array, PRNGKey]:
    """The next actions, and a key for the step."""
    k_act, k_step = jax.random.split(key)
    return policy.act(env.obs, k_act), k_step


def _with_steps(data: Data, part: str, steps: Any, newest: Any) -> Data:
    """`data` with the steps of a replay batch or a rollout, and with their true costs if these are stored."""
    if not isinstance(steps, Costed):
        return data._replace(**{part: steps})
    return data._replace(**{part: steps.step, "true_cost": TrueCost(steps.cost, newest.cost)})


def _with_observations(kept: Any, dtype: Any) -> Any:
    """The steps with observations of another dtype."""
    if isinstance(kept, Costed):
        return kept._replace(step=_with_observations(kept.step, dtype))
    return kept._replace(obs=kept.obs.astype(dtype), next_obs=kept.next_obs.astype(dtype))


def _some_number(tree: Any) -> Float[Array, ""]:
    """A number that depends on every array of real numbers in the tree."""
    return jnp.stack([x.reshape(-1)[0] for x in jax.tree.leaves(tree) if x.dtype == jnp.float32]).sum()


def _episode_sums(
    transition: Transition, after: EnvState, so_far: Float[Array, " N"]
) -> tuple[Float[Array, " N"], Metrics]:
    """The returns of the unfinished episodes, and sums over the episodes that this step finished."""
    ended = transition.terminated | transition.truncated
    total = so_far + transition.reward
    sums = {
        "count": ended.sum().astype(jnp.float32),
        "return": jnp.where(ended, total, 0.0).sum(),
        "steps": jnp.where(ended, after.steps, 0).sum().astype(jnp.float32),
        "reward": transition.reward.sum(),
    }
    return jnp.where(ended, 0.0, total), sums


def _summary(sums: Metrics, steps: Any) -> Metrics:
    """Means over the finished episodes, and the mean reward per step."""
    if not sums:
        return {}
    played = jnp.maximum(sums["count"], 1.0)
    none = jnp.where(sums["count"] > 0, 1.0, jnp.nan)  # NaN if no episode finished
    return {
        "episode/count": sums["count"],
        "episode/return": none * sums["return"] / played,
        "episode/steps": none * sums["steps"] / played,
        "env/reward": sums["reward"] / steps,
    } | {f"episode/{name}": sums[name] for name in ("violations", "stopped") if name in sums}


def machine_memory() -> int | None:
    """Bytes of memory that this process may use; None if the operating system does not report the number."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    try:
        return min(found, int(CGROUP.read_text()))
    except (OSError, ValueError):  # no container, or no limit
        return found


def _refuse_too_large(setting: str, steps: int, row: int, observation: int) -> None:
    """Raise if `steps` steps of `row` bytes each do not fit into memory."""
    memory, wanted = machine_memory(), steps * row
    if memory is None or wanted <= MEMORY_SHARE * memory:
        return
    fits = int(MEMORY_SHARE * memory / row)
    raise ConfigError(
        f"{setting} = {steps:,} steps with observations of {observation:,} numbers need {wanted / 1e9:,.1f} GB, and "
        f"this machine has {memory / 1e9:,.1f} GB; lower {setting} to {fits:,} or less, or make the observations "
        f"smaller (gymnasium.wrappers.ResizeObservation and GrayscaleObservation, for images).",
        setting=setting,
    )
