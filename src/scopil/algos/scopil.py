"""SCOPIL (Papadopoulos & Vouros 2025, Algorithm 1): SAC under an imitation constraint.

    G(θ)    = E_D [ −log π(a|s) − 2βα H(π(·|s)) ] − δ             the constraint; feasible when ≤ 0
    L(θ,λ)  = −E_B [ 2(1−β)α H(π(·|s)) + E_{a~π} min_x Q_φx(s,a) ] + λ G(θ)
    θ:        minimise L(θ, λ)
    λ:        maximise λ G(θ) with the updated policy, then project to λ ≥ 0

Critics, temperature and targets are SAC's. β = ½ gives the paper's lines. For continuous actions π(a|s) in G is the
probability of the interval a ± ε, and H the entropy in cells of that size (docs/algorithms/continuous.md). The
ablations plug in other parts: a constraint without entropy, a multiplier that stays where it is.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.algos import sac
from scopil.algos.base import Algorithm, Data, Metrics, Spaces
from scopil.config import config, setting
from scopil.core import duals, imitation
from scopil.core.gradient import Trainable, gradient_step
from scopil.core.heads import Head
from scopil.core.nets import MLP
from scopil.core.normalise import RunningStats
from scopil.types import PRNGKey


def resolution_setting() -> Any:
    return setting(
        default=0.05,
        about="ε: half the width of the interval that counts as the same continuous action, where the box is [−1, 1].",
        low=1e-3,  # finer is lost in float32
        high=0.5,  # coarser is no imitation
    )


def slack_setting() -> Any:
    return setting(
        default=None,
        about="δ in nats, of the whole action. None: 0 for discrete actions, which asks for the demonstrator exactly "
        "(ours: the paper gives no value); 1.5 for each component of a continuous one, at the resolution.",
    )


@config
class Config(sac.Config):
    # With α₀ = 1 the entropy in a continuous constraint outweighs all imitation at first, and λ falls to 0.
    log_alpha_init: float = setting(default=0.0, about="log α₀ (ours).", continuous=-2.3)
    demo_batch_size: int = setting(default=256, about="Demonstrated steps per gradient step.", low=1)
    multiplier_init: float = setting(default=1.05, about="λ₀.", low=0)
    multiplier_lr: float = setting(default=3e-4, about="η of the multiplier, plain ascent.", low=0)
    slack: float | None = slack_setting()
    entropy_split: float = setting(
        default=0.5, about="β: the constraint's share of the entropy bonus.", low=0, high=1
    )
    action_resolution: float = resolution_setting()


class State(NamedTuple):
    actor: Trainable  # θ
    critics: Trainable  # (φ1, φ2)
    targets: tuple[MLP, MLP]  # (ψ1, ψ2)
    log_alpha: Trainable
    obs_stats: RunningStats | None
    head: Head
    multiplier: Float[Array, ""]  # λ


class Parts(NamedTuple):
    """What the ablations exchange."""

    constraint: Callable[..., Float[Array, " B"]] = imitation.entropic_constraint
    dual: Callable[..., Float[Array, ""]] = duals.ascend


WHOLE = Parts()


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    return State(*sac.init(key, spaces, cfg), jnp.asarray(cfg.multiplier_init, jnp.float32))


def update(
    state: State, data: Data, cfg: Config, key: PRNGKey, parts: Parts = WHOLE
) -> tuple[State, Metrics]:
    seen = sac.see(state, data, key)
    alpha, lam = jnp.exp(state.log_alpha.params), state.multiplier
    rl_share, demo_share = 2 * (1 - cfg.entropy_split), 2 * cfg.entropy_split
    demo_action: Any = seen.demo_action
    delta = slack(cfg, state.head)

    def imitator(actor: MLP) -> imitation.Distribution:
        return seen.op.imitator(actor, seen.s_demo, seen.noise.demo, cfg.action_resolution)

    def g(pi: imitation.Distribution, alpha: Float[Array, ""]) -> Float[Array, ""]:
        return parts.constraint(pi, demo_action, demo_share * alpha, delta).mean()

    # φx: minimise J_Q(φx)
    critics, m_q = sac.critic_step(state, seen, alpha, cfg)

    # θ: minimise −J_π(θ) + λ G(θ)
    def lagrangian(actor):
        j_pi = sac.policy_objective(actor, critics.params, seen, rl_share * alpha)
        return -j_pi + lam * g(imitator(actor), alpha), j_pi

    actor, _, j_pi = gradient_step(state.actor, lagrangian, cfg.learning_rate)

    # α: minimise α (E_B H(π) − H̄)
    log_alpha, m_alpha = sac.temperature_step(state, actor.params, seen, cfg)

    # λ ← [λ + η G(θ)]₊
    pi_demo = imitator(actor.params)
    violation = g(pi_demo, jnp.exp(log_alpha.params))
    lam = parts.dual(lam, violation, cfg.multiplier_lr)

    metrics = m_q | m_alpha | {
        "actor/objective": j_pi,
        "dual/lambda": lam,
        "dual/constraint": violation,
        "demo/nll": -pi_demo.log_prob(demo_action).mean(),
        "demo/entropy": pi_demo.entropy().mean(),
    }  # fmt: skip
    targets = sac.track(state.targets, critics, cfg)
    return State(actor, critics, targets, log_alpha, seen.obs_stats, state.head, lam), metrics


def slack(cfg: Any, head: Head) -> Any:
    """δ in nats, of the whole action."""
    if cfg.slack is not None:
        return cfg.slack
    return 1.5 * head.num_actions if head.continuous else 0.0


def variant(name: str, title: str, summary: str, parts: Parts) -> Algorithm:
    return Algorithm(
        name=name,
        title=title,
        summary=summary,
        config=Config,
        init=init,
        update=partial(update, parts=parts),
        policy=sac.policy,
        wants=frozenset({"replay", "demo_batch"}),
    )


ALGORITHM = variant("scopil", "SCOPIL", "SAC held to the demonstrations by a learned multiplier", WHOLE)
