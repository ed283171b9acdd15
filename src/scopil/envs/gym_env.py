"""Gymnasium environments in Python, with the same interface as compiled environments.

A training loop is one compiled program. It calls Python for every step of its environments (host_call.py). An error
in an environment is stored until the program ends: an exception inside the program would lose the training state.
"""

import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from copy import copy
from functools import cached_property, partial
from typing import Any, ClassVar

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.experimental.functional import FuncEnv
from gymnasium.vector import VectorEnv
from jaxtyping import Array, Bool, Float, Int

from scopil import compile_cache
from scopil.data.dataset import Episode
from scopil.envs import host_call
from scopil.envs.base import Advance, BatchEnv, EnvState, Judge, Mode, Seeds
from scopil.envs.gym_vector import GivenVectorEnv, HostVector, SerialEnvs, StepResult
from scopil.envs.jax_env import CompiledEnv, find_compiled, make_env
from scopil.envs.rollout import act, host_episodes, name_of, owned_program, time_limit_of, warn_endless
from scopil.envs.spaces import Spaces
from scopil.errors import EnvError
from scopil.types import PRNGKey, Transition

GymEnv = gym.Env | VectorEnv
PARALLEL_EPISODES = 10  # episodes played at the same time
RANDOM_STEPS = 1_000  # in search of the keys of `info`
# Evaluation in several processes: seconds of steps after which they are started (a start takes about as long on a busy
# machine), and least seconds of one step (a message to a process and back takes 0.3 ms).
WORKERS_START, SLOW_STEP = 5.0, 1e-3
_NUMBERS = 3  # of a step, beside its observations: reward, terminated, truncated
AnyEnv = str | EnvSpec | FuncEnv | gym.Env | VectorEnv | BatchEnv | Callable[[], GymEnv]


def open_env(env: Any) -> BatchEnv:
    """Return a `CompiledEnv` if the environment is written in JAX, else a `HostEnv`.

    Args:
        env: an id, a spec, an environment (its wrappers are kept), a vector environment, or a function that makes one.
    """
    if isinstance(env, BatchEnv):
        return env
    compile_cache.use()  # before the first program is compiled
    if isinstance(env, FuncEnv):
        return CompiledEnv(env)
    make_another: Any = None
    if isinstance(env, str | EnvSpec):
        make_another = partial(make_env, env)
    elif isinstance(env, gym.Env):
        make_another = None if env.spec is None else partial(_copy, env)
    elif not isinstance(env, VectorEnv):
        if hasattr(env, "step_async"):
            want = "want the id, one environment, or a vector environment of Gymnasium: gymnasium.vector.SyncVectorEnv"
            raise EnvError(f"{type(env).__name__} is a vector environment of Stable-Baselines3; {want}.")
        if not callable(env):
            raise EnvError(f"{type(env).__name__} is not an environment; want an id, an environment, or a function.")
        make_another = env
    first = env if isinstance(env, gym.Env | VectorEnv) else make_another()
    if not isinstance(first, gym.Env | VectorEnv):
        raise EnvError(f"{env} made a {type(first).__name__}; want a gymnasium.Env or VectorEnv.")
    name = env if isinstance(env, str) else None
    return find_compiled(first) or HostEnv(first, make_another, close_first=first is not env, env_id=name)


def compile_env(env: Any) -> CompiledEnv:
    """Like `open_env`, for environments written in JAX only. Raises EnvError for other environments, and for wrappers
    that compiled stepping would ignore."""
    opened = open_env(env)
    if not isinstance(opened, CompiledEnv):
        raise EnvError(f"{env} is not written in JAX, or has a wrapper; want a FuncEnv, its Gymnasium env, or its id.")
    return opened


