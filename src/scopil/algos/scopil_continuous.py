"""SCOPIL for continuous actions: SAC under an imitation constraint at a resolution ε.

    P_ε(a|s) = π-probability of [a − ε, a + ε], to and beyond a bound that the interval reaches
    H_ε(s)   = E[−log π(â(s)|s)] − |A| log 2ε                       the policy's entropy in cells of that size
    G(θ)     = E_D [ −log P_ε(a|s) − 2βα H_ε(s) ] − |A| δ             the constraint; feasible when ≤ 0
    L(θ,λ)   = −E_B [ min_x Q_φx(s,â(s)) − 2(1−β)α log π(â(s)|s) ] + λ G(θ)
    θ:         minimise L(θ, λ)
    λ:         maximise λ G(θ) with the updated policy, then project to λ ≥ 0

Critics, temperature and targets are SAC's. A density says nothing of how well an action is imitated (it exceeds 1, and
is infinite for an action at its bound); the probability of an interval does: docs/algorithms/continuous.md.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.algos import sac, scopil
from scopil.algos import sac_continuous as soft
from scopil.algos.base import Metrics, Pairs, Spaces
from scopil.algos.continuous import RESOLUTION, ContinuousAlgorithm
from scopil.algos.scopil import WHOLE, Parts
from scopil.config import pytree
from scopil.core.frame import Frame
from scopil.core.learner import Learned, descend
from scopil.core.nets import MLP
from scopil.core.squashed import Resolved, SquashedGaussian
from scopil.types import PRNGKey, Transition


@pytree(static=(*soft.STATIC, "demo_batch_size"))
@dataclass(frozen=True, kw_only=True)
class Config(soft.Config, scopil.Config):
    log_alpha_init: float = -2.3
    """log α₀, α₀ = 0.1: with SAC's 1 the entropy in the constraint outweighs all imitation at first, and λ falls to 0
    before the policy has learned anything."""
    slack: float = 1.5
    """δ per action dimension, in nats at the resolution (docs/algorithms/continuous.md)."""
    action_resolution: float = 0.05
    """ε: half the width of the interval that counts as the same action, where the box is [−1, 1]."""

    ranges: ClassVar[dict[str, tuple[float, float]]] = soft.Config.ranges | RESOLUTION


class State(NamedTuple):
    actor: Learned  # θ
    critics: Learned  # (φ1, φ2)
    targets: tuple[MLP, MLP]  # (ψ1, ψ2)
    log_alpha: Learned
    frame: Frame
    multiplier: Float[Array, ""]  # λ


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    return State(*soft.init(key, spaces, cfg), jnp.asarray(cfg.lambda_init, jnp.float32))


def update(
    state: State, batch: Transition, demo: Pairs, cfg: Config, noise: soft.Noise, parts: Parts = WHOLE
) -> tuple[State, Metrics]:
    world = state.frame.watch(batch.obs, demo.obs)
    batch, demo = world.through(batch), Pairs(world.see(demo.obs), world.unit(demo.action))
    alpha, lam = jnp.exp(state.log_alpha.params), state.multiplier
    rl_share, demo_share = 2 * (1 - cfg.entropy_split), 2 * cfg.entropy_split
    slack = cfg.slack * demo.action.shape[-1]

    def imitator(actor: MLP) -> Resolved:
        return Resolved(SquashedGaussian(actor(demo.obs)), noise.demo, cfg.action_resolution)

    def g(pi: Resolved, alpha: Float[Array, ""]) -> Float[Array, ""]:
        return parts.constraint(pi, demo.action, demo_share * alpha, slack).mean()

    # φx: minimise J_Q(φx)
    critics, m_q = soft.critic_step(state, batch, alpha, cfg, noise)

    # θ: minimise −J_π(θ) + λ G(θ)
    def lagrangian(actor):
        j_pi = soft.policy_objective(actor, critics.params, batch.obs, rl_share * alpha, noise).mean()
        return -j_pi + lam * g(imitator(actor), alpha), j_pi

    actor, _, j_pi = descend(state.actor, lagrangian, cfg.learning_rate)

    # α: minimise α (E_B[−log π] − H̄)
    log_alpha, m_alpha = soft.temperature_step(state.log_alpha, actor.params, batch.obs, cfg, noise)

    # λ ← [λ + η G(θ)]₊
    pi_demo = imitator(actor.params)
    violation = g(pi_demo, jnp.exp(log_alpha.params))
    lam = parts.dual(lam, violation, cfg.lambda_lr)

    metrics = m_q | m_alpha | {
        "actor/objective": j_pi,
        "dual/lambda": lam,
        "dual/constraint": violation,
        "demo/nll": -pi_demo.log_prob(demo.action).mean(),
        "demo/entropy": pi_demo.entropy().mean(),
    }  # fmt: skip
    targets = sac.track(state.targets, critics.params, cfg)
    return State(actor, critics, targets, log_alpha, world, lam), metrics


def variant(name: str, title: str, parts: Parts) -> ContinuousAlgorithm:
    step = partial(update, parts=parts)
    return ContinuousAlgorithm(
        name=name,
        title=title,
        config=Config,
        init=init,
        policy=soft.policy,
        update=lambda state, batch, demo, cfg, key: step(
            state, batch, demo, cfg, soft.draw(key, batch, demo)
        ),
        needs_demos=True,
    )


ALGORITHM = variant("scopil", "SCOPIL", WHOLE)
