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
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from scopil.algos import cloning, sac
from scopil.algos.base import Algorithm, Curve, Data, Metrics, Spaces
from scopil.config import config, setting
from scopil.losses import duals, imitation
from scopil.nn.gradient import Trainable, gradient_step
from scopil.nn.heads import Head
from scopil.nn.nets import Net
from scopil.nn.normalise import RunningStats, in_own_units, update_stats
from scopil.policy import Policy
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
        about="δ in nats, of the whole action. None: taken from the demonstrations where `slack_from_demos` is on; "
        "else 0 for discrete actions, which asks for the demonstrator exactly (ours: the paper gives no value), and "
        "1.5 for each component of a continuous one, at the resolution.",
    )


def slack_from_demos_setting(default: bool = False) -> Any:
    return setting(
        default=default,
        about="Whether δ is what a clone leaves open of the demonstrations, where `slack` is None (not in the paper).",
        printed=False,
    )


def from_demos(cfg: Any) -> bool:
    """Whether δ comes from the demonstrations: a slack that is given is used."""
    return cfg.slack_from_demos and cfg.slack is None


@config
class Shared(sac.Config):
    """SCOPIL's settings and SCOPIL-ρ's, with defaults for a policy that is shipped."""

    target_entropy: float | None = setting(
        default=None,
        about="H̄ in nats, of the whole action. None: 0.07 log|A| for |A| discrete actions, −1 for each component of a "
        "continuous one (a density on [−1, 1]), or what a clone has if that is less.",
    )
    # With α₀ = 1 the entropy in a continuous constraint outweighs all imitation at first, and λ falls to 0.
    log_alpha_init: float = setting(default=-2.3, about="log α₀ (ours).", continuous=-2.3, printed=0.0)
    normalise_obs: bool = setting(
        default=True,
        about="Whether networks see observations with zero mean and unit variance, clipped at ±10.",
        continuous=True,
        printed=False,
    )
    demo_batch_size: int = setting(default=256, about="Demonstrated steps per gradient step.", low=1)
    multiplier_init: float = setting(default=1.05, about="λ₀.", low=0)
    multiplier_lr: float = setting(default=3e-4, about="η of the multiplier, plain ascent.", low=0)
    slack: float | None = slack_setting()
    entropy_split: float = setting(default=0.5, about="β: the constraint's share of the entropy bonus.", low=0, high=1)
    action_resolution: float = resolution_setting()
    slack_from_demos: bool = slack_from_demos_setting(True)
    from_cloning: bool = setting(
        default=True,
        about="Whether the actor begins as a clone and the replay with the demonstrated steps, and hesitation is left "
        "out of these (not in the paper).",
        printed=False,
    )
    average_over: int = setting(
        default=20_000,
        about="The policy is an exponential moving average of the actors over so many gradient steps; 0: the newest "
        "actor (the paper's).",
        low=0,
        printed=0,
    )

    @property
    def entropy_share(self) -> float:
        return 0.07


@config
class Config(Shared):
    as_printed: bool = setting(
        default=False,
        about="Whether settings that are not given are the paper's: no clone to begin with, δ = 0, H̄ = 0.4 log|A|, the "
        "newest actor as the policy.",
    )

    @property
    def entropy_share(self) -> float:
        return 0.4 if self.as_printed else 0.07


class State(NamedTuple):
    actor: Trainable  # θ
    critics: Trainable  # (φ1, φ2)
    targets: tuple[Net, Net]  # (ψ1, ψ2)
    log_alpha: Trainable
    obs_stats: RunningStats | None
    head: Head
    multiplier: Float[Array, ""]  # λ
    target_entropy: Float[Array, ""]  # H̄
    demo_nll: Float[Array, ""]  # δ_D, nats per demonstrated action that a clone leaves open
    average: Net | None  # θ̄, the mean of the last actors; None where the newest one is the policy


class Parts(NamedTuple):
    """What the ablations exchange."""

    constraint: Callable[..., Float[Array, " B"]] = imitation.entropic_constraint
    dual: Callable[..., Float[Array, ""]] = duals.ascend


WHOLE = Parts()
CRITICS_FIRST = 5_000  # gradient steps that a clone is kept for


def init(key: PRNGKey, spaces: Spaces, cfg: Shared) -> State:
    learner = sac.init(key, spaces, cfg)
    multiplier = jnp.asarray(cfg.multiplier_init, jnp.float32)
    entropy = jnp.asarray(sac.target_entropy(cfg, learner.head), jnp.float32)
    average = learner.actor.params if cfg.average_over else None
    return State(*learner, multiplier, entropy, jnp.float32(0.0), average)


def prepare(state: State, data: Data, cfg: Shared, key: PRNGKey) -> State:
    """The clone to begin with, and δ from the data."""
    demos = data.demos
    assert demos is not None
    if not from_demos(cfg) and not cfg.from_cloning:
        return state
    k_clone, k_soft = jax.random.split(key)
    obs_stats = in_own_units(update_stats(state.obs_stats, demos.obs), demos.obs)
    shown = cloning.lesson(demos, obs_stats, state.head, cfg)
    clone = cloning.clone(state.actor, shown, k_clone)
    state = state._replace(demo_nll=clone.left_open)
    if cfg.from_cloning:
        soft = cloning.soften(clone.actor, shown, state.target_entropy, k_soft)
        asked = soft.entropy if cfg.target_entropy is None else state.target_entropy
        average = None if state.average is None else soft.actor.params
        state = state._replace(actor=soft.actor, obs_stats=obs_stats, target_entropy=asked, average=average)
    return state


