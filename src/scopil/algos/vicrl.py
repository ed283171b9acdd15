"""Variational ICRL (Liu et al. 2023): ICRL with a distribution of ζ(s,a) in place of a number.

    (α, β) = softplus(network(s,a)),   ζ(s,a) ~ Beta(α, β),   c(s,a) = 1 − ζ(s,a), drawn anew for every step
    backward   `backward_iters` Adam steps on  −E_E log(ζ+e) + E_N log(ζ+e) + ρ (E_E KL + E_N KL),
               KL = KL(Beta(α, β) ‖ Beta(α₀, β₀)), ζ reparametrised and drawn anew in every step

The forward phase, the samples and the outer iterations are those of ICRL. There are no importance weights, hence no
bounds on a KL of trajectories. ζ = G_α / (G_α + G_β) of two gamma variates; the logit of ζ is log G_α − log G_β.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.special import betaln, digamma
from jaxtyping import Array, Float

from scopil.algos import icrl, ppo_lagrangian
from scopil.algos.base import Curve, Data, Metrics, PaddedEpisodes, Spaces
from scopil.algos.icrl import State
from scopil.config import config, setting
from scopil.losses import constraint_net
from scopil.nn.gradient import gradient_step
from scopil.nn.heads import Head
from scopil.nn.nets import Net
from scopil.types import PRNGKey

FLOOR = 1e-4  # the smallest α and β: digamma(0) is infinite
LAST = ("loss", "steps", "prior_kl", "expert_cost", "nominal_cost")


@config
class Config(icrl.Phases):
    multiplier_init: float = setting(default=0.1, about="ν₀; its softplus is inverted in float32.", low=1e-6, high=80)
    multiplier_lr: float = setting(default=0.05, about="Rate of the multiplier before its softplus (Adam).", low=0)
    constraint_lr: float = setting(default=5e-3, about="Rate of the constraint network (Adam).", low=0)
    backward_iters: int = setting(default=5, about="Steps of a backward phase.", low=1)
    regulariser: float = setting(default=0.6, about="ρ: weight of the KL from the prior.", low=0)
    prior_alpha: float = setting(default=0.9, about="α₀ of the prior of ζ.", low=1e-3)
    prior_beta: float = setting(default=0.1, about="β₀ of the prior of ζ.", low=1e-3)


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    return icrl.initial(key, spaces, cfg, 2, LAST)


def parameters(net: Net, head: Head, obs: Float[Array, "*B D"], action: Array) -> Float[Array, "2 *B"]:
    """(α, β) of every pair."""
    return jnp.moveaxis(jax.nn.softplus(constraint_net.outputs(net, obs, head.to_learner(action))) + FLOOR, -1, 0)


def draw_logit(key: PRNGKey, alpha_beta: Float[Array, "2 *B"]) -> Float[Array, "*B"]:
    """The logit of ζ ~ Beta(α, β), with gradients in α and β."""
    log_gamma = jax.random.loggamma(key, alpha_beta)
    return log_gamma[0] - log_gamma[1]


def prior_kl(alpha_beta: Float[Array, "2 *B"], cfg: Config) -> Float[Array, "*B"]:
    """KL(Beta(α, β) ‖ Beta(α₀, β₀))"""
    a, b = alpha_beta
    more_a, more_b = a - cfg.prior_alpha, b - cfg.prior_beta
    means = more_a * digamma(a) + more_b * digamma(b) - (more_a + more_b) * digamma(a + b)
    return betaln(cfg.prior_alpha, cfg.prior_beta) - betaln(a, b) + means


def cost(state: State, obs: Float[Array, "*B D"], action: Array) -> Float[Array, "*B"]:
    """The mean learned cost 1 − E ζ(s, a) = β / (α + β)."""
    alpha, beta = parameters(state.constraint.params, state.head, obs, action)
    return beta / (alpha + beta)


def update(state: State, data: Data, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
    k_cost, k_forward, k_outer, k_backward = jax.random.split(key, 4)
    step = data.rollout
    assert step is not None
    z = draw_logit(k_cost, parameters(state.constraint.params, state.head, step.obs, step.action))
    learn = partial(backward, key=k_backward)
    return icrl.iterate(constraint_net.cost(z), learn, state, data, cfg, (k_forward, k_outer))


def backward(
    state: State, expert: PaddedEpisodes, nominal: PaddedEpisodes, cfg: Config, outer: Array, key: PRNGKey
) -> tuple[State, Metrics]:
    """One backward phase."""
    ones = jnp.ones_like(nominal.obs[:, 0, 0])

    def step(constraint, key: PRNGKey):
        k_expert, k_nominal = jax.random.split(key)

        def loss(net: Net):
            of_expert, own = (parameters(net, state.head, e.obs, e.action) for e in (expert, nominal))
            z_expert, z_own = draw_logit(k_expert, of_expert), draw_logit(k_nominal, own)
            fit = constraint_net.loss(z_expert, expert.mask, z_own, nominal.mask, ones, 0.0)
            kl = constraint_net.masked_mean(prior_kl(of_expert, cfg), expert.mask)
            kl += constraint_net.masked_mean(prior_kl(own, cfg), nominal.mask)
            return fit + cfg.regulariser * kl, kl

        constraint, value, kl = gradient_step(constraint, loss, icrl.rate(cfg, outer), icrl.optimiser(cfg))
        return constraint, (value, kl)

    constraint, (value, kl) = jax.lax.scan(step, state.constraint, jax.random.split(key, cfg.backward_iters))
    state = state._replace(constraint=constraint)
    mean_cost = [constraint_net.masked_mean(cost(state, e.obs, e.action), e.mask) for e in (expert, nominal)]
    return state, {
        "constraint/loss": value[-1],
        "constraint/steps": jnp.float32(cfg.backward_iters),
        "constraint/prior_kl": kl[-1],
        "constraint/expert_cost": mean_cost[0],
        "constraint/nominal_cost": mean_cost[1],
    }


ALGORITHM = replace(
    icrl.ALGORITHM,
    name="vicrl",
    title="VICRL",
    summary="ICRL with a distribution of the learned cost and a prior",
    config=Config,
    init=init,
    update=update,
    budget=50 * 204_800,
    curves=(
        Curve("constraint/expert_cost", "Learned cost of demonstrated episodes"),
        Curve("constraint/nominal_cost", "Learned cost of the policy's episodes"),
        Curve("constraint/prior_kl", "KL of the learned cost from its prior (nats)"),
        *ppo_lagrangian.CURVES,
    ),
    learned_cost=cost,
)
