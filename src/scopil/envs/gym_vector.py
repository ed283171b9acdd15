"""Gymnasium environments stepped together in NumPy. Errors name the environment and the step."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from scopil.envs.spaces import Spaces
from scopil.errors import EnvError


class StepResult(NamedTuple):
    """One step of every environment."""

    next_obs: np.ndarray  # (N, D), after the step and before any reset
    reward: np.ndarray  # (N,) float32
    terminated: np.ndarray  # (N,) bool
    truncated: np.ndarray  # (N,) bool
    obs: np.ndarray  # (N, D), to act on next; where an episode ended, the first one of the new episode
    infos: Any  # as the environments returned them; `numbers` reads them


@runtime_checkable
class HostVector(Protocol):
    """Environments that step together.

    `reset` resets every environment with its seed and returns observations and infos. `step` resets the environments
    whose episode ended, each with its seed; without `seeds`, no new episodes begin. If `alive` is given, only the
    results of environments that it marks are valid. `restart` begins episodes in the environments that `which` marks,
    and returns `before` with their observations. `numbers` returns the numbers in the `info` of one environment."""

    num_envs: int

    def reset(self, seeds: np.ndarray) -> tuple[np.ndarray, Any]: ...
    def step(self, actions: np.ndarray, seeds: np.ndarray | None, alive: np.ndarray | None = None) -> StepResult: ...
    def restart(self, before: np.ndarray, which: np.ndarray, seeds: np.ndarray) -> np.ndarray: ...
    def numbers(self, infos: Any, index: int) -> dict[str, float]: ...


class SerialEnvs:
    """Copies of one environment, stepped one after the other. They may be a part of `total` copies, from number `first`
    on."""

    def __init__(self, spaces: Spaces, envs: Sequence[gym.Env], first: int = 0, total: int | None = None):
        self.num_envs, self._spaces, self._envs = len(envs), spaces, envs
        self._first, self._total = first, total or len(envs)
        self.seconds, self.steps = 0.0, 0  # of all steps
        self._steps, self._seeds = np.zeros(len(envs), int), np.zeros(len(envs), int)

    def reset(self, seeds: np.ndarray) -> tuple[np.ndarray, Any]:
        begun = [self._begin(i, seed) for i, seed in enumerate(seeds)]
        return np.stack([row for row, _ in begun]), [info for _, info in begun]

    def step(self, actions: np.ndarray, seeds: np.ndarray | None, alive: np.ndarray | None = None) -> StepResult:
        actions = self._spaces.from_policy(actions)
        nothing = (np.zeros(self._spaces.size, np.float32), 0.0, False, False, {})
        begun = time.perf_counter()
        played = [self._advance(i, actions[i]) if alive is None or alive[i] else nothing for i in range(self.num_envs)]
        self.seconds += time.perf_counter() - begun
        self.steps += self.num_envs if alive is None else int(alive.sum())
        rows, rewards, terminated, truncated, infos = zip(*played)
        next_obs = obs = np.array(rows)
        if seeds is not None and any(over := [a or b for a, b in zip(terminated, truncated)]):
            obs = self.restart(next_obs, np.array(over), seeds)
        return StepResult(
            next_obs, np.array(rewards, np.float32), np.array(terminated), np.array(truncated), obs, infos
        )

    def restart(self, before: np.ndarray, which: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        obs = before.copy()
        for i in np.flatnonzero(which).tolist():
            obs[i], _ = self._begin(i, seeds[i])
        return obs

    def numbers(self, infos: Any, index: int) -> dict[str, float]:
        return numbers_of(infos[index])

    def _begin(self, i: Any, seed: Any) -> tuple[np.ndarray, dict[Any, Any]]:
        self._steps[i], self._seeds[i] = 0, seed
        try:
            obs, info = begun(self._envs[i].reset(seed=int(seed)))
            return self._spaces.row(obs), _checked_info(info)
        except Exception as error:
            raise self._fault(i, error) from error

    def _advance(self, i: int, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[Any, Any]]:
        self._steps[i] += 1
        try:
            obs, reward, terminated, truncated, info = self._envs[i].step(action)
            row, info = self._spaces.row(obs), _checked_info(info)
            return row, _finite_reward(reward), bool(terminated), bool(truncated), info
        except Exception as error:
            raise self._fault(i, error) from error

    def _fault(self, i: int, error: Exception) -> EnvError:
        which = f"environment {self._first + i} of {self._total}, " if self._total > 1 else ""
        when = f"step {self._steps[i]} after reset" if self._steps[i] else "reset"
        return EnvError(f"{self._spaces.name}: {which}{when}(seed={self._seeds[i]}): {_describe(error)}.")


class GivenVectorEnv:
    """A `VectorEnv` that the caller made, in any autoreset mode."""

    def __init__(self, spaces: Spaces, env: VectorEnv):
        self.num_envs, self._spaces, self._env = env.num_envs, spaces, env
        try:
            self._mode = AutoresetMode(env.metadata.get("autoreset_mode"))
        except ValueError as error:
            found = env.metadata.get("autoreset_mode")
            raise EnvError(f"{spaces.name}: metadata['autoreset_mode'] is {found!r}; want an AutoresetMode.") from error
        inner = env.unwrapped
        self._own_seeds = isinstance(inner, SyncVectorEnv | AsyncVectorEnv)  # `reset` accepts one seed per environment
        apart = isinstance(inner, AsyncVectorEnv) and not inner.shared_memory
        if apart and self._mode is AutoresetMode.NEXT_STEP:
            # Its workers do not register an explicit reset: they reset again instead of taking the next step.
            raise EnvError(
                f"{spaces.name}: an AsyncVectorEnv with shared_memory=False in NEXT_STEP autoreset mode begins every "
                f"episode twice; make it with shared_memory=True, or with autoreset_mode=AutoresetMode.SAME_STEP."
            )
        self._steps = 0
        if not self._own_seeds and self._mode is not AutoresetMode.SAME_STEP and self.num_envs > 1:
            self._refuse_whole_resets()

    def _refuse_whole_resets(self) -> None:
        """Raise, before training, if a reset of one environment resets all (as in Gymnasium's CartPoleVectorEnv)."""
        first = np.arange(self.num_envs) == 0
        obs, _ = self.reset(first.astype(int))
        try:
            self._begin_some(obs, first, first.astype(int))
        except Exception as error:
            raise self._fault(error) from error

    def reset(self, seeds: np.ndarray) -> tuple[np.ndarray, Any]:
        try:
            return self._begin(seeds)
        except Exception as error:
            raise self._fault(error) from error

    def _begin(self, seeds: np.ndarray) -> tuple[np.ndarray, Any]:
        obs, infos = self._env.reset(seed=seeds.tolist() if self._own_seeds else int(seeds[0]))
        return self._rows(obs), _checked_info(infos)

    def step(self, actions: np.ndarray, seeds: np.ndarray | None, alive: np.ndarray | None = None) -> StepResult:
        self._steps += 1
        try:
            obs, reward, terminated, truncated, infos = self._env.step(self._spaces.from_policy(actions))
            return self._result(self._rows(obs), reward, terminated, truncated, _checked_info(infos), seeds)
        except Exception as error:
            raise self._fault(error) from error

    def _result(
        self, obs: np.ndarray, reward: Any, terminated: Any, truncated: Any, infos: Any, seeds: Any
    ) -> StepResult:
        reward = np.array([_finite_reward(r) for r in np.asarray(reward).reshape(-1)], np.float32)
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        if not reward.shape == terminated.shape == truncated.shape == (self.num_envs,):
            raise EnvError(f"rewards or end flags of the wrong shape; want ({self.num_envs},)")
        next_obs, ended = obs, terminated | truncated
        if ended.any() and self._mode is AutoresetMode.SAME_STEP:
            if "final_obs" not in infos:
                raise EnvError("an episode ended without `final_obs` in infos; SAME_STEP autoreset mode requires it")
            next_obs = obs.copy()
            for i in np.flatnonzero(ended):
                next_obs[i] = self._spaces.row(infos["final_obs"][i])
        elif ended.any() and (seeds is not None or self._mode is AutoresetMode.DISABLED):
            obs = self._begin_some(obs, ended, np.zeros(self.num_envs, int) if seeds is None else seeds)
        return StepResult(next_obs, reward, terminated, truncated, obs, infos)

    def restart(self, before: np.ndarray, which: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        try:
            return self._begin_some(before, which, seeds)
        except Exception as error:
            raise self._fault(error) from error

    def _begin_some(self, before: np.ndarray, ended: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Reset the environments whose episode ended. Also in NEXT_STEP mode: its own reset would use up a step."""
        if ended.all():
            return self._begin(seeds)[0]
        each: Any = seeds.tolist() if self._own_seeds else None
        obs, _ = self._env.reset(seed=each, options={"reset_mask": ended})
        obs = self._rows(obs)
        if not self._own_seeds and not np.array_equal(obs[~ended], before[~ended]):
            raise EnvError(
                "this VectorEnv resets all its environments, not only those in options={'reset_mask': …}; give an id, "
                "a function that makes one environment, or gym.make_vec(…, vectorization_mode='sync')"
            )
        return np.where(ended[:, None], obs, before)

    def numbers(self, infos: Any, index: int) -> dict[str, float]:
        everywhere = np.ones(self.num_envs, bool)
        if infos.get("_final_info", ~everywhere)[index]:
            infos = infos["final_info"]
        arrays = {k: v for k, v in infos.items() if k[0] != "_" and np.ndim(v) == 1}
        return numbers_of({k: v[index] for k, v in arrays.items() if infos.get(f"_{k}", everywhere)[index]})

    def _rows(self, obs: Any) -> np.ndarray:
        return self._spaces.rows(obs, self._env.observation_space, self.num_envs)

    def _fault(self, error: Exception) -> EnvError:
        return EnvError(f"{self._spaces.name}: step {self._steps} of {self.num_envs} together: {_describe(error)}.")


def begun(result: Any) -> tuple[Any, Any]:
    """The result of `reset`, if it is a pair. A dict alone, as before Gymnasium, would be taken apart into its keys."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise EnvError(f"reset returned a {type(result).__name__}; want a pair (observation, info)")
    return result


def numbers_of(info: Mapping[Any, Any]) -> dict[str, float]:
    known = ((key, value) for key, value in info.items() if isinstance(key, str) and _is_number(value))
    return {key: float(np.asarray(value).item()) for key, value in known}


def _finite_reward(reward: Any) -> float:
    number = float(reward)
    if not abs(number) <= np.finfo(np.float32).max:
        raise EnvError(f"a reward of {number}; want a finite number of magnitude at most 3.4e38")
    return number


def _is_number(value: Any) -> bool:
    try:
        array = np.asarray(value)
    except Exception:  # e.g. lists of unequal lengths
        return False
    return array.size == 1 and array.dtype.kind in "biuf"


def _checked_info(info: Any) -> Any:
    """Return `info`. Raise EnvError if it is not a dict or has a NaN cost, which would count as no violation."""
    if not isinstance(info, Mapping):
        raise EnvError(f"an info of type {type(info).__name__}; want a dict")
    for key, value in info.items():
        if isinstance(key, str) and key.startswith("cost") and is_nan(value):
            raise EnvError(f"info[{key!r}] is NaN; want a number, 0 if no rule is violated")
    return info


def is_nan(values: Any) -> bool:
    try:
        return bool(np.isnan(values).any())
    except TypeError:  # not numeric
        return False


def _describe(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return text if isinstance(error, EnvError) else f"{type(error).__name__}: {text}"
