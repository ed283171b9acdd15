"""The host side of training: run the compiled loop a stretch at a time, check it, and tell observers.

Stretches end at fixed step numbers, wherever a run was interrupted, so that a resumed run logs, evaluates and
saves exactly where an undisturbed one does.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from scopil.algos.base import Metrics
from scopil.envs.functional import BatchEnv
from scopil.errors import ConfigError, DivergedError
from scopil.types import PRNGKey

STRETCH = (
    5_000  # environment steps a dispatch, at least: long enough to hide it, short enough to answer Ctrl-C
)


class Report(NamedTuple):
    """What observers hear after each stretch."""

    env_steps: int
    metrics: dict[str, float]
    state: Any


@runtime_checkable
class Loop(Protocol):
    """A compiled training loop. Its state has at least `learner`, `env`, `episode_return` and `env_steps`."""

    @property
    def env(self) -> BatchEnv: ...
    def init(self, key: PRNGKey, cfg: Any) -> Any: ...
    def start(self, key: PRNGKey, cfg: Any) -> Any: ...
    def block_steps(self, cfg: Any) -> int: ...
    def run_blocks(self, state: Any, cfg: Any, blocks: int) -> tuple[Any, Metrics]: ...


class Trainer:
    """Owns the training state and moves it forward."""

    def __init__(self, loop: Loop, cfg: Any, seed: int):
        check(cfg)
        self.loop, self.cfg, self.seed = loop, cfg, seed
        block = loop.block_steps(cfg)
        self.stretch = -(-STRETCH // block) * block
        self._state: Any = None
        self.last_good: tuple[Any, int] | None = None  # the learner before the newest stretch, and its steps

    def shape(self) -> Any:
        """The form of the state, to load a checkpoint into."""
        return jax.eval_shape(self.loop.init, jax.random.key(0), self.cfg)

    @property
    def state(self) -> Any:
        if self._state is None:
            begun = jax.block_until_ready(self.loop.start(jax.random.key(self.seed), self.cfg))
            self.loop.env.refuse_faults()
            self._state = begun
        return self._state

    @state.setter
    def state(self, state: Any) -> None:
        self._state = state

    @property
    def env_steps(self) -> int:
        return 0 if self._state is None else int(self._state.env_steps)

    def advance(self, until: int, observe: Callable[[Report], bool | None] = lambda report: None) -> None:
        """Train until `until` environment steps have been made in all, or an observer returns True."""
        self._catch_up()
        done = int(self.state.env_steps)
        while done < until:
            target = min(until, (done // self.stretch + 1) * self.stretch)
            metrics = self._stretch(-(-(target - done) // self.loop.block_steps(self.cfg)))
            done = int(self._state.env_steps)
            if observe(Report(done, metrics, self._state)):
                return

    def _stretch(self, blocks: int) -> dict[str, float]:
        """The state's memory is given away to the compiled program, so what fails has no state any more."""
        self.last_good = jax.tree.map(jnp.copy, self.state.learner), self.env_steps
        state, self._state = self._state, None
        state, metrics = self.loop.run_blocks(state, self.cfg, blocks)
        metrics = {k: float(v) for k, v in jax.device_get(metrics).items()}
        self.loop.env.refuse_faults()
        self._refuse_nonsense(state, metrics)
        self._state = state
        return metrics

    def _catch_up(self) -> None:
        """Where the environments are no longer where the state left them, begin new episodes."""
        env, state = self.loop.env, self.state
        if env.stale(state.env):
            key = jax.random.fold_in(jax.random.key(self.seed), state.env_steps)
            fresh = jax.block_until_ready(env.reset_batch(key, state.env.steps.shape[0]))
            env.refuse_faults()
            self._state = state._replace(env=fresh, episode_return=jnp.zeros_like(state.episode_return))

    def _refuse_nonsense(self, state: Any, metrics: dict[str, float]) -> None:
        """NaN and infinity stop training before anything is saved."""
        seen = (state.env.obs, getattr(state, "replay", None))
        if not np.isfinite(metrics["env/reward"]):
            what = "the environment returned a reward that is not finite"
        elif not all(_finite(leaf) for leaf in jax.tree.leaves(seen)):
            what = "the environment returned an observation that is not finite"
        elif bad := [k for k, v in metrics.items() if not np.isfinite(v) and not k.startswith("episode/")]:
            what = f"{', '.join(sorted(bad))} became NaN or infinite"
        elif not all(jax.tree.leaves(jax.tree.map(_finite, state.learner))):
            what = "a parameter became NaN or infinite"
        else:
            return
        raise DivergedError(
            f"stopped before environment step {int(state.env_steps)}: {what}. Look at the rewards and observations "
            f"for outliers, or lower learning_rate (now {float(self.cfg.learning_rate):g})."
        )