class HostEnv(BatchEnv):
    """A Gymnasium environment or vector environment, and the copies that training and evaluation need. Without
    `make_another` there are no copies. The inner state cannot be saved, so a state loaded from a file is `stale`."""

    slow: ClassVar[bool] = True

    def __init__(
        self,
        first: GymEnv,
        make_another: Callable[[], GymEnv] | None = None,
        close_first: bool = False,
        env_id: str | None = None,  # makes copies in other processes
    ):
        self.env_id = env_id
        self.name = name_of(first)
        self._vector, single = isinstance(first, VectorEnv), "single_" if isinstance(first, VectorEnv) else ""
        spaces = [getattr(first, f"{single}{kind}_space") for kind in ("observation", "action")]
        for space in spaces:
            if not isinstance(space, gym.Space):
                raise EnvError(f"{self.name}: {space!r} is not a space; want a gymnasium.spaces.Space.")
        self.spaces = Spaces(self.name, *spaces)
        self.observation_space, self.action_space = self.spaces.observation, self.spaces.action
        self.time_limit: int | None = time_limit_of(first)
        self._size = first.num_envs if isinstance(first, VectorEnv) else 1  # number of environments in `first`
        self._first = first
        self._spare: GymEnv | None = first  # `first` while it is unused, else None
        self._make_another = make_another
        self._to_close: list[GymEnv] = [first] if close_first else []
        self._twin: HostEnv | None = None  # for whole episodes inside a training program
        self._training: dict[int, HostVector] = {}  # by number of environments
        self._playing: dict[int, HostVector] = {}
        self._serial: dict[int, SerialEnvs] = {}  # of `_playing`: those that step in this process
        self._workers: list[Any] = []  # of `_playing`: those in other processes
        self._tickets: dict[int, int] = {}  # newest reset by number of environments; states of other resets are stale
        self._number = host_call.new_number(self)  # of this object, in resets; steps send the ticket of their reset,
        # and restarts the ticket with a minus sign
        # of this object, in steps that are begun in a thread
        self._begin_number, self._finish_number = host_call.new_number(self), host_call.new_number(self)
        self._begun: Future[np.ndarray] | None = None
        self._fault: BaseException | None = None
        self._reports_cost: bool | None = None  # None: not tested yet
        self._judge: Judge | None = None
        self._rows: dict[int, np.ndarray] = {}  # the newest observations of `_training`
        self._info_keys: set[str] = set()  # seen in random play
        self._to_try = RANDOM_STEPS  # steps of random play that were not made yet
        self._choosers: dict[Mode, Callable[..., Any]] = {}

    @property
    def num_envs(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._size if self._vector or self._make_another is None else None

    # --- inside compiled programs ---------------------------------------------------------------------------------

    def reset_batch(self, key: PRNGKey, num_envs: int, after: Array | None = None) -> EnvState:
        self._training_envs(num_envs)  # raises before compilation if that number is impossible
        sent = jnp.concatenate([jnp.array([self._number], jnp.int32), _seeds(key, num_envs), _bits(after)])
        got = host_call.call(sent, 1 + num_envs * self.spaces.size)
        return EnvState(got[0].astype(jnp.int32), got[1:].reshape(num_envs, -1), jnp.zeros(num_envs, jnp.int32))

    def step_batch(self, state: EnvState, action: Array, key: PRNGKey) -> tuple[EnvState, Transition, EnvState]:
        later, transition, after, _ = self._step_batch(state, action, key, with_cost=False)
        return later, transition, after

    def step_batch_with_cost(
        self, state: EnvState, action: Array, key: PRNGKey
    ) -> tuple[EnvState, Transition, EnvState, Float[Array, " N"]]:
        # Without copies, the test for a cost would reset the only environment during training.
        tested = self._reports_cost is not None or self._make_another is not None
        if tested and self._judge is None and not self.reports_cost():
            raise EnvError(
                f"{self.name} reports no cost; want a number info['cost'] from every step (0 if no rule is "
                f"violated), or an algorithm that needs no true cost."
            )
        return self._step_batch(state, action, key, with_cost=True)

    def _step_batch(
        self, state: EnvState, action: Array, key: PRNGKey, *, with_cost: bool
    ) -> tuple[EnvState, Transition, EnvState, Float[Array, " N"]]:
        size = state.steps.shape[0] * (2 * self.spaces.size + _NUMBERS + with_cost)
        return self._stepped(state, action, host_call.call(_step_call(state, action, key), size))

    def begin_batch(self, state: EnvState, action: Array, key: PRNGKey) -> Int[Array, ""]:
        sent = jnp.concatenate([jnp.array([self._begin_number], jnp.int32), _step_call(state, action, key)])
        return host_call.call(sent, 1)[0].astype(jnp.int32)

    def finish_batch(
        self, state: EnvState, action: Array, key: PRNGKey, after: Array
    ) -> tuple[EnvState, Transition, EnvState]:
        sent = jnp.concatenate([jnp.array([self._finish_number], jnp.int32), _bits(after)])
        got = host_call.call(sent, state.steps.shape[0] * (2 * self.spaces.size + _NUMBERS))
        later, transition, true_after, _ = self._stepped(state, action, got)
        return later, transition, true_after

    def _stepped(
        self, state: EnvState, action: Array, got: Float[Array, " K"]
    ) -> tuple[EnvState, Transition, EnvState, Float[Array, " N"]]:
        """The result of `step_batch_with_cost`, from the answer of `_step`."""
        n, d = state.steps.shape[0], self.spaces.size
        got = got.reshape(n, -1)
        next_obs, obs, reward = got[:, :d], got[:, d : 2 * d], got[:, 2 * d]
        terminated, truncated = got[:, 2 * d + 1] > 0, got[:, 2 * d + 2] > 0
        transition = Transition(state.obs, action, reward, next_obs, terminated, truncated & ~terminated)
        steps = state.steps + 1
        later = EnvState(state.inner, obs, jnp.where(terminated | truncated, 0, steps))
        return later, transition, EnvState(state.inner, next_obs, steps), got[:, -1]

    def advance_batch(self, state: EnvState, action: Array, key: PRNGKey) -> tuple[EnvState, Transition]:
        later, transition, _ = self.step_batch(state, action, key)
        return later, transition

    def restart(self, state: EnvState, which: Bool[Array, " N"], key: PRNGKey) -> EnvState:
        n = len(which)
        bits = jax.lax.bitcast_convert_type(state.obs, jnp.int32).reshape(-1)
        sent = jnp.concatenate([-state.inner[None], _seeds(key, n), which.astype(jnp.int32), bits])
        obs = jax.lax.cond(
            which.any(), lambda obs: host_call.call(sent, obs.size).reshape(obs.shape), lambda obs: obs, state.obs
        )
        return EnvState(state.inner, obs, jnp.where(which, 0, state.steps))

    # --- calls from compiled programs -----------------------------------------------------------------------------

    def answer(self, sent: np.ndarray, out: np.ndarray) -> None:
        """Reset or step the training environments. After an error, the answer is zeros until `refuse_faults` raises
        that error."""
        if self._fault is None:
            try:
                if sent[0] == self._begin_number:
                    return self._begin(sent[1:], out)
                if sent[0] == self._finish_number:
                    return self._finish(out)
                made = self._reset if sent[0] == self._number else self._restart if sent[0] < 0 else self._step
                return made(sent, out)
            except BaseException as error:  # includes KeyboardInterrupt
                self._fault = error
        out[:] = 0

    def _reset(self, sent: np.ndarray, out: np.ndarray) -> None:
        self._wait()
        seeds = sent[1:-1]
        obs, _ = self._training_envs(len(seeds)).reset(seeds)
        out[0] = self._tickets[len(seeds)] = host_call.new_number(self)
        out[1:] = obs.reshape(-1)
        self._rows[len(seeds)] = obs

    def _restart(self, sent: np.ndarray, out: np.ndarray) -> None:
        n = (len(sent) - 1) // (2 + self.spaces.size)
        self._refuse_stale(-int(sent[0]), n)
        seeds, which, before = np.split(sent[1:], [n, 2 * n])
        rows = before.view(np.float32).reshape(n, -1)
        self._rows[n] = self._training_envs(n).restart(rows, which > 0, seeds)
        out[:] = self._rows[n].reshape(-1)

    def _refuse_stale(self, ticket: int, n: int) -> None:
        if ticket != self._tickets.get(n):
            raise EnvError(f"{self.name} was reset between two steps; want a fresh reset_batch after that.")

    def _step(self, sent: np.ndarray, out: np.ndarray) -> None:
        shape, d = self.action_space.shape or (), self.spaces.size
        n = (len(sent) - 1) // (1 + math.prod(shape))
        self._refuse_stale(int(sent[0]), n)
        seeds, action = sent[1 : n + 1], sent[n + 1 :]
        envs, action = self._training_envs(n), action.view(np.float32).reshape(n, *shape) if shape else action
        result = envs.step(action, seeds)
        rows = out.reshape(n, -1)
        rows[:, :d], rows[:, d : 2 * d], rows[:, 2 * d] = result.next_obs, result.obs, result.reward
        rows[:, 2 * d + 1], rows[:, 2 * d + 2] = result.terminated, result.truncated
        if rows.shape[1] > 2 * d + _NUMBERS:
            infos = [envs.numbers(result.infos, i) for i in range(n)]
            if self._judge is None:
                rows[:, -1] = [info.get("cost", 0.0) for info in infos]
            else:
                given = self.spaces.from_policy(action)
                rows[:, -1] = [self._judge(*step) for step in zip(self._rows[n], given, result.next_obs, infos)]
        self._rows[n] = result.obs

    def _begin(self, sent: np.ndarray, out: np.ndarray) -> None:
        """Step the training environments in a thread."""
        n = (len(sent) - 1) // (1 + math.prod(self.action_space.shape or ()))
        result = np.empty(n * (2 * self.spaces.size + _NUMBERS), np.float32)

        def step() -> np.ndarray:
            self._step(sent, result)
            return result

        self._wait()
        self._begun = self._thread.submit(step)
        out[:] = 0

    def _finish(self, out: np.ndarray) -> None:
        out[:] = 0 if self._begun is None else self._begun.result()  # None: a signal handler raised before `_begin`
        self._begun = None

    def _wait(self) -> None:
        """Wait for the end of a step that was begun and whose result was not asked for: the program was interrupted."""
        begun, self._begun = self._begun, None
        if begun is not None:
            wait([begun])

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix="scopil-step")

    @contextmanager
    def watched(self) -> Iterator[None]:
        with host_call.guarded() as lost:
            yield
        self._fault = self._fault or next(iter(lost), None)
        self.refuse_faults()

    def refuse_faults(self) -> None:
        """Raise the error of the last compiled program, if any."""
        fault, self._fault = self._fault, None
        if fault is not None:
            self._tickets.clear()
            raise fault
        if self._twin is not None:
            self._twin.refuse_faults()

    def for_episodes(self) -> "HostEnv":
        if self._twin is None and self._make_another is not None:
            try:
                self._twin = HostEnv(self._make_another(), self._make_another, close_first=True)
            except NoCopyError:
                return self
        return self if self._twin is None else self._twin

    def stale(self, state: EnvState) -> bool:
        return int(state.inner) != self._tickets.get(state.steps.shape[0])

    def _training_envs(self, num_envs: int) -> HostVector:
        if num_envs not in self._training:
            self._training[num_envs], _ = self._make(num_envs)
        return self._training[num_envs]

    def envs_to_play(self, episodes: int) -> HostVector:
        """Return copies for evaluation or, without copies, the training environments, which then start new episodes."""
        n = self._size if self._vector else min(episodes, PARALLEL_EPISODES)
        if n in self._serial and self._is_slow(n):
            self._play_in_workers(n)
        if n in self._playing:
            return self._playing[n]
        if self._make_another is not None:
            spare, self._spare = self._spare, None  # reserved for training
            try:
                self._playing[n], serial = self._make(n)
                if serial is not None:
                    self._serial[n] = serial
                return self._playing[n]
            except NoCopyError:
                self._make_another = None
            finally:
                self._spare = spare
        self._tickets.pop(self._size, None)
        return self._training_envs(self._size)

    def _is_slow(self, n: int) -> bool:
        """Whether the copies have stepped for as long as workers take to start, and workers would save time."""
        spent = self._serial[n]
        return n > 1 and spent.seconds >= max(WORKERS_START, spent.steps * SLOW_STEP)

    def _play_in_workers(self, n: int) -> None:
        """Replace `n` copies in this process by copies in other processes, if that is possible."""
        from scopil.envs.workers import WorkerEnvs

        del self._serial[n]  # tried once
        processes = min(n, _processes())
        if self.env_id is None or processes < 2:
            return
        workers = WorkerEnvs(self.spaces, self.env_id, n, processes)
        try:
            workers.reset(np.zeros(n, int))
        except EnvError:  # only this process can make the environment: a script registered it
            workers.close()
        else:
            self._playing[n] = self._limited(workers)
            self._workers.append(workers)

    # --- whole episodes -------------------------------------------------------------------------------------------

    def random_starts(self, seeds: Sequence[int], episodes: int) -> Seeds:
        return Seeds(np.random.default_rng(list(seeds)).integers(2**31, size=episodes))

    def play(
        self, policy: Any, starts: Seeds, key: PRNGKey, mode: Mode = "greedy", advance: Advance = lambda ended: None
    ) -> list[Episode]:
        """Play several episodes at a time. An episode depends only on its seed and its number."""
        if mode not in self._choosers:

            def choose(policy, obs, key, numbers, step):
                keys = jax.vmap(lambda number: jax.random.fold_in(jax.random.fold_in(key, number), step))(numbers)
                return jax.vmap(lambda o, k: act(policy, o, k, mode))(obs, keys)

            self._choosers[mode] = owned_program(choose)
        chooser = self._choosers[mode]
        choose_all = lambda obs, numbers, step: chooser(policy, obs, key, numbers, step)  # noqa: E731
        envs = partial(self.envs_to_play, len(starts.seeds))
        return host_episodes(envs, self.spaces, choose_all, starts.seeds, self.horizon, advance)

    def attribute(self, name: str) -> Any:
        first: Any = self._first
        if self._vector:
            inside = getattr(first.unwrapped, "envs", None)
            first = inside[0] if inside else first.unwrapped
        if isinstance(first, gym.Env):
            return first.get_wrapper_attr(name) if first.has_wrapper_attr(name) else None
        return getattr(first, name, None)

    def reports_cost(self) -> bool:
        """Tests one step of a copy or, without copies, of the environment itself: call this before training."""
        if self._reports_cost is None:
            with jax.ensure_compile_time_eval():  # the environment may compute with JAX, and this may be traced
                envs = self.envs_to_play(1)
                n = envs.num_envs
                envs.reset(np.zeros(n, int))
                box = self.action_space if isinstance(self.action_space, gym.spaces.Box) else None
                action = np.zeros(n, np.int32)
                if box is not None:
                    action = np.clip(np.zeros((n, *box.shape), np.float32), box.low, box.high)
                result = envs.step(action, None)
                self._reports_cost = all("cost" in envs.numbers(result.infos, i) for i in range(n))
        return self._reports_cost

    def info_keys(self, wanted: Collection[str]) -> set[str]:
        """Plays a copy or, without copies, the environment itself."""
        if self._to_try and not self._info_keys.issuperset(wanted):
            envs, space = self.envs_to_play(1), copy(self.action_space)
            n = envs.num_envs
            space.seed(0)
            _, infos = envs.reset(np.arange(n))
            while True:
                self._info_keys |= {key for i in range(n) for key in envs.numbers(infos, i)}
                if not self._to_try or self._info_keys.issuperset(wanted):
                    break
                self._to_try -= 1
                seeds = np.arange(n) + n * (RANDOM_STEPS - self._to_try)
                infos = envs.step(np.stack([space.sample() for _ in range(n)]), seeds).infos
        return self._info_keys

    def counts_violations(self) -> bool:
        # Without copies, the test for a cost would reset the only environment.
        return self._judge is not None or (self._make_another is not None and self.reports_cost())

    def count_by(self, judge: Judge) -> bool:
        self._judge = judge
        return True

    # --- copies ---------------------------------------------------------------------------------------------------

    def _make(self, num_envs: int) -> tuple[HostVector, SerialEnvs | None]:
        if self.num_envs not in (None, num_envs):
            n = self.num_envs
            raise EnvError(
                f"{num_envs} environments wanted at a time, but {self.name} is {n} together and cannot be copied: set "
                f"num_envs={n} (and rollouts={n} if the algorithm has it), or give an id or a function that makes one."
            )
        envs: list[Any] = [self._next_env() for _ in range(1 if self._vector else num_envs)]
        serial = None if self._vector else SerialEnvs(self.spaces, envs)
        return self._limited(serial or GivenVectorEnv(self.spaces, envs[0])), serial

    def _limited(self, made: HostVector) -> HostVector:
        return made if self.time_limit else _Unlimited(made, self.horizon, self._first)

    def _next_env(self) -> GymEnv:
        env, self._spare = self._spare, None
        if env is None:
            if self._make_another is None:
                raise NoCopyError(f"{self.name} cannot be copied; give an id or a function that makes one.")
            env = self._make_another()
            self._to_close.append(env)
        return env

    def close(self) -> None:
        """Close the copies. They are made again when needed."""
        self._wait()
        for env in self._to_close:
            env.close()
        self._to_close.clear()
        if self._make_another is not None:
            self._spare = None
            self._training.clear()
        for workers in self._workers:
            workers.close()
        self._workers.clear()
        self._playing.clear()
        self._serial.clear()
        self._tickets.clear()
        if self._twin is not None:
            self._twin.close()


