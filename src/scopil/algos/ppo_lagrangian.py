"""PPO-Lagrangian: PPO with a cost critic and a multiplier ν, under a given cost function c(s, a).

    L(θ)  = [ −E min(ρ A, clip(ρ, 1 ± ε) A) + ν E ρ A_c ] / (1 + ν) − c_H E H + c_V E (V − y)² + c_V E (V_c − y_c)²
    ν     = softplus(x);  x: one Adam step per rollout that maximises ν (c̄ − budget),  c̄ the rollout's mean raw cost

As in ICRL's published code, A is standardised per minibatch, A_c is only centred, and the cost term is not clipped.
`under(cost)` makes the algorithm for a known cost function. The oracle learns from the environment's true cost. It
shows what is attainable and is no competitor.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.algos import ppo
from scopil.algos.base import Algorithm, Curve, Data, Metrics, Spaces
from scopil.config import config, setting
from scopil.losses import policy_gradient
from scopil.losses.constraints import Dual
from scopil.nn import normalise
from scopil.nn.gradient import Trainable, gradient_step, trainable
from scopil.nn.heads import Head
from scopil.nn.nets import Net, Network
from scopil.types import PRNGKey

CostFunction = Callable[[Float[Array, "*B D"], Array], Float[Array, "*B"]]  # (observation, action) → cost


@config
class Costs(ppo.Config):
    """PPO's settings and those of costs, without the multiplier's."""

    cost_discount: float = setting(default=0.99, about="γ of costs.", low=0, high=1)
    cost_gae_lambda: float = setting(default=0.95, about="λ of the costs' advantages.", low=0, high=1)
    budget: float = setting(default=0.0, about="Cost per step that is allowed.", low=0)
    normalise_cost: bool = setting(
        default=True, about="Whether costs are divided by the deviation of their running discounted sum."
    )


@config
class Config(Costs):
    multiplier_init: float = setting(default=1.0, about="ν₀; its softplus is inverted in float32.", low=1e-6, high=80)
    multiplier_lr: float = setting(default=0.1, about="Rate of the multiplier before its softplus (Adam).", low=0)


class Nets(NamedTuple):
    actor: Network
    critic: Net
    cost_critic: Net


class State(NamedTuple):
    nets: Trainable  # Nets
    obs_stats: normalise.RunningStats | None
    head: Head
    reward_scale: normalise.ReturnScale | None
    cost_scale: normalise.ReturnScale | None
    multiplier: Any  # the state of a Dual; here x, with ν = softplus(x)


class Batch(NamedTuple):
    obs: Float[Array, "B D"]
    action: Array
    log_prob: Float[Array, " B"]
    advantage: Float[Array, " B"]
    target: Float[Array, " B"]
    cost_advantage: Float[Array, " B"]
    cost_target: Float[Array, " B"]


def _first(cfg: Config) -> Trainable:
    return trainable(jnp.log(jnp.expm1(jnp.asarray(cfg.multiplier_init, jnp.float32))))


def _ascend(x: Trainable, excess: Float[Array, ""], cfg: Config) -> Trainable:
    """ν: maximise ν (c̄ − budget)"""
    return gradient_step(x, lambda x: (-jax.nn.softplus(x) * excess, None), cfg.multiplier_lr)[0]


ADAM = Dual(_first, lambda x: jax.nn.softplus(x.params), _ascend)


def init(key: PRNGKey, spaces: Spaces, cfg: Costs, dual: Dual = ADAM) -> State:
    k_actor, k_critic, k_cost = jax.random.split(key, 3)
    nets = Nets(
        ppo.actor_net(k_actor, spaces, cfg), ppo.critic_net(k_critic, spaces, cfg), ppo.critic_net(k_cost, spaces, cfg)
    )
    return State(
        trainable(nets, ppo.optimiser(cfg)),
        *ppo.statistics(spaces, cfg),
        normalise.new_scale(cfg.num_envs) if cfg.normalise_cost else None,
        dual.init(cfg),
    )


def update_under(
    cost: Float[Array, "T N"], state: Any, data: Data, cfg: Costs, key: PRNGKey, dual: Dual = ADAM
) -> tuple[Any, Metrics]:
    """One update on a rollout with the given costs per step. Fields of `state` that State lacks are kept."""
    rollout = ppo.preprocess(state, data)
    batch, scales = prepare(cost, state, rollout, cfg)
    nu = dual.value(state.multiplier)

    def step(nets: Trainable, mini: Batch, key: PRNGKey) -> tuple[Trainable, Metrics]:
        # θ: minimise L(θ)
        nets, _, metrics = gradient_step(
            nets, lambda p: loss(p, state.head, mini, nu, cfg, key), cfg.learning_rate, ppo.optimiser(cfg)
        )
        return nets, metrics

    nets, metrics = ppo.sweep(state.nets, batch, step, key, cfg)

    # ν: maximise ν (c̄ − budget)
    multiplier = dual.step(state.multiplier, cost.mean() - cfg.budget, cfg)
    metrics |= {"cost/mean": cost.mean(), "dual/lambda": dual.value(multiplier)}
    obs_stats = ppo.update_obs_stats(state.obs_stats, rollout.step)
    return state._replace(nets=nets, multiplier=multiplier, obs_stats=obs_stats, **scales), metrics


def prepare(cost: Float[Array, "T N"], state: Any, rollout: ppo.Rollout, cfg: Costs) -> tuple[Batch, dict[str, Any]]:
    """PPO's batch with cost advantages and cost value targets, and the new scales of rewards and costs."""
    batch, reward_scale = ppo.prepare(state, rollout, cfg)
    ended = rollout.step.terminated | rollout.step.truncated
    cost_scale, scaled = normalise.scale_signal(state.cost_scale, cost, ended, cfg.cost_discount)
    critic = state.nets.params.cost_critic
    costs = ppo.advantages(critic, rollout, scaled, cfg.cost_discount, cfg.cost_gae_lambda)
    return Batch(*batch, *ppo.flat(costs)), {"reward_scale": reward_scale, "cost_scale": cost_scale}


