"""SCOPIL from a clone: SCOPIL's steps with an initial clone, δ from the demonstrations and an averaged policy.

    θ₀      a clone of the demonstrations, softened to the entropy H̄; the replay begins with the demonstrated steps
    δ       the clone's negative log-likelihood:  G(θ) = E_D [ −log π(a|s) ] − δ, with the gradient of SCOPIL's G
    θ, α, λ  stay at their initial values for the first `critics_first` gradient steps
    θ̄     ← θ̄ + (θ − θ̄)/N                                 the policy; single iterates are noisy

SCOPIL-ρ is this learner with an occupancy constraint; this module is the ablation without it. Not in the paper.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from scopil.algos import cloning, sac, scopil
from scopil.algos.base import Algorithm, Curve, Data, Metrics, Spaces
from scopil.config import config, setting
from scopil.losses import constraints
from scopil.nn.gradient import Trainable, gradient_step
from scopil.nn.heads import Head
from scopil.nn.nets import Net
from scopil.nn.normalise import RunningStats, in_own_units, update_stats
from scopil.policy import Policy
from scopil.types import PRNGKey


@config
class Config(cloning.Config, scopil.Config):
    """SCOPIL's settings with defaults for a policy that is deployed."""

    target_entropy: float | None = setting(
        default=None,
        about="H̄ in nats, of the whole action. None: 0.07 log|A| for |A| discrete actions, −1 per component "
        "of a continuous action (a density on [−1, 1]), or the clone's entropy if that is less.",
    )
    log_alpha_init: float = setting(default=-2.3, about="log α₀ (ours).")
    normalise_obs: bool = setting(
        default=True, about="Whether networks see observations in the demonstrations' units, clipped at ±10."
    )
    slack: float | None = setting(
        default=None, about="δ in nats, of the whole action. None: the clone's negative log-likelihood."
    )
    critics_first: int = setting(
        default=5_000, about="Gradient steps of the critics alone: untrained critics would destroy the clone.", low=0
    )
    average_over: int = setting(
        default=20_000,
        about="N: the policy is an exponential moving average of the actors over N gradient steps.",
        low=1,
    )


class State(NamedTuple):
    actor: Trainable  # θ
    critics: Trainable  # (φ1, φ2)
    targets: tuple[Net, Net]  # (ψ1, ψ2)
    log_alpha: Trainable
    obs_stats: RunningStats | None  # of the demonstrations; fixed
    head: Head
    multiplier: Float[Array, ""]  # λ
    average: Net  # θ̄
    target_entropy: Float[Array, ""]  # H̄
    slack: Float[Array, ""]  # δ
    unit: Float[Array, ""]  # unit of λ and of its learning rate, in reward
    updates: Int[Array, ""]  # gradient steps made
    critics_until: Int[Array, ""]  # number of gradient steps before which only the critics learn
    averaged: Int[Array, ""]  # gradient steps in the average


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    learner = scopil.init(key, spaces, cfg)
    entropy = jnp.asarray(sac.target_entropy(cfg, learner.head, share=0.07), jnp.float32)
    slack = jnp.asarray(0.0 if cfg.slack is None else cfg.slack, jnp.float32)
    first = jnp.asarray(cfg.critics_first, jnp.int32)
    return State(*learner, learner.actor.params, entropy, slack, jnp.float32(1.0), jnp.int32(0), first, jnp.int32(0))


def prepare(state: State, data: Data, cfg: Config, key: PRNGKey) -> State:
    """Compute the clone, H̄ and δ."""
    demos = data.demos
    assert demos is not None
    k_clone, k_soft = jax.random.split(key)
    obs_stats = in_own_units(update_stats(state.obs_stats, demos.obs), demos.obs)
    shown = cloning.pairs(demos, obs_stats, state.head, cfg)
    clone = cloning.clone(state.actor, shown, cfg, k_clone)
    entropy = jnp.minimum(state.target_entropy, clone.nll) if not state.head.continuous else state.target_entropy
    soft = cloning.soften(clone.actor, shown, entropy, cfg, k_soft)
    return state._replace(
        actor=soft.actor,
        average=soft.actor.params,
        obs_stats=obs_stats,
        target_entropy=soft.entropy if cfg.target_entropy is None else state.target_entropy,
        slack=clone.nll if cfg.slack is None else state.slack,
    )


