"""SafeQIL (Papadopoulos & Vouros 2026): SAC with pessimistic critics at states that are unlike the demonstrated ones.

    D:   minimise E_D softplus(−D(s)) + E_B softplus(D(s)) + ρ E (‖∇D(x)‖ − 1)²,      p(s) = sigmoid D(s)
    φx:  minimise ½ (J₁ + J₂ + J₃ + J₄)
         J₁ = E_B p (Q − y)²                 y   = r + γ (1 − terminated) V_ψ(s'), as in SAC
         J₂ = E_B (1 − p) (Q − y₂)²          y₂  = log p + γ (1 − terminated) E_{a~π} min_x Q_ψx(s',a)
         J₃ = E_B (1 − p) max(0, Q − y₃)²    y₃  = y₄ of the demonstrated step with the most similar state
         J₄ = E_D (Q − y₄)²                  y₄  = r + γ (1 − terminated) min_x Q_ψx(s',a'), a' demonstrated next

The similarity is the cosine of normalised observations. The policy, the temperature and the targets ψ are those of SAC.
The learner does not use costs.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from scopil.algos import gail_sac, sac
from scopil.algos.base import Algorithm, Curve, Data, Metrics, Spaces
from scopil.config import config, setting
from scopil.data.dataset import DemoTransitions
from scopil.errors import DatasetError
from scopil.losses.soft import soft_value, td_target
from scopil.nn.gradient import Trainable, gradient_step, trainable
from scopil.nn.heads import Head
from scopil.nn.nets import Net, network
from scopil.nn.normalise import RunningStats, normalise
from scopil.types import PRNGKey


@config
class Config(sac.Config):
    """SAC's settings and the discriminator's. Widths, rates and penalty are those of SafeQIL's published code."""

    hidden: tuple[int, ...] = setting(default=(32, 32), about="Widths of the hidden layers of every network.", low=1)
    normalise_obs: bool = setting(
        default=True, about="Whether observations are normalised to zero mean and unit variance, and clipped at ±10."
    )
    demo_batch_size: int = setting(default=256, about="Demonstrated steps per gradient step.", low=1)
    discriminator_lr: float = setting(default=3e-4, about="η of the discriminator (Adam).", low=0)
    gradient_penalty: float = setting(default=0.005, about="ρ: weight of the gradient penalty.", low=0)


class State(NamedTuple):
    actor: Trainable  # θ
    critics: Trainable  # (φ1, φ2)
    targets: tuple[Net, Net]  # (ψ1, ψ2)
    log_alpha: Trainable
    obs_stats: RunningStats | None
    head: Head
    discriminator: Trainable  # D


class Shown(NamedTuple):
    """Demonstrated steps with what their targets y₄ need."""

    step: DemoTransitions
    next_action: Array
    known: Bool[Array, " M"]  # whether y₄ is defined: the step ended the task, or the next action was demonstrated


class Targets(NamedTuple):
    """The numbers that do not depend on the critics φ."""

    logit: Float[Array, " B"]  # D(s)
    task: Float[Array, " B"]  # y
    unlike: Float[Array, " B"]  # y₂
    bound: Float[Array, " B"]  # y₃
    demo: Float[Array, " M"]  # y₄
    known: Bool[Array, " M"]


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    k_sac, k_discriminator = jax.random.split(key)
    discriminator = trainable(network((spaces.obs_dim, *cfg.hidden, 1), k_discriminator, spaces.image))
    return State(*sac.init(k_sac, spaces, cfg), discriminator)


