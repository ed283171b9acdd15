"""What every part of the library may ask of an environment: stepping in batches, and a few optional offers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from jaxtyping import Array, Float, Int

from scopil.types import PRNGKey, Transition

ENDLESS = 10_000  # steps after which an episode without a time limit is stopped

Offer = Literal["measures", "draw_episodes", "draw_cost", "initial_at", "rules"]


def cost_of(info: Mapping[str, Any]) -> float | None:
    """Of one step: `cost`, or the largest `cost_<rule>` where rules are named alone; None where nothing is said."""
    named = [value for key, value in info.items() if str(key).startswith("cost_")]
    said = [np.asarray(cost) for cost in ([info["cost"]] if "cost" in info else named)]
    return max((float(np.max(cost, initial=0)) for cost in said if cost.dtype.kind in "biuf"), default=None)


class EnvState(NamedTuple):
    """One environment between two steps (or a batch of them, with a leading axis)."""

    inner: Any  # the environment's own state
    obs: Array
    steps: Int[Array, "..."]  # steps played in this episode


class BatchEnv(ABC):
    """What a training loop steps: a `CompiledEnv`, or a `HostEnv` for an environment that is not written in JAX."""

    observation_space: gym.Space  # one row of numbers: what a learner sees
    action_space: gym.Space
    time_limit: int | None  # of one episode, in steps
    params: Any = None  # the params of a FuncEnv; None where there are none

    @property
    def horizon(self) -> int:
        """The largest number of steps of a played episode."""
        return self.time_limit or ENDLESS

    @abstractmethod
    def offer(self, name: Offer) -> Any:
        """An optional method or attribute of the environment, or None where it has none.

        - `measures(episode)` → a dict of measures beyond reward, steps and violations;
        - `draw_episodes(axes, episodes, params)` draws episodes on matplotlib axes;
        - `draw_cost(axes, cost_fn, params)` draws a cost, `cost_fn(obs, action)`, on matplotlib axes;
        - `initial_at(start, params)` → the initial state at a given start;
        - `rules`: what `scopil.Rules.of` takes.
        """

    @property
    def image(self) -> tuple[int, int, int] | None:
        """The axes of observations that are images of bytes, flat rows of which learners see; else None."""
        return None

    @abstractmethod
    def reset_batch(self, key: PRNGKey, num_envs: int) -> EnvState: ...

    @abstractmethod
    def step_batch(self, state: EnvState, action: Array, key: PRNGKey) -> tuple[EnvState, Transition, EnvState]:
        """Step a batch and begin a new episode where one ended.

        Returns the states to act from next, the transitions (whose `next_obs` is the true successor), and the
        states before any reset."""

    @abstractmethod
    def reports_cost(self) -> bool:
        """Whether the environment reports `info["cost"]` of a step."""

    @abstractmethod
    def step_batch_with_cost(
        self, state: EnvState, action: Array, key: PRNGKey
    ) -> tuple[EnvState, Transition, EnvState, Float[Array, " N"]]:
        """`step_batch`, and the true cost of each step. Refused where `reports_cost` is false.

        Only learners that are given the true cost call this; a `Transition` has no field for it."""

    @abstractmethod
    def advance_batch(self, state: EnvState, action: Array, key: PRNGKey) -> tuple[EnvState, Transition]:
        """One step of each environment. What follows the end of an episode is undefined."""

    def for_episodes(self) -> "BatchEnv":
        """Environments to play whole episodes on from inside a training program, apart from those it trains on."""
        return self

    @abstractmethod
    def refuse_faults(self) -> None:
        """Raise the error, if any, of the compiled program that has just ended."""

    @abstractmethod
    def stale(self, state: EnvState) -> bool:
        """Whether training cannot continue from `state` and has to begin new episodes."""

    @abstractmethod
    def flatten(self, observation: Any) -> np.ndarray:
        """An observation, or a batch of them, as a learner sees it."""

    def as_given(self, row: Any) -> Any:
        """An observation as the environment gives it, from the row that a learner sees."""
        return row

    @property
    def given_space(self) -> gym.Space:
        """The environment's own observation space; `observation_space` is the learner's."""
        return self.observation_space

    def as_taken(self, action: Any) -> Any:
        """An action of a policy in the form that the environment takes."""
        return action

    @property
    @abstractmethod
    def taken_space(self) -> gym.Space:
        """The environment's own action space; `action_space` is the learner's."""

    @abstractmethod
    def close(self) -> None: ...
