"""Inverse constrained reinforcement learning (Malik et al. 2021), as in the paper: the cost is learned.

    forward    PPO-Lagrangian under c(s,a) = 1 − ζ(s,a), ζ a network in (0, 1), for `forward_steps`
    sample     `rollouts` episodes of the policy and `rollouts` demonstrated episodes
    backward   at most `backward_iters` Adam steps on  −E_E log(ζ+e) + E_N w log(ζ+e) + ρ (E_E (1−ζ) + E_N (1−ζ)),
               w the importance weight of a policy episode; the phase ends when a KL exceeds its bound

Each outer iteration keeps the networks, multipliers and statistics, and resets the environments. The published code
differs from the paper in places; docs/algorithms/icrl.md lists the choices of this implementation.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from scopil.algos import ppo, ppo_lagrangian
from scopil.algos.base import Algorithm, Curve, Data, Metrics, PaddedEpisodes, Spaces
from scopil.config import config, setting
from scopil.losses import constraint_net
from scopil.nn import normalise
from scopil.nn.gradient import Trainable, gradient_step, trainable
from scopil.nn.heads import Head
from scopil.types import PRNGKey


@config
class Phases(ppo_lagrangian.Config):
    """The settings of the outer iterations, shared with VICRL."""

    forward_steps: int = setting(
        default=200_000, about="Environment steps of a forward phase, rounded up to whole updates: 204 800.", low=1
    )
    rollouts: int = setting(
        default=100, about="Demonstrated episodes, and episodes of the policy, for each backward phase.", low=1
    )
    constraint_hidden: tuple[int, ...] = setting(
        default=(40, 40), about="Widths of the constraint network's hidden layers (ReLU).", low=1
    )
    constraint_lr: float = setting(default=0.01, about="Rate of the constraint network (Adam).", low=0)
    constraint_lr_decay: float = setting(
        default=1.0, about="The rate is multiplied by this after each outer iteration.", low=0, high=1
    )
    backward_iters: int = setting(default=20, about="Steps of a backward phase, at most.", low=1)
    regulariser: float = setting(default=0.5, about="ρ: weight of the penalty on costs.", low=0)


@config
class Config(Phases):
    max_forward_kl: float = setting(
        default=10.0, about="Bound on KL(old ‖ new) of trajectories; inf switches it off.", low=0
    )
    max_reverse_kl: float = setting(
        default=2.5, about="Bound on KL(new ‖ old) of trajectories; inf switches it off.", low=0
    )


# (state, demonstrated episodes, the policy's episodes, config, outer iteration) → state, metrics
Backward = Callable[..., tuple["State", Metrics]]


class State(NamedTuple):
    nets: Trainable  # ppo_lagrangian.Nets
    obs_stats: normalise.RunningStats | None
    head: Head
    reward_scale: normalise.ReturnScale | None
    cost_scale: normalise.ReturnScale | None
    multiplier: Trainable
    constraint: Trainable  # the logit of ζ; VICRL: two numbers of its distribution
    forward_steps: Int[Array, ""]  # environment steps in all forward phases
    last: Metrics  # metrics of the newest backward phase, and counts over all phases; zeros before the first


LAST = ("loss", "steps", "forward_kl", "reverse_kl", "expert_cost", "nominal_cost")
COUNTS = ("episode_steps", "phases", "all_steps")


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    return initial(key, spaces, cfg, 1, LAST)


def initial(key: PRNGKey, spaces: Spaces, cfg: Phases, outputs: int, measured: tuple[str, ...]) -> State:
    """The state before the first update, with a constraint network of `outputs` outputs."""
    k_agent, k_constraint = jax.random.split(key)
    net = constraint_net.constraint_net(
        spaces.obs_dim, spaces.head.num_actions, cfg.constraint_hidden, k_constraint, spaces.image, outputs
    )
    last = {f"constraint/{name}": jnp.float32(0) for name in (*measured, *COUNTS)}
    return State(*ppo_lagrangian.init(k_agent, spaces, cfg), trainable(net, optimiser(cfg)), jnp.int32(0), last)


def optimiser(cfg: Phases) -> optax.GradientTransformation:
    """The optimiser of the constraint network: PPO's optimiser without gradient clipping."""
    return optax.scale_by_adam(eps=cfg.adam_eps)


def cost(state: State, obs: Float[Array, "*B D"], action: Array) -> Float[Array, "*B"]:
    """c(s, a) = 1 − ζ(s, a): the learned cost, in (0, 1)."""
    return constraint_net.cost(constraint_net.logit(state.constraint.params, obs, state.head.to_learner(action)))


