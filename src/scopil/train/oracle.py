"""The off-policy loop of an oracle: its replay has a column for the true cost, which no other replay has."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from scopil.algos.base import Metrics
from scopil.algos.sac_lagrangian import OracleAlgorithm, OracleTransition
from scopil.core import replay as ring
from scopil.core.draws import uniform_indices
from scopil.core.replay import Replay
from scopil.envs.functional import EnvState
from scopil.train.offpolicy import OffPolicy
from scopil.train.onpolicy import refuse_without_cost, true_cost
from scopil.types import PRNGKey, Transition


@dataclass(frozen=True, eq=False)
class OracleOffPolicy(OffPolicy):
    """`OffPolicy` for a learner that is told the cost of the state each step led to."""

    algorithm: OracleAlgorithm

    def __post_init__(self):
        refuse_without_cost(self.env)

    def _kept(self, before: EnvState, transition: Transition, after: EnvState) -> OracleTransition:
        return OracleTransition(transition, true_cost(self.env, before, transition.action, after))

    def _update(self, learner: Any, replay: Replay, cfg: Any, key: PRNGKey) -> tuple[Any, Metrics]:
        (index,) = uniform_indices(key, (cfg.batch_size, replay.size))
        batch = ring.take(replay, index, self._like())
        newest = ring.newest(replay, cfg.num_envs, self._like())
        return self.algorithm.update(learner, batch, newest.cost, cfg)

    def _like(self) -> OracleTransition:
        return OracleTransition(super()._like(), jnp.float32(0))
