"""Behaviour cloning: only the imitation term of SCOPIL's objective.

    θ: minimise E_D [ −log π(a|s) ]

π(a|s) is defined as in SCOPIL: for continuous actions it is the probability of the interval a ± ε. One gradient step
counts as one environment step of the budget, although BC does not step an environment. There is no
regularisation: BC is the reference for learning from demonstrations alone.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from scopil.algos import sac
from scopil.algos.base import Algorithm, Curve, Data, Metrics, Spaces, new_obs_stats
from scopil.algos.scopil import resolution_setting
from scopil.config import config, setting
from scopil.losses.soft import operator
from scopil.nn.gradient import Trainable, gradient_step, trainable
from scopil.nn.heads import Head
from scopil.nn.nets import network
from scopil.nn.normalise import RunningStats, normalise, update_stats
from scopil.types import PRNGKey


@config
class Config:
    """SCOPIL's defaults."""

    learning_rate: float = setting(default=3e-4, about="η (Adam).", low=0)
    hidden: tuple[int, ...] = setting(
        default=(32, 32), about="Widths of the hidden layers.", low=1, continuous=(64, 64)
    )
    demo_batch_size: int = setting(default=256, about="Demonstrated steps per gradient step.", low=1)
    normalise_obs: bool = setting(
        default=False,
        about="Whether the network sees observations with zero mean and unit variance, clipped at ±10.",
        continuous=True,
    )
    action_resolution: float = resolution_setting()


class State(NamedTuple):
    actor: Trainable  # θ
    obs_stats: RunningStats | None
    head: Head


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    return State(
        trainable(network((spaces.obs_dim, *cfg.hidden, spaces.head.num_outputs), key, spaces.image)),
        new_obs_stats(spaces, cfg),
        spaces.head,
    )


def update(state: State, data: Data, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
    demo, op = data.demo_batch, operator(state.head)
    assert demo is not None
    obs_stats = update_stats(state.obs_stats, demo.obs)
    s, action = op.states(normalise(obs_stats, demo.obs)), state.head.to_learner(demo.action)
    noise = op.noise(key, 0, len(demo.obs), state.head).demo

    def loss(actor):
        pi = op.imitator(actor, s, noise, cfg.action_resolution)
        nll = -pi.log_prob(action).mean()
        return nll, {
            "demo/nll": nll,
            "demo/entropy": jax.lax.stop_gradient(pi.entropy()).mean(),
            "demo/accuracy": jnp.mean(pi.matches(action)),
        }

    actor, _, metrics = gradient_step(state.actor, loss, cfg.learning_rate)
    return State(actor, obs_stats, state.head), metrics


ALGORITHM = Algorithm(
    name="bc",
    title="BC",
    summary="behaviour cloning: demonstrations only, no reward",
    config=Config,
    init=init,
    update=update,
    policy=sac.policy,
    wants=frozenset({"demo_batch"}),
    curves=(
        Curve("demo/nll", "−log π of demonstrated actions (nats)", "nll"),
        Curve("demo/entropy", "Entropy on demonstrated states (nats)", "H"),
        Curve("demo/accuracy", "Share of demonstrated actions that the greedy policy takes"),
    ),
)