def update(state: State, data: Data, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
    k_demo, k_between, k_sac = jax.random.split(key, 3)
    batch, demos = data.replay, data.demos
    assert batch is not None
    assert demos is not None
    shown = with_next_actions(demos)
    drawn = rows(shown, jax.random.randint(k_demo, (cfg.demo_batch_size,), 0, len(demos.obs)))
    x = sac.preprocess(state, Data(replay=batch, demo_batch=drawn.step), k_sac)
    alpha = jnp.exp(state.log_alpha.params)

    # D: minimise E_D softplus(−D) + E_B softplus(D) + ρ E (‖∇D‖ − 1)²
    own, demo_obs = (normalise(x.obs_stats, obs) for obs in (batch.obs, drawn.step.obs))
    discriminator, d_loss = gail_sac.discriminator_step(state.discriminator, demo_obs, own, cfg, k_between)

    # φx: minimise ½ (J₁ + J₂ + J₃ + J₄)
    logit = discriminator.params(own)[:, 0]
    pi_next = x.op.distribution(state.actor.params, x.s_next, x.noise.after)
    v_next = soft_value(x.op, state.targets, pi_next, x.s_next, alpha)
    q_next = x.op.min_q(state.targets, pi_next, x.s_next)
    near = rows(shown, most_similar(own, normalise(x.obs_stats, demos.obs), shown.known))
    y = Targets(
        logit,
        td_target(x.reward, x.terminated, v_next, cfg.discount),
        td_target(jax.nn.log_sigmoid(logit), x.terminated, q_next, cfg.discount),
        demo_target(state, near, x, cfg),
        demo_target(state, drawn, x, cfg),
        drawn.known,
    )

    def loss(critics):
        terms = 0.5 * (critic_terms(critics[0], x, y) + critic_terms(critics[1], x, y))
        return terms.sum(), (terms, x.op.q(critics[0], x.s, x.action).mean())

    critics, j_q, (terms, q_mean) = gradient_step(state.critics, loss, cfg.learning_rate)

    # θ, α and ψx as in SAC
    actor, m_pi = sac.actor_step(state, critics, x, alpha, cfg)
    log_alpha, m_alpha = sac.temperature_step(state, actor.params, x, sac.target_entropy(cfg, state.head), cfg)
    targets = sac.track(state.targets, critics, cfg)

    metrics = m_pi | m_alpha | {
        "critic/loss": j_q,
        "critic/q": q_mean,
        "critic/task_loss": terms[0],
        "critic/unlike_loss": terms[1],
        "critic/bound_loss": terms[2],
        "critic/demo_loss": terms[3],
        "discriminator/loss": d_loss,
        "discriminator/own": jax.nn.sigmoid(logit).mean(),
        "discriminator/demo": jax.nn.sigmoid(discriminator.params(demo_obs)[:, 0]).mean(),
    }  # fmt: skip
    return State(actor, critics, targets, log_alpha, x.obs_stats, state.head, discriminator), metrics


def critic_terms(critic: Net, x: sac.Inputs, y: Targets) -> Float[Array, "4"]:
    """J₁ to J₄ of one critic."""
    q, q_demo = x.op.q(critic, x.s, x.action), x.op.q(critic, x.s_demo, x.demo_action)
    p, rest = jax.nn.sigmoid(y.logit), jax.nn.sigmoid(-y.logit)
    return jnp.stack([
        (p * (q - y.task) ** 2).mean(),
        (rest * (q - y.unlike) ** 2).mean(),
        (rest * jax.nn.relu(q - y.bound) ** 2).mean(),
        jnp.where(y.known, (q_demo - y.demo) ** 2, 0.0).mean(),
    ])  # fmt: skip


def demo_target(state: State, shown: Shown, x: sac.Inputs, cfg: Config) -> Float[Array, " M"]:
    """y₄ = r + γ (1 − terminated) min_x Q_ψx(s',a')"""
    step = shown.step
    s_next, action = x.op.states(normalise(x.obs_stats, step.next_obs)), state.head.to_learner(shown.next_action)
    q_next = jnp.minimum(*(x.op.q(target, s_next, action) for target in state.targets))
    return td_target(step.reward, step.terminated, q_next, cfg.discount)


def most_similar(own: Float[Array, "B D"], shown: Float[Array, "M D"], known: Bool[Array, " M"]) -> Int[Array, " B"]:
    """The demonstrated row with the largest cosine, of those whose target is known. The length of `own` is a factor
    that the comparison does not need."""
    unit = shown * jax.lax.rsqrt(jnp.sum(shown**2, axis=-1, keepdims=True) + 1e-12)
    return jnp.argmax(jnp.where(known, own @ unit.T, -jnp.inf), axis=-1)


def with_next_actions(demos: DemoTransitions) -> Shown:
    """Steps are in order, so the next action is in the next row of the same episode. An episode that was cut off shows
    no action in its last state: that step has no y₄."""
    if demos.reward is None:
        raise DatasetError(
            "SafeQIL learns from the rewards of the demonstrations, but these have none; record them with rewards "
            "(Demonstrations.from_arrays(..., rewards=...)), or use an algorithm that needs none, such as scopil."
        )
    follows = jnp.append(demos.episode[1:] == demos.episode[:-1], False)
    return Shown(demos, jnp.roll(demos.action, -1, axis=0), follows | demos.terminated)


def rows(shown: Shown, index: Int[Array, " N"]) -> Shown:
    picked: Any = jax.tree.map(lambda leaf: leaf[index], shown)
    return picked


ALGORITHM = Algorithm(
    name="safe-qil",
    title="SafeQIL",
    summary="SAC with pessimistic critics at states that are unlike the demonstrated ones",
    config=Config,
    init=init,
    update=update,
    policy=sac.policy,
    wants=frozenset({"replay", "demos"}),
    curves=(
        Curve("discriminator/own", "Probability that the policy's states are demonstrated", "p"),
        Curve("discriminator/demo", "Probability that demonstrated states are demonstrated"),
        Curve("critic/bound_loss", "Loss above the bound by demonstrated states"),
        *sac.CURVES,
    ),
)