def no_barrier(actor: Net, x: sac.Inputs) -> Float[Array, ""]:
    return jnp.float32(0.0)


def update(
    state: State,
    data: Data,
    cfg: Config,
    key: PRNGKey,
    barrier: Callable[[Net, sac.Inputs], Float[Array, ""]] = no_barrier,
) -> tuple[State, Metrics]:
    """`barrier` is a further loss, of the actor and the batch."""
    # The statistics stay those of the demonstrations, with which the clone was trained.
    x = sac.preprocess(state, data, key, learn_stats=False)
    alpha, lam = jnp.exp(state.log_alpha.params), state.multiplier

    def g(actor: Net, alpha: Float[Array, ""]) -> Float[Array, ""]:
        """E_D [ −log π(a|s) ] − δ, with the gradient of SCOPIL's G"""
        weight = 2 * cfg.entropy_split * alpha
        pi = x.imitator(actor, cfg.action_resolution)
        return constraints.within_budget(constraints.entropic_constraint, pi, x.demo_action, weight, state.slack)

    # φx: minimise J_Q(φx)
    critics, m_q = sac.critic_step(state, x, alpha, cfg)

    # θ: minimise −J_π(θ) + λ G(θ)
    def lagrangian(actor: Net):
        j_pi = sac.policy_objective(actor, critics.params, x, 2 * (1 - cfg.entropy_split) * alpha)
        return -j_pi + lam * g(actor, alpha) + barrier(actor, x), j_pi

    actor, _, j_pi = gradient_step(state.actor, lagrangian, cfg.learning_rate)

    # α: minimise α (E_B H(π) − H̄)
    log_alpha, m_alpha = sac.temperature_step(state, actor.params, x, state.target_entropy, cfg)

    # λ ← [λ + η G(θ)]₊
    violation = g(actor.params, jnp.exp(log_alpha.params))
    lam = constraints.ascend(lam, violation, cfg.multiplier_lr * state.unit)

    metrics = m_q | m_alpha | scopil.imitation_metrics(actor.params, x, cfg) | {
        "actor/objective": j_pi,
        "dual/lambda": lam,
        "dual/constraint": violation,
        "dual/slack": state.slack,
    }  # fmt: skip

    # θ, α, λ do not change while only the critics learn
    new, old = (actor, log_alpha, lam), (state.actor, state.log_alpha, state.multiplier)
    learning = state.updates >= state.critics_until
    actor, log_alpha, lam = jax.tree.map(lambda n, o: jnp.where(learning, n, o), new, old)

    # θ̄ ← θ̄ + (θ − θ̄)/N,  ψx ← ε φx + (1 − ε) ψx
    counts = learning | (state.updates < cfg.critics_first)
    averaged = state.averaged + counts
    share = counts / jnp.clip(averaged, 1, cfg.average_over)
    return state._replace(
        actor=actor,
        critics=critics,
        targets=sac.track(state.targets, critics, cfg),
        log_alpha=log_alpha,
        multiplier=lam,
        average=jax.tree.map(lambda mean, new: mean + share * (new - mean), state.average, actor.params),
        updates=state.updates + 1,
        averaged=averaged,
    ), metrics


def policy(state: State) -> Policy:
    """The averaged policy."""
    return Policy(state.obs_stats, state.average, state.head)


def short_run(cfg: Config, env_steps: int) -> str | None:
    """A warning if the run ends before the actor is trained."""
    updates = env_steps // cfg.num_envs * cfg.grad_steps
    if updates > cfg.critics_first:
        return None
    return f"the first {cfg.critics_first:,} updates train only the critics: after {updates:,} the policy is the clone"


CURVES = (*scopil.CURVES, Curve("dual/slack", "Slack δ (nats)"))
ALGORITHM = Algorithm(
    name="scopil-clone",
    title="SCOPIL from a clone",
    summary="SCOPIL with an initial clone, δ from the data and an averaged policy: SCOPIL-ρ without its constraint",
    config=Config,
    init=init,
    update=update,
    policy=policy,
    behaviour=sac.policy,
    wants=frozenset({"replay", "demo_batch"}),
    curves=CURVES,
    prepare=prepare,
    preparing="clone: learns the demonstrated actions",
    replay_demos=True,
    demo_filter=cloning.deliberate,
    short_run=short_run,
)