class NoCopyError(EnvError):
    """The environment cannot be copied."""


class _Unlimited:
    """Environments without a time limit. Warns if an episode does not end within `most` steps."""

    def __init__(self, envs: HostVector, most: int, given: GymEnv):
        self.num_envs, self._envs, self._most, self._given = envs.num_envs, envs, most, given
        self._steps = np.zeros(envs.num_envs, int)  # steps of the current episodes

    def reset(self, seeds: np.ndarray) -> tuple[np.ndarray, Any]:
        self._steps[:] = 0
        return self._envs.reset(seeds)

    def step(self, actions: np.ndarray, seeds: np.ndarray | None, alive: np.ndarray | None = None) -> StepResult:
        result = self._envs.step(actions, seeds, alive)
        self._steps += 1
        self._steps[result.terminated | result.truncated] = 0
        if alive is not None:
            self._steps[~alive] = 0
        if self._steps.max() >= self._most:
            warn_endless(self._given, self._most)
        return result

    def restart(self, before: np.ndarray, which: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        self._steps[which] = 0
        return self._envs.restart(before, which, seeds)

    def numbers(self, infos: Any, index: int) -> dict[str, float]:
        return self._envs.numbers(infos, index)


def _processes() -> int:
    """The number of cores that this process may use. Runs of a study have one each (NPROC)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return int(os.environ.get("NPROC") or cores or 1)


def _copy(env: gym.Env) -> gym.Env:
    way_out = "give a function that makes one, or use num_envs=1"
    try:
        made = gym.make(env.spec)  # pyright: ignore[reportArgumentType]
    except Exception as error:
        raise NoCopyError(f"{env} cannot be copied ({error}); {way_out}.") from error
    if str(made) != str(env):
        raise NoCopyError(f"{env} cannot be copied: its spec makes {made}; {way_out}.")
    return made


def _step_call(state: EnvState, action: Array, key: PRNGKey) -> Int[Array, " K"]:
    assert action.dtype in (jnp.int32, jnp.float32), action.dtype
    bits = jax.lax.bitcast_convert_type(action, jnp.int32)
    return jnp.concatenate([state.inner[None], _seeds(key, state.steps.shape[0]), bits.reshape(-1)])


def _bits(after: Array | None) -> Int[Array, " 1"]:
    """The bits of the first number, so that a call depends on it."""
    return jnp.zeros(1, jnp.int32) if after is None else jax.lax.bitcast_convert_type(after.reshape(-1)[:1], jnp.int32)


def _seeds(key: PRNGKey, count: int) -> Int[Array, " N"]:
    """Seeds of 31 bits, which every random generator accepts."""
    return (jax.random.bits(key, (count,), jnp.uint32) >> 1).astype(jnp.int32)
