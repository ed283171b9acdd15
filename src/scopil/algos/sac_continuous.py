"""Soft actor-critic for continuous actions (Haarnoja et al. 2018). One gradient step, â(s) = tanh(μ + σξ), ξ normal:

y       = r + γ (1 − terminated) [ min_x Q_ψx(s',â') − α log π(â'|s') ],   â' = â(s')
J_Q(φx) = E_B ½ (Q_φx(s,a) − y)²                             minimised in φ1, φ2
J_π(θ)  = E_B [ min_x Q_φx(s,â(s)) − α log π(â(s)|s) ]         maximised in θ
α:        minimise α ( E_B[−log π(â(s)|s)] − H̄ ),  H̄ = −|A|
ψx      ← ε φx + (1 − ε) ψx

Networks see normalised observations and actions in [−1, 1]^A; log π is the density there.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.algos import sac
from scopil.algos.base import Metrics, Pairs, Spaces
from scopil.algos.continuous import ContinuousAlgorithm, squashed_actor
from scopil.config import pytree
from scopil.core import soft
from scopil.core.frame import Frame, frame
from scopil.core.learner import Learned, descend, learned
from scopil.core.nets import MLP
from scopil.core.squashed import Acting, SquashedGaussian
from scopil.types import PRNGKey, Transition

STATIC = ("hidden", "batch_size", "replay_size", "num_envs", "grad_steps", "normalise_obs")


@pytree(static=STATIC)
@dataclass(frozen=True, kw_only=True)
class Config(sac.Config):
    """SAC's settings, where they differ for continuous actions."""

    target_entropy: float = -1.0
    """H̄ per action dimension, in nats of the density on [−1, 1] (Haarnoja et al. 2018)."""
    alpha_lr: float = 3e-4
    """κ, rate of log α (Adam)."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of every network."""
    normalise_obs: bool = True
    """Whether networks see observations with zero mean and unit variance (clipped at ±10)."""

    ranges: ClassVar[dict[str, tuple[float, float]]] = {"target_entropy": (-20.0, 0.7)}  # log 2 is uniform


class State(NamedTuple):
    actor: Learned  # θ
    critics: Learned  # (φ1, φ2)
    targets: tuple[MLP, MLP]  # (ψ1, ψ2)
    log_alpha: Learned
    frame: Frame


class Noise(NamedTuple):
    """The ξ of one update."""

    after: Float[Array, "B A"]  # of â(s')
    now: Float[Array, "B A"]  # of â(s)
    demo: Float[Array, "M A"]  # of actions in demonstrated states


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    k_actor, k_1, k_2 = jax.random.split(key, 3)
    sizes = (spaces.obs_dim + len(spaces.bounds.low), *cfg.hidden, 1)
    critics = (MLP(sizes, k_1), MLP(sizes, k_2))
    return State(
        learned(squashed_actor(k_actor, spaces, cfg.hidden)),
        learned(critics),
        critics,
        learned(jnp.asarray(cfg.log_alpha_init, jnp.float32)),
        frame(spaces.obs_dim, *spaces.bounds, cfg.normalise_obs),
    )


def policy(state: Any, obs: Float[Array, "*B D"]) -> Acting:
    return Acting(SquashedGaussian(state.actor.params(state.frame.see(obs))), state.frame)


def update(state: State, batch: Transition, cfg: Config, noise: Noise) -> tuple[State, Metrics]:
    world = state.frame.watch(batch.obs)
    batch = world.through(batch)
    alpha = jnp.exp(state.log_alpha.params)

    # φx: minimise J_Q(φx)
    critics, m_q = critic_step(state, batch, alpha, cfg, noise)

    # θ: maximise J_π(θ)
    def loss(actor):
        j_pi = policy_objective(actor, critics.params, batch.obs, alpha, noise).mean()
        return -j_pi, j_pi

    actor, _, j_pi = descend(state.actor, loss, cfg.learning_rate)
    log_alpha, m_alpha = temperature_step(state.log_alpha, actor.params, batch.obs, cfg, noise)
    metrics = m_q | m_alpha | {"actor/objective": j_pi}
    return State(actor, critics, sac.track(state.targets, critics.params, cfg), log_alpha, world), metrics


# --- parts shared with SCOPIL ------------------------------------------------------------------------------------


def draw(key: PRNGKey, batch: Transition, demo: Pairs | None) -> Noise:
    """All ξ of an update in one draw."""
    rows, pairs = batch.action.shape[0], 0 if demo is None else demo.action.shape[0]
    xi = jax.random.normal(key, (2 * rows + pairs, batch.action.shape[1]))
    return Noise(xi[:rows], xi[rows : 2 * rows], xi[2 * rows :])


def value_of(critic: MLP, obs: Float[Array, "B D"], action: Float[Array, "B A"]) -> Float[Array, " B"]:
    """Q(s, a). Samples as columns: saves a twentieth of an update."""
    return critic.columns(jnp.concatenate([obs.T, action.T]))[0]


def least(
    critics: tuple[MLP, MLP], obs: Float[Array, "B D"], action: Float[Array, "B A"]
) -> Float[Array, " B"]:
    """min_x Q_x(s, a)"""
    return jnp.minimum(value_of(critics[0], obs, action), value_of(critics[1], obs, action))


def critic_step(
    state: Any, batch: Transition, alpha: Float[Array, ""], cfg: Config, noise: Noise
) -> tuple[Learned, Metrics]:
    """φx: minimise J_Q(φx) against the targets' soft value of the successor."""
    action, log_pi = SquashedGaussian(state.actor.params(batch.next_obs)).at(noise.after)
    v_next = least(state.targets, batch.next_obs, action) - alpha * log_pi
    y = soft.td_target(batch.reward, batch.terminated, v_next, cfg.discount)

    def loss(critics):
        q1, q2 = (value_of(critic, batch.obs, batch.action) for critic in critics)
        return (0.5 * (q1 - y) ** 2 + 0.5 * (q2 - y) ** 2).mean(), q1.mean()

    critics, j_q, q_mean = descend(state.critics, loss, cfg.learning_rate)
    return critics, {"critic/loss": j_q, "critic/q": q_mean}


def policy_objective(
    actor: MLP, critics: tuple[MLP, MLP], obs: Float[Array, "B D"], alpha: Float[Array, ""], noise: Noise
) -> Float[Array, " B"]:
    """min_x Q_φx(s, â(s)) − α log π(â(s)|s), to be maximised."""
    action, log_pi = SquashedGaussian(actor(obs)).at(noise.now)
    return least(critics, obs, action) - alpha * log_pi


def temperature_step(
    log_alpha: Learned, actor: MLP, obs: Float[Array, "B D"], cfg: Config, noise: Noise
) -> tuple[Learned, Metrics]:
    """α: minimise α (E[−log π] − H̄)"""
    _, log_pi = SquashedGaussian(actor(obs)).at(noise.now)
    target = jnp.asarray(cfg.target_entropy * noise.now.shape[-1])
    return sac.towards(target, log_alpha, -log_pi.mean(), cfg)


ALGORITHM = ContinuousAlgorithm(
    name="sac",
    title="SAC",
    config=Config,
    init=init,
    policy=policy,
    update=lambda state, batch, demo, cfg, key: update(state, batch, cfg, draw(key, batch, None)),
    needs_demos=False,
)
