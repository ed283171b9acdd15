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
from scopil.envs.functional import CompiledEnv
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
    """A compiled training loop. Its state has at least `learner` and `env_steps`."""

    @property
    def env(self) -> CompiledEnv: ...
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

    def shape(self) -> Any:
        """The form of the state, to load a checkpoint into."""
        return jax.eval_shape(self.loop.init, jax.random.key(0), self.cfg)

    @property
    def state(self) -> Any:
        if self._state is None:
            self._state = self.loop.start(jax.random.key(self.seed), self.cfg)
        return self._state

    @state.setter
    def state(self, state: Any) -> None:
        self._state = state

    @property
    def env_steps(self) -> int:
        return 0 if self._state is None else int(self._state.env_steps)

    def advance(self, until: int, observe: Callable[[Report], bool | None] = lambda report: None) -> None:
        """Train until `until` environment steps have been made in all, or an observer returns True."""
        done = int(self.state.env_steps)
        while done < until:
            target = min(until, (done // self.stretch + 1) * self.stretch)
            blocks = -(-(target - done) // self.loop.block_steps(self.cfg))
            self._state, metrics = self.loop.run_blocks(self.state, self.cfg, blocks)
            metrics = {k: float(v) for k, v in jax.device_get(metrics).items()}
            done = int(self._state.env_steps)
            self._refuse_nonsense(metrics, done)
            if observe(Report(done, metrics, self._state)):
                return

    def _refuse_nonsense(self, metrics: dict[str, float], env_steps: int) -> None:
        """NaN and infinity stop training before anything is saved."""
        if not np.isfinite(metrics["env/reward"]):
            what = "the environment returned a reward that is not finite"
        elif bad := [k for k, v in metrics.items() if not np.isfinite(v) and not k.startswith("episode/")]:
            what = f"{', '.join(sorted(bad))} became NaN or infinite"
        elif not all(jax.tree.leaves(jax.tree.map(_finite, self._state.learner))):
            what = "a parameter became NaN or infinite"
        else:
            return
        raise DivergedError(
            f"stopped before environment step {env_steps}: {what}. The last checkpoint is good. Look at the rewards "
            f"and observations for outliers, or lower learning_rate (now {float(self.cfg.learning_rate):g})."
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
