"""SCOPIL for discrete actions (Papadopoulos & Vouros 2025, Algorithm 1): SAC under an imitation constraint.

    G(θ)    = E_D [ −log π(a|s) − 2βα H(π(·|s)) ] − δ            the constraint; feasible when ≤ 0
    L(θ,λ)  = −E_B [ 2(1−β)α H(π(·|s)) + Σ_a π(a|s) min_x Q_φx(s,a) ] + λ G(θ)
    θ:        minimise L(θ, λ)
    λ:        maximise λ G(θ) with the updated policy, then project to λ ≥ 0

Critics, temperature and targets are SAC's. β = ½ gives the paper's lines. The ablations plug in other parts: a
constraint without entropy, a multiplier that stays where it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.algos import sac
from scopil.algos.base import Algorithm, Metrics, Pairs, Spaces
from scopil.config import pytree
from scopil.core import duals, imitation, soft
from scopil.core.distributions import Categorical
from scopil.core.learner import Learned, descend
from scopil.core.nets import MLP, columns
from scopil.types import PRNGKey, Transition


@pytree(static=("hidden", "batch_size", "replay_size", "num_envs", "grad_steps", "demo_batch_size"))
@dataclass(frozen=True, kw_only=True)
class Config(sac.Config):
    demo_batch_size: int = 256
    """Demonstrated pairs per gradient step."""
    lambda_init: float = 1.05
    """λ₀."""
    lambda_lr: float = 3e-4
    """η of the multiplier, plain ascent."""
    slack: float = 0.0
    """δ in nats; 0 asks for the demonstrator exactly (ours: the paper gives no value)."""
    entropy_split: float = 0.5
    """β in [0, 1]: the constraint's share of the entropy bonus."""


class State(NamedTuple):
    actor: Learned  # θ
    critics: Learned  # (φ1, φ2)
    targets: tuple[MLP, MLP]  # (ψ1, ψ2)
    log_alpha: Learned
    multiplier: Float[Array, ""]  # λ


class Parts(NamedTuple):
    """What the ablations exchange."""

    constraint: Callable[..., Float[Array, " B"]] = imitation.entropic_constraint
    dual: Callable[..., Float[Array, ""]] = duals.ascend


WHOLE = Parts()


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    return State(*sac.init(key, spaces, cfg), jnp.asarray(cfg.lambda_init, jnp.float32))


def update(
    state: State, batch: Transition, demo: Pairs, cfg: Config, parts: Parts = WHOLE
) -> tuple[State, Metrics]:
    alpha, lam = jnp.exp(state.log_alpha.params), state.multiplier
    s, s_demo = columns(batch.obs), columns(demo.obs)
    rl_share, demo_share = 2 * (1 - cfg.entropy_split), 2 * cfg.entropy_split

    def g(pi: Categorical, alpha: Float[Array, ""]) -> Float[Array, ""]:
        return parts.constraint(pi, demo.action, demo_share * alpha, cfg.slack).mean()

    # φx: minimise J_Q(φx)
    critics, m_q = sac.critic_step(state, s, batch, alpha, cfg)
    q = sac.least(critics.params, s)

    # θ: minimise −J_π(θ) + λ G(θ)
    def lagrangian(actor):
        j_pi = soft.policy_objective(sac.pi(actor, s), q, rl_share * alpha).mean()
        return -j_pi + lam * g(sac.pi(actor, s_demo), alpha), j_pi

    actor, _, j_pi = descend(state.actor, lagrangian, cfg.learning_rate)

    # α: minimise α (E_B H(π) − H̄)
    log_alpha, m_alpha = sac.temperature_step(state.log_alpha, sac.pi(actor.params, s), cfg)

    # λ ← [λ + η G(θ)]₊
    pi_demo = sac.pi(actor.params, s_demo)
    violation = g(pi_demo, jnp.exp(log_alpha.params))
    lam = parts.dual(lam, violation, cfg.lambda_lr)

    metrics = m_q | m_alpha | {
        "actor/objective": j_pi,
        "dual/lambda": lam,
        "dual/constraint": violation,
        "demo/nll": -pi_demo.log_prob(demo.action).mean(),
        "demo/entropy": pi_demo.entropy().mean(),
    }  # fmt: skip
    return State(actor, critics, sac.track(state.targets, critics.params, cfg), log_alpha, lam), metrics


def variant(name: str, title: str, parts: Parts) -> Algorithm:
    return Algorithm(
        name=name,
        title=title,
        config=Config,
        init=init,
        policy=sac.policy,
        update=partial(update, parts=parts),
        needs_demos=True,
    )


ALGORITHM = variant("scopil", "SCOPIL", WHOLE)
