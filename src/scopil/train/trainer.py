"""The host side of training: run the compiled loop one chunk at a time, check the result, call the observer.

Chunks end at fixed step numbers, so that a resumed run logs, evaluates and saves at the same steps as an uninterrupted
one.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scopil.buffers.replay import newest_rows
from scopil.config import check
from scopil.errors import DivergedError
from scopil.serialization import named_leaves
from scopil.train.loop import Accumulator, Loop
from scopil.user_code import Named

# Minimum of environment steps per dispatch: enough to hide the dispatch cost, few enough to react to Ctrl-C.
CHUNK = 5_000
PIECE = 1.0  # target duration in seconds of one program, for host environments
Between = Callable[[int], bool | None]  # (environment steps) → whether to stop now


class TrainStatus(NamedTuple):
    """Status after a chunk. `state` is valid until the observer returns: the next chunk reuses its memory."""

    env_steps: int
    metrics: dict[str, float]
    state: Any


class Unobserved(Exception):
    """Raised by an observer that was stopped: training stops, and the chunk is observed when it continues."""


class Trainer:
    """Owns the training state and advances it."""

    def __init__(self, loop: Loop, cfg: Any, seed: int):
        check(cfg)
        loop.refuse_settings(cfg)
        self.loop, self.cfg, self.seed = loop, cfg, seed
        iteration = loop.iteration_steps(cfg)
        self.chunk = -(-CHUNK // iteration) * iteration
        self._state: Any = None
        self._sums: Accumulator | None = None  # of a chunk that was not observed
        self._piece = 1  # iterations of a host environment that take about PIECE seconds
        self._checked = 0  # transitions of the replay that were tested for NaN and infinity
        self.last_good: tuple[Any, int] | None = None  # the learner before the newest chunk, and its number of steps

    def shape(self, paused: bool = False) -> Any:
        """Structure and shapes of the state, to load a checkpoint into. `paused`: with the sums of a chunk."""
        shape = jax.eval_shape(self.loop.init, jax.random.key(0), self.cfg)
        return shape._replace(chunk=jax.eval_shape(self.loop.new_accumulator, shape, self.cfg)) if paused else shape

    @property
    def state(self) -> Any:
        if self._state is None:
            with self.loop.env.watched():
                begun = jax.block_until_ready(self.loop.begin(jax.random.key(self.seed), self.cfg))
            self._state = begun
        return self._state

    @state.setter
    def state(self, state: Any) -> None:
        self._state, self._sums = state._replace(chunk=None), state.chunk
        self._checked = 0

    @property
    def state_to_save(self) -> Any:
        """The state with the sums of a chunk that was not observed."""
        return self.state._replace(chunk=self._sums)

    @property
    def env_steps(self) -> int:
        return 0 if self._state is None else int(self._state.env_steps)

    @property
    def observed_steps(self) -> int:
        """Environment steps up to the last chunk that was observed."""
        unobserved = 0 if self._sums is None else int(self._sums.iterations)
        return self.env_steps - unobserved * self.loop.iteration_steps(self.cfg)

    def advance(
        self,
        until: int,
        observe: Callable[[TrainStatus], bool | None] = lambda status: None,
        *,
        every: Sequence[int] = (),
        between: Between = lambda steps: None,
    ) -> None:
        """Train up to `until` environment steps in total, or until `observe` or `between` returns True.

        `observe` is called after each chunk. Chunks also end at multiples of the numbers in `every`, or at the first
        iteration after a multiple. For a host environment, which may be slow, `between` is called about once a
        second within a chunk; if it returns True, training stops immediately and `observe` is not called. The next
        call completes this chunk.
        """
        begun = self.state  # made now, if training has not begun
        if self.env_steps == 0 and until > 0:
            self._catch_up()
            begun, self._state = self._state, None
            with self.loop.env.watched():
                self._state = jax.block_until_ready(self.loop.first_batch(begun, self.cfg))
        iteration = self.loop.iteration_steps(self.cfg)
        while (begun := self.observed_steps) < until:
            self._catch_up()  # an observer may have stepped the training environments
            target = min(until, *((begun // n + 1) * n for n in (self.chunk, *every)))
            target = begun + -(-(target - begun) // iteration) * iteration
            metrics = self._chunk(max(0, target - self.env_steps) // iteration, between)
            if metrics is None:
                return
            sums, self._sums = self._sums, None
            try:
                if observe(TrainStatus(self.env_steps, metrics, self._state)):
                    return
            except Unobserved:
                self._sums = sums
                return

    def _chunk(self, iterations: int, between: Between) -> dict[str, float] | None:
        """Train one chunk and return its metrics; None if `between` stopped it. The compiled program reuses the memory
        of the state, so the state is lost if it fails."""
        self.last_good = copied(self.state.learner), self.env_steps
        state, self._state = self._state, None
        sums, self._sums = self._sums, None
        Named.fault = None
        try:
            if self.loop.env.slow or sums is not None:
                state, metrics, sums = self._in_pieces(state, iterations, between, sums)
            else:
                state, metrics = self.loop.run_iterations(state, self.cfg, iterations)
            known = {} if metrics is None else {k: float(v) for k, v in jax.device_get(metrics).items()}
        except (RuntimeError, ValueError) as error:
            if Named.fault is None:
                raise
            raise Named.fault from error  # a function of the user failed inside the program
        self._refuse_nonsense(state, known)
        self._state, self._sums = state, sums
        return None if metrics is None else known

    def _in_pieces(
        self, state: Any, iterations: int, between: Between, accumulator: Accumulator | None
    ) -> tuple[Any, Any, Accumulator | None]:
        """One chunk as several programs of about a second each, with the same result as one program. Returns the state,
        the metrics, or None if `between` stopped the chunk, and the sums of the chunk."""
        done = 0
        while done < iterations:
            piece = min(self._piece, iterations - done)
            begun = time.monotonic()
            with self.loop.env.watched():
                state, accumulator = jax.block_until_ready(self.loop.run_piece(state, self.cfg, piece, accumulator))
            done += piece
            seconds = max(time.monotonic() - begun, 1e-6)
            self._piece = min(4 * piece, max(1, int(piece * PIECE / seconds)))
            if between(int(state.env_steps)) and done < iterations:
                return state, None, accumulator
        return state, self.loop.piece_metrics(accumulator, self.cfg), accumulator

    def _catch_up(self) -> None:
        """Start new episodes if the environments were stepped since the last chunk."""
        env, state = self.loop.env, self.state
        if state.env is not None and env.stale(state.env):
            key = jax.random.fold_in(jax.random.key(self.seed), state.env_steps)
            with env.watched():
                fresh = jax.block_until_ready(env.reset_batch(key, state.env.steps.shape[0]))
            self._state = state._replace(env=fresh, episode_return=jnp.zeros_like(state.episode_return))

    def _refuse_nonsense(self, state: Any, metrics: dict[str, float]) -> None:
        """Raise `DivergedError`, before anything is saved, if the state or a metric is NaN or infinite."""
        seen = [] if state.env is None else [state.env.obs]
        if state.replay is not None:
            seen += newest_rows(state.replay, since=self._checked)
        if not np.isfinite(metrics.get("env/reward", 0.0)):
            what = "the environment returned a reward that is not finite, or rewards whose sum exceeds 3.4e38"
        elif not all(map(_is_finite, seen)):
            what = "the environment returned an observation that is not finite"
        elif bad := [k for k, v in metrics.items() if not np.isfinite(v) and not k.startswith("episode/")]:
            what = f"{', '.join(sorted(bad))} became NaN or infinite"
        elif bad := [name for name, leaf in named_leaves(state.learner) if not _is_finite(leaf)]:
            what = f"the learner's {bad[0]} became NaN or infinite"
        else:
            self._checked = 0 if state.replay is None else int(state.replay.added)
            return
        raise DivergedError(
            f"stopped before environment step {int(state.env_steps)}: {what}. Check rewards and observations for "
            f"outliers, or lower the learning rate."
        )


def copied(tree: Any) -> Any:
    """The tree with copies of its arrays. `jnp.copy` would compile a program for every shape."""
    return jax.tree.map(lambda leaf: jax.device_put(leaf, may_alias=False), tree)


def _is_finite(leaf: Any) -> bool:
    """In NumPy: a program would have to be compiled, and the arrays are small."""
    return not jnp.issubdtype(leaf.dtype, jnp.inexact) or bool(np.isfinite(np.asarray(leaf)).all())
