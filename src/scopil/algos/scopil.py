"""SCOPIL (Papadopoulos & Vouros 2025, Algorithm 1): SAC under an imitation constraint, with the paper's settings.

    G(θ)    = E_D [ −log π(a|s) − 2βα H(π(·|s)) ] − δ             the constraint; feasible if ≤ 0
    L(θ,λ)  = −E_B [ 2(1−β)α H(π(·|s)) + E_{a~π} min_x Q_φx(s,a) ] + λ G(θ)
    θ:        minimise L(θ, λ)
    λ:        maximise λ G(θ) at the updated θ, then project to λ ≥ 0

The critics, the temperature and the targets are those of SAC. The paper uses β = ½. For continuous actions, π(a|s) in G
is the probability of the interval a ± ε, and H is the entropy over cells of this size (docs/algorithms/continuous.md).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.algos import sac
from scopil.algos.base import Algorithm, Curve, Data, Metrics, Spaces
from scopil.config import config, setting
from scopil.losses import constraints
from scopil.nn.gradient import Trainable, gradient_step
from scopil.nn.heads import Head
from scopil.nn.nets import Net
from scopil.nn.normalise import RunningStats
from scopil.policy import Policy
from scopil.types import PRNGKey

Constraint = Callable[..., Float[Array, " B"]]
Dual = Callable[..., Float[Array, ""]]


def resolution_setting() -> Any:
    return setting(
        default=0.05,
        about="ε: half the width of the interval that counts as the same continuous action, for a box of [−1, 1].",
        low=1e-3,  # float32 cannot resolve finer cells
        high=0.5,  # with coarser cells the constraint is no longer imitation
    )


def slack_setting() -> Any:
    return setting(
        default=None,
        about="δ in nats, of the whole action (ours: the paper gives no value). None: 0 for discrete actions, 1.5 per "
        "component of a continuous action.",
    )


@config
class Config(sac.Config):
    """The paper's settings. Settings that the paper does not give are marked "ours"."""

    # With α₀ = 1 the entropy in a continuous constraint outweighs imitation at first, and λ falls to 0.
    log_alpha_init: float = setting(default=0.0, about="log α₀ (ours).", continuous=-2.3)
    demo_batch_size: int = setting(default=256, about="Demonstrated steps per gradient step.", low=1)
    multiplier_init: float = setting(default=1.05, about="λ₀.", low=0)
    multiplier_lr: float = setting(default=3e-4, about="η of the multiplier, plain ascent.", low=0)
    slack: float | None = slack_setting()
    entropy_split: float = setting(default=0.5, about="β: the constraint's share of the entropy bonus.", low=0, high=1)
    action_resolution: float = resolution_setting()


class State(NamedTuple):
    actor: Trainable  # θ
    critics: Trainable  # (φ1, φ2)
    targets: tuple[Net, Net]  # (ψ1, ψ2)
    log_alpha: Trainable
    obs_stats: RunningStats | None
    head: Head
    multiplier: Float[Array, ""]  # λ


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    return State(*sac.init(key, spaces, cfg), jnp.asarray(cfg.multiplier_init, jnp.float32))


def update(
    state: State,
    data: Data,
    cfg: Config,
    key: PRNGKey,
    constraint: Constraint = constraints.entropic_constraint,
    dual: Dual = constraints.ascend,
) -> tuple[State, Metrics]:
    """One gradient step of Algorithm 1. The ablations pass another constraint or another dual step."""
    x = sac.preprocess(state, data, key)
    alpha, lam = jnp.exp(state.log_alpha.params), state.multiplier
    delta = slack(cfg, state.head)

    def g(actor: Net, alpha: Float[Array, ""]) -> Float[Array, ""]:
        """G(θ)"""
        weight = 2 * cfg.entropy_split * alpha
        return constraint(x.imitator(actor, cfg.action_resolution), x.demo_action, weight, delta).mean()

    # φx: minimise J_Q(φx)
    critics, m_q = sac.critic_step(state, x, alpha, cfg)

    # θ: minimise −J_π(θ) + λ G(θ)
    def lagrangian(actor: Net):
        j_pi = sac.policy_objective(actor, critics.params, x, 2 * (1 - cfg.entropy_split) * alpha)
        return -j_pi + lam * g(actor, alpha), j_pi

    actor, _, j_pi = gradient_step(state.actor, lagrangian, cfg.learning_rate)

    # α: minimise α (E_B H(π) − H̄)
    log_alpha, m_alpha = sac.temperature_step(state, actor.params, x, sac.target_entropy(cfg, state.head), cfg)

    # λ ← [λ + η G(θ)]₊
    violation = g(actor.params, jnp.exp(log_alpha.params))
    lam = dual(lam, violation, cfg.multiplier_lr)

    # ψx ← ε φx + (1 − ε) ψx
    targets = sac.track(state.targets, critics, cfg)

    metrics = m_q | m_alpha | imitation_metrics(actor.params, x, cfg) | {
        "actor/objective": j_pi,
        "dual/lambda": lam,
        "dual/constraint": violation,
    }  # fmt: skip
    return State(actor, critics, targets, log_alpha, x.obs_stats, state.head, lam), metrics


def imitation_metrics(actor: Net, x: sac.Inputs, cfg: Config) -> Metrics:
    pi_demo = x.imitator(actor, cfg.action_resolution)
    return {"demo/nll": -pi_demo.log_prob(x.demo_action).mean(), "demo/entropy": pi_demo.entropy().mean()}


def slack(cfg: Any, head: Head) -> Any:
    """δ in nats, for the whole action vector."""
    if cfg.slack is not None:
        return cfg.slack
    return 1.5 * head.num_actions if head.continuous else 0.0


def policy(state: State) -> Policy:
    return sac.policy(state)


CURVES = (
    Curve("dual/lambda", "Multiplier λ", "λ"),
    Curve("dual/constraint", "Constraint G (nats)", "G"),
    Curve("demo/nll", "−log π of demonstrated actions (nats)"),
    *sac.CURVES,
)


def variant(name: str, title: str, summary: str, **parts: Any) -> Algorithm:
    return Algorithm(
        name=name,
        title=title,
        summary=summary,
        config=Config,
        init=init,
        update=partial(update, **parts) if parts else update,
        policy=policy,
        wants=frozenset({"replay", "demo_batch"}),
        curves=CURVES,
    )


ALGORITHM = variant("scopil", "SCOPIL", "the paper's algorithm: SAC under an imitation constraint")
