"""SAC-Lagrangian for discrete actions, an oracle: it is told the true cost, which no learner of the paper is.

    y_c      = c + γ_c (1 − terminated) Σ_a π(a|s') Q̄^c_ψ(s',a),   Q̄^c the mean of two critics
    φ^c_x:     minimise E_B ½ (Q^c_φx(s,a) − y_c)²
    θ:         minimise −J_π(θ) + ν E_B Σ_a π(a|s) Q̄^c_φ(s,a)
    ν ←        [ν + η_ν (c̄ − budget)]₊,  c̄ the mean cost of the step each environment has just made

J_π, the critics of reward, temperature and targets are SAC's. Of two cost critics the mean is taken: the larger, as
the mirror image of SAC's smaller, would lean upwards at every backup, and ν multiplies what has added up. A yardstick
for what is attainable, not a competitor (docs/algorithms/oracles.md).
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.algos import sac
from scopil.algos.base import Algorithm, Metrics, Spaces
from scopil.config import pytree
from scopil.core import duals, soft
from scopil.core.distributions import pick
from scopil.core.learner import Learned, descend, learned
from scopil.core.nets import MLP, columns
from scopil.types import PRNGKey, Transition


class OracleTransition(NamedTuple):
    """One step, and what the law says of the state it led to."""

    step: Transition
    cost: Float[Array, "*B"]


@dataclass(frozen=True, kw_only=True)
class OracleAlgorithm(Algorithm):
    """`update` is (state, batch of OracleTransitions, costs of the newest steps, config) → state, metrics."""


@pytree(static=("hidden", "batch_size", "replay_size", "num_envs", "grad_steps"))
@dataclass(frozen=True, kw_only=True)
class Config(sac.Config):
    cost_discount: float = 0.99
    """γ_c per environment step, in [0, 1)."""
    lambda_init: float = 0.0
    """ν₀ ≥ 0."""
    lambda_lr: float = 1e-3
    """η_ν per gradient step, plain ascent (ours)."""
    budget: float = 0.0
    """Cost a step that is allowed."""


class State(NamedTuple):
    actor: Learned  # θ
    critics: Learned  # (φ1, φ2)
    targets: tuple[MLP, MLP]  # (ψ1, ψ2)
    log_alpha: Learned
    cost_critics: Learned  # (φ^c_1, φ^c_2)
    cost_targets: tuple[MLP, MLP]  # (ψ^c_1, ψ^c_2)
    multiplier: Float[Array, ""]  # ν


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    k_sac, k_1, k_2 = jax.random.split(key, 3)
    sizes = (spaces.obs_dim, *cfg.hidden, spaces.num_actions)
    critics = (MLP(sizes, k_1), MLP(sizes, k_2))
    return State(
        *sac.init(k_sac, spaces, cfg), learned(critics), critics, jnp.asarray(cfg.lambda_init, jnp.float32)
    )


def update(
    state: State, batch: OracleTransition, newest: Float[Array, " N"], cfg: Config
) -> tuple[State, Metrics]:
    alpha, nu, step = jnp.exp(state.log_alpha.params), state.multiplier, batch.step
    s = columns(step.obs)
    critics, m_q = sac.critic_step(state, s, step, alpha, cfg)
    cost_critics, m_c = cost_critic_step(state, s, batch, cfg)
    q, q_c = sac.least(critics.params, s), between(cost_critics.params, s)

    # θ: minimise −J_π(θ) + ν E_B Σ_a π(a|s) Q^c(s,a)
    def lagrangian(actor):
        pi = sac.pi(actor, s)
        j_pi, harm = soft.policy_objective(pi, q, alpha).mean(), pi.expect(q_c).mean()
        return -j_pi + nu * harm, (j_pi, harm)

    actor, _, (j_pi, harm) = descend(state.actor, lagrangian, cfg.learning_rate)
    log_alpha, m_alpha = sac.temperature_step(state.log_alpha, sac.pi(actor.params, s), cfg)

    # ν ← [ν + η_ν (c̄ − budget)]₊
    nu = duals.ascend(nu, newest.mean() - cfg.budget, cfg.lambda_lr)

    metrics = m_q | m_c | m_alpha | {
        "actor/objective": j_pi,
        "actor/harm": harm,
        "dual/lambda": nu,
        "cost/mean": newest.mean(),
    }  # fmt: skip
    targets = sac.track(state.targets, critics.params, cfg)
    cost_targets = sac.track(state.cost_targets, cost_critics.params, cfg)
    return State(actor, critics, targets, log_alpha, cost_critics, cost_targets, nu), metrics


def between(critics: tuple[MLP, MLP], s: Float[Array, "D B"]) -> Float[Array, "A B"]:
    """Q̄^c(s, ·) = ½ (Q^c_1 + Q^c_2)"""
    return 0.5 * (critics[0].columns(s) + critics[1].columns(s))


def cost_critic_step(
    state: State, s: Float[Array, "D B"], batch: OracleTransition, cfg: Config
) -> tuple[Learned, Metrics]:
    """φ^c_x: minimise the squared error to y_c. Costs have no entropy in them."""
    step, s_next = batch.step, columns(batch.step.next_obs)
    v_next = sac.pi(state.actor.params, s_next).expect(between(state.cost_targets, s_next))
    y = soft.td_target(batch.cost, step.terminated, v_next, cfg.cost_discount)

    def loss(critics):
        q1, q2 = critics[0].columns(s), critics[1].columns(s)
        j_q = soft.td_loss(q1, step.action, y) + soft.td_loss(q2, step.action, y)
        return j_q.mean(), pick(q1, step.action, axis=0).mean()

    critics, j_q, q_mean = descend(state.cost_critics, loss, cfg.learning_rate)
    return critics, {"cost_critic/loss": j_q, "cost_critic/q": q_mean}


ORACLE = OracleAlgorithm(
    name="oracle-sac-lagrangian",
    title="SAC-Lagrangian (oracle)",
    config=Config,
    init=init,
    policy=sac.policy,
    update=update,
    needs_demos=False,
)
