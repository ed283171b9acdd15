"""Inverse constrained reinforcement learning (Malik et al. 2021), "as described": learn the cost from demonstrations.

    forward    PPO-Lagrangian under c(s,a) = 1 − ζ(s,a), ζ a network in (0, 1), for `forward_steps`
    sample     as many games of the policy as expert games are drawn
    backward   at most `backward_iters` Adam steps on  −E_E log(ζ+e) + E_N w log(ζ+e) + ρ (E_E (1−ζ) + E_N (1−ζ)),
               w each own game's importance weight; no further step once its KLs exceed their bounds

Everything is kept from one outer iteration to the next. Departures from the published code, which does not do what it
describes in places: docs/algorithms/icrl.md.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from scopil.algos import ppo, ppo_lagrangian
from scopil.algos.base import Metrics, Spaces
from scopil.algos.onpolicy import InverseAlgorithm, Rollout, Trajectories
from scopil.config import pytree
from scopil.core import constraint_net, normalise
from scopil.core.learner import Learned, descend, learned
from scopil.types import PRNGKey

ADAM = optax.scale_by_adam(eps=1e-5)


@pytree(static=(*ppo_lagrangian.STATIC, "forward_steps", "rollouts", "constraint_hidden"))
@dataclass(frozen=True, kw_only=True)
class Config(ppo_lagrangian.Config):
    forward_steps: int = 200_000
    """Environment steps of a forward phase, rounded up to whole updates: 204 800."""
    rollouts: int = 100
    """Games drawn from the demonstrations, and played by the policy, for each backward phase."""
    constraint_hidden: tuple[int, ...] = (40, 40)
    """Widths of the constraint network's hidden layers (ReLU)."""
    constraint_lr: float = 0.01
    """Rate of the constraint network (Adam, ε = 1e-5)."""
    constraint_lr_decay: float = 1.0
    """The rate is multiplied by this after each outer iteration."""
    backward_iters: int = 20
    """Steps of a backward phase, at most."""
    regulariser: float = 0.5
    """ρ: how strongly costs are drawn towards 0."""
    max_forward_kl: float = 10.0
    """Bound on KL(old ‖ new) of trajectories; inf switches it off."""
    max_reverse_kl: float = 2.5
    """Bound on KL(new ‖ old) of trajectories; inf switches it off."""


class State(NamedTuple):
    nets: Learned  # ppo_lagrangian.Nets
    obs_stats: normalise.Running | None
    reward_scale: normalise.ReturnScale | None
    cost_scale: normalise.ReturnScale | None
    penalty: Learned
    constraint: Learned  # the logit of ζ


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    k_agent, k_constraint = jax.random.split(key)
    net = constraint_net.constraint_net(
        spaces.obs_dim, spaces.num_actions, cfg.constraint_hidden, k_constraint
    )
    return State(*ppo_lagrangian.init(k_agent, spaces, cfg), learned(net, ADAM))


def cost(state: State, obs: Float[Array, "*B D"], action: Array) -> Float[Array, "*B"]:
    """c(s, a) = 1 − ζ(s, a): what the learner believes about the law, in (0, 1)."""
    return constraint_net.cost(constraint_net.logit(state.constraint.params, obs, action))


def update(state: State, rollout: Rollout, demos: None, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
    costs = cost(state, rollout.step.obs, rollout.step.action)
    return ppo_lagrangian.update_under(costs, state, rollout, cfg, key)


def backward(
    state: State, expert: Trajectories, nominal: Trajectories, cfg: Config, outer: Array
) -> tuple[State, Metrics]:
    """One backward phase. The bounds are tested before each step, so the first is always made and the one that
    oversteps them stands."""
    rate = cfg.constraint_lr * cfg.constraint_lr_decay ** outer.astype(jnp.float32)

    def z(net, games: Trajectories) -> Float[Array, "M T"]:
        return constraint_net.logit(net, games.obs, games.action)

    z_old = z(state.constraint.params, nominal)

    def log_ratios(net) -> Float[Array, " M"]:
        return constraint_net.log_ratios(z(net, nominal), z_old, nominal.mask)

    def loss(net):
        weights = constraint_net.importance_weights(log_ratios(net))
        value = constraint_net.loss(
            z(net, expert), expert.mask, z(net, nominal), nominal.mask, weights, cfg.regulariser
        )
        return value, None

    def wanted(carry):
        _, taken, log_ratio, _ = carry
        near = constraint_net.forward_kl(log_ratio) <= cfg.max_forward_kl
        near &= constraint_net.reverse_kl(log_ratio) <= cfg.max_reverse_kl
        return (taken < cfg.backward_iters) & near

    def body(carry):
        constraint, taken, _, _ = carry
        constraint, value, _ = descend(constraint, loss, rate, ADAM)
        return constraint, taken + 1, log_ratios(constraint.params), value

    start = (state.constraint, jnp.int32(0), jnp.zeros_like(z_old[:, 0]), jnp.float32(0.0))
    constraint, taken, log_ratio, value = jax.lax.while_loop(wanted, body, start)
    state = state._replace(constraint=constraint)
    return state, {
        "constraint/loss": value,
        "constraint/steps": taken.astype(jnp.float32),
        "constraint/forward_kl": constraint_net.forward_kl(log_ratio),
        "constraint/reverse_kl": constraint_net.reverse_kl(log_ratio),
        "constraint/expert_cost": _mean_cost(state, expert),
        "constraint/nominal_cost": _mean_cost(state, nominal),
    }


def _mean_cost(state: State, games: Trajectories) -> Float[Array, ""]:
    return constraint_net.masked_mean(cost(state, games.obs, games.action), games.mask)


ALGORITHM = InverseAlgorithm(
    name="icrl",
    title="ICRL",
    config=Config,
    init=init,
    policy=ppo.policy,
    update=update,
    needs_demos=True,
    numpy_logits=ppo.numpy_logits,
    backward=backward,
    budget=40 * 204_800,
)
