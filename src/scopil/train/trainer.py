"""The host side of training: run the compiled loop a stretch at a time, check it, and call observers.

Stretches end at fixed step numbers, wherever a run was interrupted, so that a resumed run logs, evaluates and
saves exactly where an undisturbed one does.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scopil.config import check
from scopil.errors import DivergedError
from scopil.train.loop import Loop
from scopil.treefile import named_leaves

# Environment steps per dispatch, at least: long enough to hide its cost, short enough to answer Ctrl-C.
STRETCH = 5_000


class TrainStatus(NamedTuple):
    """What observers get after each stretch. `state` is valid until the observer returns: the next stretch reuses its
    memory."""

    env_steps: int
    metrics: dict[str, float]
    state: Any


class Trainer:
    """Owns the training state and moves it forward."""

    def __init__(self, loop: Loop, cfg: Any, seed: int):
        check(cfg)
        loop.refuse_settings(cfg)
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

    def advance(
        self, until: int, observe: Callable[[TrainStatus], bool | None] = lambda status: None
    ) -> None:
        """Train until `until` environment steps have been made in all, or an observer returns True."""
        done = int(self.state.env_steps)
        while done < until:
            self._catch_up()  # an observer may have played on the environments of training
            target = min(until, (done // self.stretch + 1) * self.stretch)
            metrics = self._stretch(-(-(target - done) // self.loop.block_steps(self.cfg)))
            done = int(self._state.env_steps)
            if observe(TrainStatus(done, metrics, self._state)):
                return

    def _stretch(self, blocks: int) -> dict[str, float]:
        """The compiled program reuses the state's memory, so that after a failure there is no state any more."""
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
        if state.env is not None and env.stale(state.env):
            key = jax.random.fold_in(jax.random.key(self.seed), state.env_steps)
            fresh = jax.block_until_ready(env.reset_batch(key, state.env.steps.shape[0]))
            env.refuse_faults()
            self._state = state._replace(env=fresh, episode_return=jnp.zeros_like(state.episode_return))

    def _refuse_nonsense(self, state: Any, metrics: dict[str, float]) -> None:
        """NaN and infinity stop training before anything is saved."""
        seen = (state.env and state.env.obs, state.replay)
        if not np.isfinite(metrics.get("env/reward", 0.0)):
            what = "the environment returned a reward that is not finite"
        elif not all(_finite(leaf) for leaf in jax.tree.leaves(seen)):
            what = "the environment returned an observation that is not finite"
        elif bad := [k for k, v in metrics.items() if not np.isfinite(v) and not k.startswith("episode/")]:
            what = f"{', '.join(sorted(bad))} became NaN or infinite"
        elif bad := [name for name, leaf in named_leaves(state.learner) if not _finite(leaf)]:
            what = f"the learner's {bad[0]} became NaN or infinite"
        else:
            return
        raise DivergedError(
            f"stopped before environment step {int(state.env_steps)}: {what}. Look at the rewards and observations "
            f"for outliers, or lower the learning rate."
        )


def _finite(leaf: Any) -> bool:
    return not jnp.issubdtype(leaf.dtype, jnp.inexact) or bool(jnp.isfinite(leaf).all())
