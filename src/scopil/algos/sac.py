"""Soft actor-critic (Haarnoja et al. 2018), without demonstrations and without a multiplier. One gradient step:

V(s)    = α H(π(·|s)) + E_{a~π} min_x Q_x(s,a)                V_ψ: with the targets ψx; V_φ: with the critics φx
y       = r + γ (1 − terminated) V_ψ(s')
J_Q(φx) = E_B ½ (Q_φx(s,a) − y)²                              minimised in φ1, φ2
J_π(θ)  = E_B V_φ(s)                                          maximised in θ
α:        minimise α ( E_B H(π(·|s)) − H̄ )
ψx      ← ε φx + (1 − ε) ψx

Expectations over discrete actions are exact sums. Expectations over continuous actions are estimated from one sampled
action and its density; actions are scaled to [−1, 1]^A (losses/soft.py).
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from scopil.algos.base import Algorithm, Curve, Data, Metrics, Spaces, new_obs_stats
from scopil.config import config, setting
from scopil.losses import soft
from scopil.losses.soft import Noise, operator, soft_value
from scopil.nn.gradient import Trainable, gradient_step, trainable
from scopil.nn.heads import Head
from scopil.nn.nets import Net, network
from scopil.nn.normalise import RunningStats, normalise, update_stats
from scopil.policy import Policy
from scopil.types import PRNGKey


@config
class Config:
    """For discrete actions the defaults are those of the SCOPIL paper, except settings marked "ours". The defaults for
    continuous actions are not from that paper."""

    discount: float = setting(default=0.99, about="γ per environment step, the discount factor.", low=0, high=1)
    learning_rate: float = setting(default=3e-4, about="Learning rate η of the policy and the critics (Adam).", low=0)
    alpha_lr: float = setting(
        default=2e-3, about="Learning rate of log α (Adam); κ in the SCOPIL paper.", low=0, continuous=3e-4
    )
    polyak: float = setting(
        default=5e-3,
        about="Weight ε of the critics in the update of their targets, ψ ← ε φ + (1 − ε) ψ.",
        low=0,
        high=1,
    )
    target_entropy: float | None = setting(
        default=None,
        about="Target entropy H̄ of the joint action, in nats. None: 0.4 log|A| for |A| discrete actions, −1 per "
        "component of a continuous action (scaled to [−1, 1]).",
    )
    log_alpha_init: float = setting(default=0.0, about="Initial value of log α (ours).")
    hidden: tuple[int, ...] = setting(
        default=(32, 32), about="Widths of the hidden layers of every network.", low=1, continuous=(64, 64)
    )
    batch_size: int = setting(default=256, about="Transitions from the replay per gradient step.", low=1)
    replay_size: int = setting(default=1_000_000, about="Capacity of the replay in transitions.", low=1)
    num_envs: int = setting(default=1, about="Environments stepped in parallel (ours).", low=1)
    grad_steps: int = setting(default=1, about="Gradient steps after each step of all environments (ours).", low=1)
    overlap: bool = setting(
        default=False,
        about="Whether Python environments step in a thread while the update runs, to save time if a step is slow. "
        "The update's batch then lacks the newest step.",
    )
    normalise_obs: bool = setting(
        default=False,
        about="Whether observations are normalised to zero mean and unit variance, and clipped at ±10.",
        continuous=True,
    )

    def problem(self) -> str | None:
        for name in ("batch_size", "num_envs"):
            if self.replay_size < getattr(self, name):
                return f"replay_size {self.replay_size} is smaller than {name} {getattr(self, name)}."
        return None

    def problem_with(self, head: Head) -> str | None:
        """The reason why these settings do not suit the actions of `head`; None if they do."""
        most = head.num_actions * math.log(2.0) if head.continuous else math.log(head.num_actions)
        if self.target_entropy is not None and self.target_entropy > most:
            return f"target_entropy = {self.target_entropy:g}; the largest entropy of these actions is {most:.3g} nats."
        return None


class State(NamedTuple):
    actor: Trainable  # θ
    critics: Trainable  # (φ1, φ2)
    targets: tuple[Net, Net]  # (ψ1, ψ2)
    log_alpha: Trainable
    obs_stats: RunningStats | None
    head: Head


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    k_actor, k_1, k_2 = jax.random.split(key, 3)
    sizes = operator(spaces.head).critic_sizes(spaces.obs_dim, cfg.hidden, spaces.head)
    critics = (network(sizes, k_1, spaces.image), network(sizes, k_2, spaces.image))
    return State(
        trainable(network((spaces.obs_dim, *cfg.hidden, spaces.head.num_outputs), k_actor, spaces.image)),
        trainable(critics),
        critics,
        trainable(jnp.asarray(cfg.log_alpha_init, jnp.float32)),
        new_obs_stats(spaces, cfg),
        spaces.head,
    )


def policy(state: Any) -> Policy:
    return Policy(state.obs_stats, state.actor.params, state.head)


def update(state: State, data: Data, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
    x = preprocess(state, data, key)
    alpha = jnp.exp(state.log_alpha.params)

    # φx: minimise J_Q(φx)
    critics, m_q = critic_step(state, x, alpha, cfg)

    actor, m_pi = actor_step(state, critics, x, alpha, cfg)
    log_alpha, m_alpha = temperature_step(state, actor.params, x, target_entropy(cfg, state.head), cfg)
    targets = track(state.targets, critics, cfg)
    return State(actor, critics, targets, log_alpha, x.obs_stats, state.head), m_q | m_alpha | m_pi


# --- parts shared with SCOPIL, SAC-Lagrangian and SafeQIL ------------------------------------------------------------


class Inputs(NamedTuple):
    """The data of one gradient step. Observations are normalised, actions are converted by `Head.to_learner`."""

    op: Any  # the operator for the actions (losses/soft.py)
    s: Array
    action: Array
    reward: Float[Array, " B"]
    s_next: Array
    terminated: Array
    s_demo: Array | None
    demo_action: Any
    noise: Noise
    obs_stats: RunningStats | None

    def imitator(self, actor: Net, resolution: Any) -> Any:
        """π(·|s) at the demonstrated states. `resolution` is that of the demonstrated continuous actions."""
        return self.op.imitator(actor, self.s_demo, self.noise.demo, resolution)


def preprocess(state: Any, data: Data, key: PRNGKey, learn_stats: bool = True) -> Inputs:
    batch, demo, op = data.replay, data.demo_batch, operator(state.head)
    assert batch is not None
    obs_stats = state.obs_stats
    if obs_stats is not None and learn_stats:
        observed = [batch.obs] if demo is None else [batch.obs, demo.obs]
        obs_stats = update_stats(obs_stats, jnp.concatenate(observed))

    def states(obs: Array) -> Array:
        return op.states(normalise(obs_stats, obs))

    to_learner = state.head.to_learner
    return Inputs(
        op,
        states(batch.obs),
        to_learner(batch.action),
        batch.reward,
        states(batch.next_obs),
        batch.terminated,
        None if demo is None else states(demo.obs),
        None if demo is None else to_learner(demo.action),
        op.noise(key, len(batch.reward), 0 if demo is None else len(demo.obs), state.head),
        obs_stats,
    )


def critic_step(state: Any, x: Inputs, alpha: Float[Array, ""], cfg: Any) -> tuple[Trainable, Metrics]:
    """φx: minimise J_Q(φx); y contains the soft value of the next state, computed with the target critics."""
    op = x.op
    pi_next = op.distribution(state.actor.params, x.s_next, x.noise.after)
    v_next = soft_value(op, state.targets, pi_next, x.s_next, alpha)
    y = soft.td_target(x.reward, x.terminated, v_next, cfg.discount)
    return fit_critics("critic", state.critics, x, y, cfg)


def fit_critics(name: str, critics: Trainable, x: Inputs, y: Float[Array, " B"], cfg: Any) -> tuple[Trainable, Metrics]:
    """One descent step of two critics on E_B Σ_x ½ (Q_x(s,a) − y)²."""

    def loss(critics):
        q1, q2 = (x.op.q(critic, x.s, x.action) for critic in critics)
        return (0.5 * (q1 - y) ** 2 + 0.5 * (q2 - y) ** 2).mean(), q1.mean()

    critics, j_q, q_mean = gradient_step(critics, loss, cfg.learning_rate)
    return critics, {f"{name}/loss": j_q, f"{name}/q": q_mean}


def actor_step(
    state: Any, critics: Trainable, x: Inputs, alpha: Float[Array, ""], cfg: Any
) -> tuple[Trainable, Metrics]:
    """θ: maximise J_π(θ)"""

    def loss(actor):
        j_pi = policy_objective(actor, critics.params, x, alpha)
        return -j_pi, j_pi

    actor, _, j_pi = gradient_step(state.actor, loss, cfg.learning_rate)
    return actor, {"actor/objective": j_pi}


def policy_objective(actor: Net, critics: Any, x: Inputs, alpha: Float[Array, ""]) -> Float[Array, ""]:
    """J_π(θ) = E_B V_φ(s)"""
    pi = x.op.distribution(actor, x.s, x.noise.now)
    return soft_value(x.op, critics, pi, x.s, alpha).mean()


def temperature_step(state: Any, actor: Net, x: Inputs, target: Any, cfg: Any) -> tuple[Trainable, Metrics]:
    """α: minimise α (E_B H(π) − H̄); α rises if the entropy is below H̄."""
    entropy = x.op.distribution(actor, x.s, x.noise.now).entropy().mean()
    gap = entropy - target
    log_alpha, _, _ = gradient_step(state.log_alpha, lambda log_alpha: (jnp.exp(log_alpha) * gap, None), cfg.alpha_lr)
    return log_alpha, {"alpha/value": jnp.exp(log_alpha.params), "alpha/entropy": entropy}


def track(targets: tuple[Net, Net], critics: Trainable, cfg: Any) -> tuple[Net, Net]:
    """ψx ← ε φx + (1 − ε) ψx"""
    moved: Any = optax.incremental_update(critics.params, targets, cfg.polyak)  # pyright: ignore[reportArgumentType]
    return moved


def target_entropy(cfg: Any, head: Head, share: float = 0.4) -> Any:
    """The target entropy H̄ of the joint action, in nats. Default: `share` times the largest entropy of discrete
    actions, or −1 per component of a continuous action."""
    if cfg.target_entropy is not None:
        return cfg.target_entropy
    return -1.0 * head.num_actions if head.continuous else share * math.log(head.num_actions)


CURVES = (
    Curve("alpha/value", "Temperature α", "α"),
    Curve("alpha/entropy", "Entropy of the policy (nats)", "H"),
    Curve("critic/loss", "Loss of the critics"),
)
ALGORITHM = Algorithm(
    name="sac",
    title="SAC",
    summary="soft actor-critic: reward only, no demonstrations",
    config=Config,
    init=init,
    update=update,
    policy=policy,
    wants=frozenset({"replay"}),
    curves=CURVES,
)
