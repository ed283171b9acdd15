"""SAC-Lagrangian, an oracle: it learns from the true cost, which the paper's algorithms do not see.

    y_c      = c + γ_c (1 − terminated) E_{a~π} Q̄^c_ψ(s',a),   Q̄^c the mean of two critics
    φ^c_x:     minimise E_B ½ (Q^c_φx(s,a) − y_c)²
    θ:         minimise −J_π(θ) + ν E_B E_{a~π} Q̄^c_φ(s,a)
    ν ←        [ν + η_ν (c̄ − budget)]₊,  c̄ the mean cost over the newest step of each environment

J_π, reward critics, temperature and targets are the same as in SAC. Q̄^c is a mean because the maximum, the counterpart
of SAC's minimum, would add a positive bias at every backup, and ν would multiply this bias. The algorithm shows what is
attainable with the true cost; it is not a baseline (docs/algorithms/oracles.md).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.algos import sac
from scopil.algos.base import Algorithm, Curve, Data, Metrics, Spaces
from scopil.config import config, setting
from scopil.losses import constraints, soft
from scopil.losses.constraints import Dual
from scopil.losses.soft import operator
from scopil.nn.gradient import Trainable, gradient_step, trainable
from scopil.nn.heads import Head
from scopil.nn.nets import Net, network
from scopil.nn.normalise import RunningStats
from scopil.types import PRNGKey

Scale = Callable[[Float[Array, ""]], float | Float[Array, ""]]


@config
class Costs(sac.Config):
    """SAC's settings and those of costs, without the multiplier's."""

    cost_discount: float = setting(default=0.99, about="γ_c per environment step.", low=0, high=1)
    budget: float = setting(default=0.0, about="Cost per step that is allowed.", low=0)


@config
class Config(Costs):
    multiplier_init: float = setting(default=0.0, about="ν₀.", low=0)
    multiplier_lr: float = setting(default=1e-3, about="η_ν per gradient step, plain ascent (ours).", low=0)


class State(NamedTuple):
    actor: Trainable  # θ
    critics: Trainable  # (φ1, φ2)
    targets: tuple[Net, Net]  # (ψ1, ψ2)
    log_alpha: Trainable
    obs_stats: RunningStats | None
    head: Head
    cost_critics: Trainable  # (φ^c_1, φ^c_2)
    cost_targets: tuple[Net, Net]  # (ψ^c_1, ψ^c_2)
    multiplier: Any  # the state of a Dual; here ν


ASCENT = Dual(
    lambda cfg: jnp.asarray(cfg.multiplier_init, jnp.float32),
    lambda nu: nu,
    lambda nu, excess, cfg: constraints.ascend(nu, excess, cfg.multiplier_lr),
)


def init(key: PRNGKey, spaces: Spaces, cfg: Costs, dual: Dual = ASCENT) -> State:
    k_sac, k_1, k_2 = jax.random.split(key, 3)
    sizes = operator(spaces.head).critic_sizes(spaces.obs_dim, cfg.hidden, spaces.head)
    critics = (network(sizes, k_1, spaces.image), network(sizes, k_2, spaces.image))
    return State(*sac.init(k_sac, spaces, cfg), trainable(critics), critics, dual.init(cfg))


def update(
    state: State, data: Data, cfg: Any, key: PRNGKey, dual: Dual = ASCENT, scale: Scale = lambda nu: 1.0
) -> tuple[State, Metrics]:
    """One gradient step. `scale(ν)` is a factor of the policy's loss."""
    assert data.true_cost is not None
    x, newest = sac.preprocess(state, data, key), data.true_cost.newest
    alpha, nu, op = jnp.exp(state.log_alpha.params), dual.value(state.multiplier), x.op

    # φx: minimise J_Q(φx);  φ^c_x: minimise the squared error to y_c
    critics, m_q = sac.critic_step(state, x, alpha, cfg)
    cost_critics, m_c = cost_critic_step(state, x, data.true_cost.batch, cfg)

    # θ: minimise −J_π(θ) + ν E_B E_{a~π} Q̄^c(s,a)
    def lagrangian(actor):
        pi = op.distribution(actor, x.s, x.noise.now)
        j_pi = soft.soft_value(op, critics.params, pi, x.s, alpha).mean()
        harm = op.mean_q(cost_critics.params, pi, x.s).mean()
        return scale(nu) * (-j_pi + nu * harm), (j_pi, harm)

    actor, _, (j_pi, harm) = gradient_step(state.actor, lagrangian, cfg.learning_rate)
    log_alpha, m_alpha = sac.temperature_step(state, actor.params, x, sac.target_entropy(cfg, state.head), cfg)

    # ν ← [ν + η_ν (c̄ − budget)]₊
    multiplier = dual.step(state.multiplier, newest.mean() - cfg.budget, cfg)

    metrics = m_q | m_c | m_alpha | {
        "actor/objective": j_pi,
        "actor/harm": harm,
        "dual/lambda": dual.value(multiplier),
        "cost/mean": newest.mean(),
    }  # fmt: skip
    targets = sac.track(state.targets, critics, cfg)
    cost_targets = sac.track(state.cost_targets, cost_critics, cfg)
    return State(
        actor, critics, targets, log_alpha, x.obs_stats, state.head, cost_critics, cost_targets, multiplier
    ), metrics


def cost_critic_step(state: State, x: sac.Inputs, cost: Float[Array, " B"], cfg: Costs) -> tuple[Trainable, Metrics]:
    """φ^c_x: minimise the squared error to y_c, which has no entropy term."""
    op = x.op
    pi_next = op.distribution(state.actor.params, x.s_next, x.noise.after)
    v_next = op.mean_q(state.cost_targets, pi_next, x.s_next)
    y = soft.td_target(cost, x.terminated, v_next, cfg.cost_discount)
    return sac.fit_critics("cost_critic", state.cost_critics, x, y, cfg)


ORACLE = Algorithm(
    name="oracle-sac-lagrangian",
    title="SAC-Lagrangian (oracle)",
    summary="SAC that learns from the true cost: a reference",
    config=Config,
    init=init,
    update=update,
    policy=sac.policy,
    wants=frozenset({"replay", "true_cost"}),
    curves=(Curve("dual/lambda", "Multiplier ν", "ν"), Curve("cost/mean", "True cost per step"), *sac.CURVES),
)
