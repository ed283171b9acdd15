"""Behaviour cloning of continuous actions: the imitation end of SCOPIL's objective, and nothing else.

    θ: minimise E_D [ −log P_ε(a|s) ]

P_ε(a|s) is SCOPIL's: the policy's probability of the interval of half width ε around a.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax.numpy as jnp

from scopil.algos import bc
from scopil.algos import sac_continuous as soft
from scopil.algos.base import Metrics, Pairs, Spaces
from scopil.algos.continuous import RESOLUTION, ContinuousAlgorithm, squashed_actor
from scopil.config import pytree
from scopil.core.frame import Frame, frame
from scopil.core.learner import Learned, descend, learned
from scopil.core.squashed import SquashedGaussian
from scopil.types import PRNGKey, Transition


@pytree(static=("hidden", "demo_batch_size", "grad_steps", "normalise_obs"))
@dataclass(frozen=True, kw_only=True)
class Config(bc.Config):
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers."""
    normalise_obs: bool = True
    """Whether the network sees observations with zero mean and unit variance (clipped at ±10)."""
    action_resolution: float = 0.05
    """ε: half the width of the interval that counts as the same action, where the box is [−1, 1]."""

    ranges: ClassVar[dict[str, tuple[float, float]]] = RESOLUTION


class State(NamedTuple):
    actor: Learned  # θ
    frame: Frame


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    actor = learned(squashed_actor(key, spaces, cfg.hidden))
    return State(actor, frame(spaces.obs_dim, *spaces.bounds, cfg.normalise_obs))


def update(state: State, demo: Pairs, cfg: Config) -> tuple[State, Metrics]:
    world = state.frame.watch(demo.obs)
    obs, action = world.see(demo.obs), world.unit(demo.action)

    def loss(actor):
        pi = SquashedGaussian(actor(obs))
        nll = -pi.log_mass(action, cfg.action_resolution).mean()
        off = jnp.abs(pi.mode() - action)
        hit = (off <= cfg.action_resolution).all(-1)
        return nll, {"demo/nll": nll, "demo/error": off.mean(), "demo/accuracy": jnp.mean(hit)}

    actor, _, metrics = descend(state.actor, loss, cfg.learning_rate)
    return State(actor, world), metrics


def _update(state: State, batch: Transition, demo: Pairs, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
    return update(state, demo, cfg)


ALGORITHM = ContinuousAlgorithm(
    name="bc", title="BC", config=Config, init=init, policy=soft.policy, update=_update, needs_demos=True
)