def update(state: State, data: Data, cfg: Shared, key: PRNGKey, parts: Parts = WHOLE) -> tuple[State, Metrics]:
    # A clone is itself only under the statistics that it was trained with: those of the demonstrations.
    seen = sac.see(state, data, key, learn_stats=not cfg.from_cloning)
    alpha, lam = jnp.exp(state.log_alpha.params), state.multiplier
    rl_share, demo_share = 2 * (1 - cfg.entropy_split), 2 * cfg.entropy_split
    demo_action: Any = seen.demo_action
    delta = slack(cfg, state.head)

    def imitator(actor: Net) -> imitation.Distribution:
        return seen.op.imitator(actor, seen.s_demo, seen.noise.demo, cfg.action_resolution)

    def g(pi: imitation.Distribution, alpha: Float[Array, ""]) -> Float[Array, ""]:
        weight = demo_share * alpha
        if from_demos(cfg):
            return imitation.within_budget(parts.constraint, pi, demo_action, weight, state.demo_nll)
        return parts.constraint(pi, demo_action, weight, delta).mean()

    # φx: minimise J_Q(φx)
    critics, m_q = sac.critic_step(state, seen, alpha, cfg)

    # θ: minimise −J_π(θ) + λ G(θ)
    def lagrangian(actor):
        j_pi = sac.policy_objective(actor, critics.params, seen, rl_share * alpha)
        return -j_pi + lam * g(imitator(actor), alpha), j_pi

    actor, _, j_pi = gradient_step(state.actor, lagrangian, cfg.learning_rate)

    # α: minimise α (E_B H(π) − H̄)
    asked = replace(cfg, target_entropy=state.target_entropy) if cfg.from_cloning else cfg
    log_alpha, m_alpha = sac.temperature_step(state, actor.params, seen, asked)

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
    if from_demos(cfg):
        metrics["dual/slack"] = state.demo_nll
    if cfg.from_cloning:  # critics first: an untrained critic would lead the clone astray
        learning = optax.tree_utils.tree_get(state.critics.opt, "count") >= CRITICS_FIRST
        actor, log_alpha, lam = jax.tree.map(
            lambda new, old: jnp.where(learning, new, old),
            (actor, log_alpha, lam),
            (state.actor, state.log_alpha, state.multiplier),
        )
    targets, average = sac.track(state.targets, critics, cfg), state.average
    if average is not None:  # θ̄ ← θ̄ + (θ − θ̄)/N
        steps = optax.tree_utils.tree_get(critics.opt, "count")
        share = 1.0 / jnp.minimum(steps, cfg.average_over)
        average = jax.tree.map(lambda mean, new: mean + share * (new - mean), average, actor.params)
    new = state._replace(
        actor=actor,
        critics=critics,
        targets=targets,
        log_alpha=log_alpha,
        obs_stats=seen.obs_stats,
        multiplier=lam,
        average=average,
    )
    return new, metrics


def policy(state: State) -> Policy:
    """The mean of the last actors, where it is kept: single actors come and go with the critics' errors."""
    newest = sac.policy(state)
    return newest if state.average is None else Policy(newest.normaliser, state.average, newest.head)


def slack(cfg: Any, head: Head) -> Any:
    """δ in nats, of the whole action."""
    if cfg.slack is not None:
        return cfg.slack
    return 1.5 * head.num_actions if head.continuous else 0.0


def short_run(cfg: Shared, env_steps: int) -> str | None:
    """A warning if the policy would stay the clone that it begins as."""
    updates = env_steps // cfg.num_envs * cfg.grad_steps
    if not cfg.from_cloning or updates > CRITICS_FIRST:
        return None
    return f"the first {CRITICS_FIRST:,} updates train the critics only: in {updates:,} the policy stays a clone"


CURVES = (
    Curve("dual/lambda", "Multiplier λ", "λ"),
    Curve("dual/constraint", "Constraint G (nats)", "G"),
    Curve("demo/nll", "−log π of demonstrated actions (nats)"),
    *sac.CURVES,
)


def variant(name: str, title: str, summary: str, parts: Parts) -> Algorithm:
    return Algorithm(
        name=name,
        title=title,
        summary=summary,
        config=Config,
        init=init,
        update=partial(update, parts=parts),
        policy=policy,
        behaviour=sac.policy,
        wants=frozenset({"replay", "demo_batch"}),
        curves=CURVES,
        prepare=prepare,
        replay_demos=lambda cfg: cfg.from_cloning,
        skip_hesitation=lambda cfg: cfg.from_cloning,
        short_run=short_run,
    )


ALGORITHM = variant("scopil", "SCOPIL", "SAC held to the demonstrations by a learned multiplier", WHOLE)