def _finite(leaf: Any) -> bool:
    return not jnp.issubdtype(leaf.dtype, jnp.inexact) or bool(jnp.isfinite(leaf).all())


_RANGES: dict[str, tuple[float, float]] = {
    "discount": (0.0, 1.0),
    "polyak": (0.0, 1.0),
    "entropy_split": (0.0, 1.0),
    "target_entropy": (0.0, 1.0),
    "learning_rate": (0.0, float("inf")),
    "alpha_lr": (0.0, float("inf")),
    "lambda_lr": (0.0, float("inf")),
    "lambda_init": (0.0, float("inf")),
    "gae_lambda": (0.0, 1.0),
    "clip": (0.0, float("inf")),
    "target_kl": (0.0, float("inf")),
    "entropy_weight": (0.0, float("inf")),
    "value_weight": (0.0, float("inf")),
    "max_grad_norm": (0.0, float("inf")),
    "cost_discount": (0.0, 1.0),
    "cost_gae_lambda": (0.0, 1.0),
    "budget": (0.0, float("inf")),
    "penalty_init": (1e-6, 80.0),  # its softplus is inverted in float32
    "penalty_lr": (0.0, float("inf")),
    "constraint_lr": (0.0, float("inf")),
    "constraint_lr_decay": (0.0, 1.0),
    "regulariser": (0.0, float("inf")),
    "max_forward_kl": (0.0, float("inf")),
    "max_reverse_kl": (0.0, float("inf")),
}
_COUNTS = (
    "batch_size",
    "demo_batch_size",
    "replay_size",
    "num_envs",
    "grad_steps",
    "rollout_steps",
    "epochs",
    "forward_steps",
    "rollouts",
    "backward_iters",
)


def check(cfg: Any) -> None:
    """Ranges, checked at the border: a frozen config may be rebuilt around tracers and cannot check itself."""
    for name, (low, high) in (_RANGES | getattr(cfg, "ranges", {})).items():
        if hasattr(cfg, name) and not low <= (value := float(getattr(cfg, name))) <= high:
            raise ConfigError(f"{name} = {value:g}; want a value in [{low:g}, {high:g}].")
    for name in _COUNTS:
        if hasattr(cfg, name) and getattr(cfg, name) < 1:
            raise ConfigError(f"{name} = {getattr(cfg, name)}; want at least 1.")
    if not cfg.hidden or min(cfg.hidden) < 1:
        raise ConfigError(f"hidden = {cfg.hidden}; want at least one layer of at least one unit.")
    if hasattr(cfg, "replay_size"):
        if cfg.replay_size % cfg.num_envs:
            raise ConfigError(
                f"replay_size {cfg.replay_size} is not a multiple of num_envs {cfg.num_envs}; change one."
            )
        if cfg.replay_size < cfg.batch_size:
            raise ConfigError(f"replay_size {cfg.replay_size} is smaller than batch_size {cfg.batch_size}.")
    if hasattr(cfg, "rollout_steps") and cfg.num_envs * cfg.rollout_steps % cfg.batch_size:
        raise ConfigError(
            f"num_envs {cfg.num_envs} × rollout_steps {cfg.rollout_steps} is not a multiple of batch_size "
            f"{cfg.batch_size}; change one."
        )
