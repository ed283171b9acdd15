"""PPO-Lagrangian: PPO with a critic of costs and a multiplier ν, under a given cost function c(s, a).

    L(θ)  = [ −E min(ρ A, clip(ρ, 1 ± ε) A) + ν E ρ A_c ] / (1 + ν) − c_H E H + c_V E (V − y)² + c_V E (V_c − y_c)²
    ν     = softplus(x);  x: one Adam step a rollout that maximises ν (c̄ − budget),  c̄ the rollout's mean raw cost

A is standardised within a minibatch, A_c only centred; the cost term is not clipped. As in ICRL's published code.
`under(cost)` makes the algorithm for a cost of your own. The oracle is told the environment's true cost: a yardstick
for what is attainable, not a competitor.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from scopil.algos import ppo
from scopil.algos.base import Metrics, Spaces
from scopil.algos.onpolicy import OnPolicyAlgorithm, Rollout
from scopil.config import pytree
from scopil.core import normalise, surrogate
from scopil.core.learner import Learned, descend, learned
from scopil.core.nets import MLP
from scopil.types import PRNGKey

CostFunction = Callable[
    [Float[Array, "*B D"], Int[Array, "*B"]], Float[Array, "*B"]
]  # (observation, action) → cost
STATIC = (*ppo.STATIC, "normalise_cost")


@pytree(static=STATIC)
@dataclass(frozen=True, kw_only=True)
class Config(ppo.Config):
    cost_discount: float = 0.99
    """γ of costs."""
    cost_gae_lambda: float = 0.95
    """λ of the costs' advantages."""
    penalty_init: float = 1.0
    """ν₀ > 0."""
    penalty_lr: float = 0.1
    """Rate of the multiplier before its softplus (Adam)."""
    budget: float = 0.0
    """Cost a step that is allowed."""
    normalise_cost: bool = True
    """Costs divided by the deviation of their running discounted sum."""


class Nets(NamedTuple):
    actor: MLP
    critic: MLP
    cost_critic: MLP


class State(NamedTuple):
    nets: Learned  # Nets
    obs_stats: normalise.Running | None
    reward_scale: normalise.ReturnScale | None
    cost_scale: normalise.ReturnScale | None
    penalty: Learned  # x, with ν = softplus(x)


class Batch(NamedTuple):
    seen: Float[Array, "B D"]
    action: Int[Array, " B"]
    log_prob: Float[Array, " B"]
    advantage: Float[Array, " B"]
    target: Float[Array, " B"]
    cost_advantage: Float[Array, " B"]
    cost_target: Float[Array, " B"]


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    k_actor, k_critic, k_cost = jax.random.split(key, 3)
    nets = Nets(
        ppo.actor_net(k_actor, spaces, cfg),
        ppo.critic_net(k_critic, spaces, cfg),
        ppo.critic_net(k_cost, spaces, cfg),
    )
    return State(
        learned(nets, ppo.rule(cfg)),
        *ppo.fresh_statistics(spaces, cfg),
        normalise.fresh_scale(cfg.num_envs) if cfg.normalise_cost else None,
        learned(jnp.log(jnp.expm1(jnp.asarray(cfg.penalty_init, jnp.float32)))),
    )


def update_under(
    cost: Float[Array, "T N"], state: Any, rollout: Rollout, cfg: Config, key: PRNGKey
) -> tuple[Any, Metrics]:
    """One update on a rollout whose steps cost so much. `state` may have more fields than State; they stay."""
    batch, scales = prepare(cost, state, rollout, cfg)
    nu = jax.nn.softplus(state.penalty.params)

    def step(nets: Learned, mini: Batch, key: PRNGKey) -> tuple[Learned, Metrics]:
        nets, _, metrics = descend(nets, lambda p: loss(p, mini, nu, cfg), cfg.learning_rate, ppo.rule(cfg))
        return nets, metrics

    nets, metrics = ppo.sweep(state.nets, batch, step, key, cfg)

    # ν: maximise ν (c̄ − budget)
    excess = cost.mean() - cfg.budget
    penalty, _, _ = descend(state.penalty, lambda x: (-jax.nn.softplus(x) * excess, None), cfg.penalty_lr)
    metrics |= {"cost/mean": cost.mean(), "dual/lambda": jax.nn.softplus(penalty.params)}
    return state._replace(nets=nets, penalty=penalty, **scales), metrics


def prepare(
    cost: Float[Array, "T N"], state: Any, rollout: Rollout, cfg: Config
) -> tuple[Batch, dict[str, Any]]:
    """What PPO wants of a rollout, and the same of its costs."""
    batch, reward_scale = ppo.prepare(state, rollout, cfg)
    ended = rollout.step.terminated | rollout.step.truncated
    cost_scale, scaled = normalise.scale_signal(state.cost_scale, cost, ended, cfg.cost_discount)
    critic = state.nets.params.cost_critic
    costs = ppo.advantages(critic, rollout, scaled, cfg.cost_discount, cfg.cost_gae_lambda)
    return Batch(*batch, *ppo.flat(costs)), {"reward_scale": reward_scale, "cost_scale": cost_scale}


def loss(nets: Nets, mini: Batch, nu: Float[Array, ""], cfg: Config) -> tuple[Float[Array, ""], Metrics]:
    """L(θ) of a minibatch."""
    objective, log_ratio, metrics = ppo.surrogate_objective(nets, mini, cfg)
    harm = surrogate.unclipped(log_ratio, surrogate.centred(mini.cost_advantage)).mean()
    value_loss = ppo.squared_error(nets.critic, mini.seen, mini.target)
    cost_value_loss = ppo.squared_error(nets.cost_critic, mini.seen, mini.cost_target)
    value = (
        (-objective + nu * harm) / (1.0 + nu)
        - cfg.entropy_weight * metrics["policy/entropy"]
        + cfg.value_weight * (value_loss + cost_value_loss)
    )
    return value, metrics | {
        "policy/harm": harm,
        "critic/loss": value_loss,
        "cost_critic/loss": cost_value_loss,
    }


def under(
    cost: CostFunction, name: str = "ppo-lagrangian", title: str = "PPO-Lagrangian"
) -> OnPolicyAlgorithm:
    """PPO-Lagrangian under a cost of observations and actions that you know."""

    def update(
        state: State, rollout: Rollout, demos: None, cfg: Config, key: PRNGKey
    ) -> tuple[State, Metrics]:
        return update_under(cost(rollout.step.obs, rollout.step.action), state, rollout, cfg, key)

    return _algorithm(name, title, update)


def _told(state: State, rollout: Rollout, demos: None, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
    assert rollout.told is not None
    return update_under(rollout.told, state, rollout, cfg, key)


def _algorithm(name: str, title: str, update: Callable, oracle: bool = False) -> OnPolicyAlgorithm:
    return OnPolicyAlgorithm(
        name=name,
        title=title,
        config=Config,
        init=init,
        policy=ppo.policy,
        update=update,
        needs_demos=False,
        numpy_logits=ppo.numpy_logits,
        oracle=oracle,
    )


ORACLE = _algorithm("oracle-ppo-lagrangian", "PPO-Lagrangian (oracle)", _told, oracle=True)