def update(state: State, data: Data, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
    k_forward, k_outer = jax.random.split(key)
    step = data.rollout
    assert step is not None
    return iterate(cost(state, step.obs, step.action), backward, state, data, cfg, (k_forward, k_outer))


def iterate(
    costs: Float[Array, "T N"], learn: Backward, state: State, data: Data, cfg: Any, keys: tuple[PRNGKey, PRNGKey]
) -> tuple[State, Metrics]:
    """An update of the forward phase under the given costs per step. At the end of the phase, `learn` is the backward
    phase."""
    state, metrics = ppo_lagrangian.update_under(costs, state, data, cfg, keys[0])
    done = state.forward_steps + costs.size
    due = done // phase_steps(cfg) > state.forward_steps // phase_steps(cfg)
    state = state._replace(forward_steps=done)
    state = jax.lax.cond(due, lambda s: outer(s, learn, data, cfg, keys[1]), lambda s: s, state)
    return state, metrics | state.last


def phase_steps(cfg: Phases) -> int:
    """Environment steps of a forward phase, rounded up to whole updates."""
    block = cfg.num_envs * cfg.rollout_steps
    return -(-cfg.forward_steps // block) * block


def outer(state: State, learn: Backward, data: Data, cfg: Phases, key: PRNGKey) -> State:
    """Ends a forward phase: samples episodes of the policy and learns the constraint."""
    assert data.play is not None
    assert data.demo_episodes is not None
    k_draw, k_play = jax.random.split(key)
    own = data.play(ppo.policy(state), k_play, cfg.rollouts)
    phase = state.forward_steps // phase_steps(cfg)
    experts = draw(k_draw, data.demo_episodes, cfg.rollouts)
    before = state.last["constraint/all_steps"]
    state, last = learn(state, experts, own, cfg, phase - 1)
    last |= {
        "constraint/episode_steps": own.mask.sum().astype(jnp.float32),
        "constraint/phases": phase.astype(jnp.float32),
        "constraint/all_steps": before + last["constraint/steps"],
    }
    return state._replace(
        reward_scale=normalise.restart_scale(state.reward_scale),
        cost_scale=normalise.restart_scale(state.cost_scale),
        last=last,
    )


def draw(key: PRNGKey, episodes: PaddedEpisodes, count: int) -> PaddedEpisodes:
    """Sample `count` demonstrated episodes, with replacement only if fewer episodes exist."""
    there = episodes.mask.shape[0]
    index = jax.random.choice(key, there, (count,), replace=there < count)
    return PaddedEpisodes(*(leaf[index] for leaf in episodes))


def rate(cfg: Phases, outer: Array) -> Float[Array, ""]:
    """The rate of the constraint network in outer iteration `outer`."""
    return cfg.constraint_lr * cfg.constraint_lr_decay ** outer.astype(jnp.float32)


def backward(
    state: State, expert: PaddedEpisodes, nominal: PaddedEpisodes, cfg: Config, outer: Array
) -> tuple[State, Metrics]:
    """One backward phase. The bounds are tested before each step. The first step is therefore always made, and a
    step that exceeds the bounds is kept."""

    def z(net, episodes: PaddedEpisodes) -> Float[Array, "M T"]:
        return constraint_net.logit(net, episodes.obs, state.head.to_learner(episodes.action))

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
        constraint, value, _ = gradient_step(constraint, loss, rate(cfg, outer), optimiser(cfg))
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


def _mean_cost(state: State, episodes: PaddedEpisodes) -> Float[Array, ""]:
    return constraint_net.masked_mean(cost(state, episodes.obs, episodes.action), episodes.mask)


ALGORITHM = Algorithm(
    name="icrl",
    title="ICRL",
    summary="learns a cost from demonstrations, then avoids it (PPO-Lagrangian)",
    config=Config,
    init=init,
    update=update,
    policy=ppo.policy,
    wants=frozenset({"rollout", "demo_episodes", "play"}),
    budget=40 * 204_800,
    restart_every=phase_steps,
    curves=(
        Curve("constraint/expert_cost", "Learned cost of demonstrated episodes"),
        Curve("constraint/nominal_cost", "Learned cost of the policy's episodes"),
        Curve("constraint/steps", "Steps of the newest backward phase"),
        *ppo_lagrangian.CURVES,
    ),
    learned_cost=cost,
)
