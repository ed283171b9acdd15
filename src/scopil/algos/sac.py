"""Soft actor-critic for discrete actions: no demonstrations, no multiplier. One gradient step:

V(s')   = Σ_a π(a|s') [ min_x Q_ψx(s',a) − α log π(a|s') ]
y       = r + γ (1 − terminated) V(s')
J_Q(φx) = E_B ½ (Q_φx(s,a) − y)²                          minimised in φ1, φ2
J_π(θ)  = E_B [ α H(π(·|s)) + Σ_a π(a|s) min_x Q_φx(s,a) ]  maximised in θ
α:        minimise α ( E_B H(π(·|s)) − H̄ ),  H̄ = 0.4 log|A|
ψx      ← ε φx + (1 − ε) ψx
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.algos.base import Algorithm, Metrics, Spaces
from scopil.config import pytree
from scopil.core import soft
from scopil.core.distributions import Categorical, pick
from scopil.core.learner import Learned, descend, learned
from scopil.core.nets import MLP, columns, polyak
from scopil.types import PRNGKey, Transition


@pytree(static=("hidden", "batch_size", "replay_size", "num_envs", "grad_steps"))
@dataclass(frozen=True, kw_only=True)
class Config:
    """The paper's defaults; what the paper leaves open is marked ours."""

    discount: float = 0.99
    """γ per environment step, in [0, 1)."""
    learning_rate: float = 3e-4
    """η of policy and critics (Adam)."""
    alpha_lr: float = 2e-3
    """κ, rate of log α (Adam)."""
    polyak: float = 5e-3
    """ε, share of the critics that enters their targets each gradient step."""
    target_entropy: float = 0.4
    """H̄ as a share of log|A|, the entropy of the uniform policy."""
    log_alpha_init: float = 0.0
    """log α₀ (ours)."""
    hidden: tuple[int, ...] = (32, 32)
    """Widths of the hidden layers of every network."""
    batch_size: int = 256
    """Transitions from the replay per gradient step."""
    replay_size: int = 1_000_000
    """Transitions kept."""
    num_envs: int = 1
    """Environments stepped together (ours)."""
    grad_steps: int = 1
    """Gradient steps per step of all environments (ours)."""


class State(NamedTuple):
    actor: Learned  # θ
    critics: Learned  # (φ1, φ2)
    targets: tuple[MLP, MLP]  # (ψ1, ψ2)
    log_alpha: Learned


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    k_actor, k_1, k_2 = jax.random.split(key, 3)
    sizes = (spaces.obs_dim, *cfg.hidden, spaces.num_actions)
    critics = (MLP(sizes, k_1), MLP(sizes, k_2))
    return State(
        learned(MLP(sizes, k_actor)),
        learned(critics),
        critics,
        learned(jnp.asarray(cfg.log_alpha_init, jnp.float32)),
    )


def policy(state: Any, obs: Float[Array, "*B D"]) -> Categorical:
    return Categorical(state.actor.params(obs))


def pi(actor: MLP, s: Float[Array, "D B"]) -> Categorical:
    """π(·|s) of states that are columns."""
    return Categorical(actor.columns(s), axis=0)


def update(state: State, batch: Transition, cfg: Config) -> tuple[State, Metrics]:
    alpha = jnp.exp(state.log_alpha.params)
    s = columns(batch.obs)
    critics, m_q = critic_step(state, s, batch, alpha, cfg)
    q = least(critics.params, s)

    # θ: maximise J_π(θ)
    def loss(actor):
        j_pi = soft.policy_objective(pi(actor, s), q, alpha).mean()
        return -j_pi, j_pi

    actor, _, j_pi = descend(state.actor, loss, cfg.learning_rate)
    log_alpha, m_alpha = temperature_step(state.log_alpha, pi(actor.params, s), cfg)
    metrics = m_q | m_alpha | {"actor/objective": j_pi}
    return State(actor, critics, track(state.targets, critics.params, cfg), log_alpha), metrics


# --- parts shared with SCOPIL ------------------------------------------------------------------------------------


def least(critics: tuple[MLP, MLP], s: Float[Array, "D B"]) -> Float[Array, "A B"]:
    """min_x Q_x(s, ·)"""
    return jnp.minimum(critics[0].columns(s), critics[1].columns(s))


def critic_step(
    state: Any, s: Float[Array, "D B"], batch: Transition, alpha: Float[Array, ""], cfg: Config
) -> tuple[Learned, Metrics]:
    """φx: minimise J_Q(φx) against the targets' soft value of the successor."""
    s_next = columns(batch.next_obs)
    v_next = soft.soft_value(pi(state.actor.params, s_next), least(state.targets, s_next), alpha)
    y = soft.td_target(batch.reward, batch.terminated, v_next, cfg.discount)

    def loss(critics):
        q1, q2 = critics[0].columns(s), critics[1].columns(s)
        j_q = soft.td_loss(q1, batch.action, y) + soft.td_loss(q2, batch.action, y)
        return j_q.mean(), pick(q1, batch.action, axis=0).mean()

    critics, j_q, q_mean = descend(state.critics, loss, cfg.learning_rate)
    return critics, {"critic/loss": j_q, "critic/q": q_mean}


def temperature_step(log_alpha: Learned, pi: Categorical, cfg: Config) -> tuple[Learned, Metrics]:
    """α: minimise α (E H(π) − H̄); entropy below its target makes α rise."""
    target = cfg.target_entropy * jnp.log(pi.num_actions)
    return towards(target, log_alpha, pi.entropy().mean(), cfg)


def towards(
    target: Float[Array, ""], log_alpha: Learned, entropy: Float[Array, ""], cfg: Config
) -> tuple[Learned, Metrics]:
    gap = entropy - target
    log_alpha, _, _ = descend(log_alpha, lambda value: (jnp.exp(value) * gap, None), cfg.alpha_lr)
    return log_alpha, {"alpha/value": jnp.exp(log_alpha.params), "alpha/entropy": entropy}


def track(targets: tuple[MLP, MLP], critics: tuple[MLP, MLP], cfg: Config) -> tuple[MLP, MLP]:
    """ψx ← ε φx + (1 − ε) ψx"""
    return polyak(targets[0], critics[0], cfg.polyak), polyak(targets[1], critics[1], cfg.polyak)


ALGORITHM = Algorithm(
    name="sac",
    title="SAC",
    config=Config,
    init=init,
    policy=policy,
    update=lambda state, batch, demo, cfg: update(state, batch, cfg),
    needs_demos=False,
)
