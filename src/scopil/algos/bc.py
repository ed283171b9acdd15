"""Behaviour cloning: the imitation end of SCOPIL's objective, and nothing else.

    θ: minimise E_D [ −log π(a|s) ]

One gradient step an environment step of the common loop, so budgets compare; the steps themselves, and their rewards,
are ignored. No regularisation: a reference for what demonstrations alone can do.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax.numpy as jnp

from scopil.algos import sac
from scopil.algos.base import Algorithm, Metrics, Pairs, Spaces
from scopil.config import pytree
from scopil.core.distributions import Categorical
from scopil.core.learner import Learned, descend, learned
from scopil.core.nets import MLP
from scopil.types import PRNGKey, Transition


@pytree(static=("hidden", "demo_batch_size", "grad_steps"))
@dataclass(frozen=True, kw_only=True)
class Config:
    """SCOPIL's defaults."""

    learning_rate: float = 3e-4
    """η (Adam)."""
    hidden: tuple[int, ...] = (32, 32)
    """Widths of the hidden layers."""
    demo_batch_size: int = 256
    """Demonstrated pairs per gradient step."""
    grad_steps: int = 1
    """Gradient steps per environment step."""

    # The loop asks for these; nothing would change with them, so they are not settings.
    batch_size: ClassVar[int] = 1
    replay_size: ClassVar[int] = 1
    num_envs: ClassVar[int] = 1


class State(NamedTuple):
    actor: Learned  # θ


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    return State(learned(MLP((spaces.obs_dim, *cfg.hidden, spaces.num_actions), key)))


def update(state: State, batch: Transition, demo: Pairs, cfg: Config) -> tuple[State, Metrics]:
    def loss(actor):
        pi = Categorical(actor(demo.obs))
        nll = -pi.log_prob(demo.action).mean()
        return nll, {
            "demo/nll": nll,
            "demo/entropy": pi.entropy().mean(),
            "demo/accuracy": jnp.mean(pi.log_probs.argmax(-1) == demo.action),
        }

    actor, _, metrics = descend(state.actor, loss, cfg.learning_rate)
    return State(actor), metrics


ALGORITHM = Algorithm(
    name="bc", title="BC", config=Config, init=init, policy=sac.policy, update=update, needs_demos=True
)
