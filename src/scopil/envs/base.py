"""The interface of every environment: batched steps, whole episodes, starts, and optional hooks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Literal, NamedTuple

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from scopil.data.dataset import Episode
from scopil.envs.spaces import Spaces
from scopil.errors import EnvError
from scopil.types import PRNGKey, Transition

ENDLESS = 10_000  # steps after which an episode without a time limit is stopped

Mode = Literal["greedy", "sampled"]
Hook = Literal["measures", "draw_episodes", "draw_cost", "initial_at", "initial_unseen", "rules"]
# (row, action, next row, numbers of `info`) of a step, actions in the environment's form → above 0 if it breaks a rule
Judge = Callable[[Any, Any, Any, Mapping[str, float]], float]
Drawing = Callable[[Any, Any], Any]  # (matplotlib axes, episodes or cost function) → an image for a colour bar, or None
Advance = Callable[[int], None]  # called during play with the number of episodes that ended since the last call


def cost_of(info: Mapping[str, Any]) -> float | None:
    """The cost of one step: `info["cost"]` or, if missing, the largest `cost_<rule>` or, if missing, None."""
    named = [value for key, value in info.items() if str(key).startswith("cost_")]
    said = [np.asarray(cost) for cost in ([info["cost"]] if "cost" in info else named)]
    return max((float(np.max(cost, initial=0)) for cost in said if cost.dtype.kind in "biuf"), default=None)


class EnvState(NamedTuple):
    """One environment between two steps (or a batch of them, with a leading axis)."""

    inner: Any  # the environment's own state
    obs: Array
    steps: Int[Array, "..."]  # steps played in this episode


class Seeds(NamedTuple):
    """Starts of a host environment."""

    seeds: np.ndarray


Starts = EnvState | Seeds


class BatchEnv(ABC):
    """An environment with batched steps for training and whole episodes for evaluation: a `CompiledEnv` written in JAX,
    or a `HostEnv`."""

    name: str
    spaces: Spaces  # the environment's own spaces and the learner's, and the codec between them
    observation_space: gym.Space  # the learner's: one row of numbers
    action_space: gym.Space  # the learner's
    time_limit: int | None  # most steps of one episode; None: no limit
    params: Any = None  # parameters of a FuncEnv, if it has any
    num_envs: int | None = None  # number of environments that step together; None: any number
    slow: ClassVar[bool] = False  # if true, training runs in short pieces and plays few episodes

    @property
    def horizon(self) -> int:
        """The largest number of steps of an episode in `play`."""
        return self.time_limit or ENDLESS

    @abstractmethod
    def attribute(self, name: str) -> Any:
        """An attribute of the wrapped environment, or None if it does not exist."""

    def hook(self, name: Hook) -> Any:
        """An optional method or attribute of the environment, or None if it does not exist.

        - `measures(episode)` → a dict of measures beyond reward, steps and violations;
        - `draw_episodes(axes, episodes, params)` draws episodes on matplotlib axes. If the environment also reports
          `info["position"]` in the coordinates of these axes, reports show interactive episodes;
        - `draw_cost(axes, cost_fn, params)` draws a cost, `cost_fn(obs, action)`, on matplotlib axes;
        - `initial_at(start, params)` → the initial state at a given start;
        - `initial_unseen(rng, params)` → an initial state for unseen starts, if they differ from those of training;
        - `rules`: the rules whose violations are counted, in any form that `scopil.Rules.of` takes.
        """
        found = self.attribute(name)
        return found if callable(found) or name == "rules" else None

    def drawing(self, name: Literal["draw_episodes", "draw_cost"] = "draw_episodes") -> Drawing | None:
        """A drawing hook as a function of (axes, subject), or None."""
        draw = self.hook(name)
        return None if draw is None else lambda axes, subject: draw(axes, subject, self.params)

    # --- whole episodes -------------------------------------------------------------------------------------------

    @abstractmethod
    def random_starts(self, seeds: Sequence[int], episodes: int) -> Starts:
        """Random starts that depend only on these seeds (non-negative integers)."""

    @property
    def can_start_at(self) -> bool:
        return False

    def starts_at(self, starts: Any) -> EnvState:
        """A batch of initial states at given starts, in the form that `initial_at` takes."""
        raise EnvError(f"{self.name} cannot start at a given state; use unseen starts instead.")

    @abstractmethod
    def play(
        self, policy: Any, starts: Any, key: PRNGKey, mode: Mode = "greedy", advance: Advance = lambda ended: None
    ) -> list[Episode]:
        """Play one episode per start. `policy.act(obs, key)` samples an action; `act(obs)` is the likeliest."""

    def replay(self, starts: EnvState, actions: np.ndarray) -> list[Episode]:
        """Play given actions, (episodes, steps, …), from given starts."""
        raise EnvError(f"{self.name} cannot replay episodes; that needs a JAX environment with `initial_at`.")

    # --- batched steps --------------------------------------------------------------------------------------------

    @abstractmethod
    def reset_batch(self, key: PRNGKey, num_envs: int, after: Array | None = None) -> EnvState:
        """A batch of new episodes. If `after` is given, environments in Python are reset after it is computed."""

    @abstractmethod
    def step_batch(self, state: EnvState, action: Array, key: PRNGKey) -> tuple[EnvState, Transition, EnvState]:
        """Step a batch and reset the environments whose episodes ended. Returns the states after these resets, the
        transitions (whose `next_obs` is the true successor), and the states before the resets."""

    def begin_batch(self, state: EnvState, action: Array, key: PRNGKey) -> Int[Array, ""]:
        """Begin a `step_batch` whose result `finish_batch` returns. Returns 0. What depends on this number is computed
        while the environments step; a compiled environment steps in `finish_batch`."""
        return jnp.int32(0)

    def finish_batch(
        self, state: EnvState, action: Array, key: PRNGKey, after: Array
    ) -> tuple[EnvState, Transition, EnvState]:
        """The result of the step that `begin_batch` began, with the same arguments, when `after` is computed."""
        return self.step_batch(state, action, key)

    @abstractmethod
    def reports_cost(self) -> bool:
        """Whether the environment reports `info["cost"]` at each step."""

    @abstractmethod
    def info_keys(self, wanted: Collection[str]) -> set[str]:
        """Names of the numbers that `info` has in random play, which ends when all that are wanted were seen."""

    def counts_violations(self) -> bool:
        """Whether training can count the steps with a cost. Learners do not see the count."""
        return self.reports_cost()

    def count_by(self, judge: Judge) -> bool:
        """Count by `judge` in place of the environment's costs, for learners that do not want these. Returns whether it
        is possible: a compiled environment does not call Python."""
        return False

    @abstractmethod
    def step_batch_with_cost(
        self, state: EnvState, action: Array, key: PRNGKey
    ) -> tuple[EnvState, Transition, EnvState, Float[Array, " N"]]:
        """Like `step_batch`, but also returns the true cost of each step, for learners that may use it. Raises EnvError
        if `reports_cost` is false."""

    @abstractmethod
    def advance_batch(self, state: EnvState, action: Array, key: PRNGKey) -> tuple[EnvState, Transition]:
        """One step of each environment, without reset. Steps after the end of an episode are undefined."""

    @abstractmethod
    def restart(self, state: EnvState, which: Bool[Array, " N"], key: PRNGKey) -> EnvState:
        """New episodes in the environments that `which` marks; the others go on."""

    def for_episodes(self) -> "BatchEnv":
        """The environment for whole episodes inside a training program. A `HostEnv` makes a copy if it can."""
        return self

    def watched(self) -> AbstractContextManager[None]:
        """Surrounds complete runs of compiled programs that step the environment. At the end it raises the error that
        an environment stored, if any."""
        return nullcontext()

    def stale(self, state: EnvState) -> bool:
        """Whether training cannot continue from `state` and has to begin new episodes."""
        return False

    def as_given(self, row: Any) -> Any:
        """Convert a learner's row to an observation in the environment's own form."""
        return self.spaces.unflatten(row)

    def close(self) -> None:  # noqa: B027 (nothing to close)
        """Close all resources that this object opened."""