def loss(
    nets: Nets, head: Head, mini: Batch, nu: Float[Array, ""], cfg: Costs, key: PRNGKey
) -> tuple[Float[Array, ""], Metrics]:
    """L(θ) of a minibatch."""
    objective, log_ratio, metrics = ppo.surrogate_objective(nets, head, mini, cfg, key)
    harm = policy_gradient.unclipped(log_ratio, policy_gradient.centred(mini.cost_advantage)).mean()
    value_loss = ppo.squared_error(nets.critic, mini.obs, mini.target)
    cost_value_loss = ppo.squared_error(nets.cost_critic, mini.obs, mini.cost_target)
    value = (
        (-objective + nu * harm) / (1.0 + nu)
        - cfg.entropy_weight * metrics["policy/entropy"]
        + cfg.value_weight * (value_loss + cost_value_loss)
    )
    return value, metrics | {"policy/harm": harm, "critic/loss": value_loss, "cost_critic/loss": cost_value_loss}


CURVES = (Curve("dual/lambda", "Multiplier ν", "ν"), Curve("cost/mean", "Cost per step"), *ppo.CURVES)


def under(cost: CostFunction, name: str = "ppo-lagrangian", title: str = "PPO-Lagrangian") -> Algorithm:
    """PPO-Lagrangian under a known cost function of observations and actions."""

    def update(state: State, data: Data, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
        assert data.rollout is not None
        return update_under(cost(data.rollout.obs, data.rollout.action), state, data, cfg, key)

    return Algorithm(
        name=name,
        title=title,
        summary="PPO under a known cost function",
        config=Config,
        init=init,
        update=update,
        policy=ppo.policy,
        wants=frozenset({"rollout"}),
        curves=CURVES,
        learned_cost=lambda state, obs, action: cost(obs, action),
    )


def oracle_update(state: State, data: Data, cfg: Any, key: PRNGKey, dual: Dual = ADAM) -> tuple[State, Metrics]:
    assert data.true_cost is not None
    return update_under(data.true_cost.batch, state, data, cfg, key, dual)


ORACLE = Algorithm(
    name="oracle-ppo-lagrangian",
    title="PPO-Lagrangian (oracle)",
    summary="PPO that learns from the true cost: a reference",
    config=Config,
    init=init,
    update=oracle_update,
    policy=ppo.policy,
    wants=frozenset({"rollout", "true_cost"}),
    curves=CURVES,
)
