"""The host side of training: run the compiled loop a chunk at a time, check it, and call observers.

Chunks end at fixed step numbers, wherever a run was interrupted, so that a resumed run logs, evaluates and
saves exactly where an undisturbed one does.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scopil.config import check
from scopil.errors import DivergedError
from scopil.serialization import named_leaves
from scopil.train.loop import Loop

# Environment steps per dispatch, at least: long enough to hide its cost, short enough to answer Ctrl-C.
CHUNK = 5_000
PIECE = 1.0  # seconds of a host environment's chunk between two looks at whether to stop
Between = Callable[[int], bool | None]  # environment steps made → whether to stop now


class TrainStatus(NamedTuple):
    """What observers get after each chunk. `state` is valid until the observer returns: the next chunk reuses its
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
        iteration = loop.iteration_steps(cfg)
        self.chunk = -(-CHUNK // iteration) * iteration
        self._state: Any = None
        self._piece = 1  # iterations that a host environment steps in about a second
        self.last_good: tuple[Any, int] | None = None  # the learner before the newest chunk, and its steps

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
        self,
        until: int,
        observe: Callable[[TrainStatus], bool | None] = lambda status: None,
        *,
        every: Sequence[int] = (),
        between: Between = lambda steps: None,
    ) -> None:
        """Train until `until` environment steps have been made in all, or an observer returns True.

        Args:
            observe: called after each chunk.
            every: chunks end at the multiples of these numbers too, or at the first iteration after one.
            between: called about once a second inside a chunk of a host environment, which may be slow; where it
                returns True, training stops there and then, without a call of `observe`.
        """
        done, iteration = int(self.state.env_steps), self.loop.iteration_steps(self.cfg)
        while done < until:
            self._catch_up()  # an observer may have played on the environments of training
            target = min(until, *((done // n + 1) * n for n in (self.chunk, *every)))
            metrics = self._chunk(-(-(target - done) // iteration), between)
            done = int(self._state.env_steps)
            if metrics is None or observe(TrainStatus(done, metrics, self._state)):
                return

    def _chunk(self, iterations: int, between: Between) -> dict[str, float] | None:
        """Its metrics; None where it was stopped on the way. The compiled program reuses the state's memory, so that
        after a failure there is no state any more."""
        self.last_good = jax.tree.map(jnp.copy, self.state.learner), self.env_steps
        state, self._state = self._state, None
        if self.loop.env.slow:
            state, metrics = self._in_pieces(state, iterations, between)
        else:
            state, metrics = self.loop.run_iterations(state, self.cfg, iterations)
        known = {} if metrics is None else {k: float(v) for k, v in jax.device_get(metrics).items()}
        self.loop.env.refuse_faults()
        self._refuse_nonsense(state, known)
        self._state = state
        return None if metrics is None else known

    def _in_pieces(self, state: Any, iterations: int, between: Between) -> tuple[Any, Any]:
        """A chunk as programs of about a second each, which together compute what one would."""
        accumulator, done = None, 0
        while done < iterations:
            piece = min(self._piece, iterations - done)
            begun = time.monotonic()
            state, accumulator = jax.block_until_ready(self.loop.run_piece(state, self.cfg, piece, accumulator))
            self.loop.env.refuse_faults()
            done += piece
            seconds = max(time.monotonic() - begun, 1e-6)
            self._piece = min(4 * piece, max(1, int(piece * PIECE / seconds)))
            if between(int(state.env_steps)) and done < iterations:
                return state, None
        return state, self.loop.piece_metrics(accumulator, self.cfg)

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
        elif not all(_finite(jax.tree.leaves(seen))):
            what = "the environment returned an observation that is not finite"
        elif bad := [k for k, v in metrics.items() if not np.isfinite(v) and not k.startswith("episode/")]:
            what = f"{', '.join(sorted(bad))} became NaN or infinite"
        elif bad := [name for name, fine in zip(*_learned(state.learner)) if not fine]:
            what = f"the learner's {bad[0]} became NaN or infinite"
        else:
            return
        raise DivergedError(
            f"stopped before environment step {int(state.env_steps)}: {what}. Look at the rewards and observations "
            f"for outliers, or lower the learning rate."
        )


def _learned(learner: Any) -> tuple[tuple[str, ...], list[Any]]:
    names, leaves = zip(*named_leaves(learner))
    return names, _finite(list(leaves))


@jax.jit
def _finite(leaves: list[Any]) -> list[Any]:
    """Of every array whether it is finite; one program for all of them, since compiling takes longer than looking."""
    return [jnp.isfinite(x).all() if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.array(True) for x in leaves]
