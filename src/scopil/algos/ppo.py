"""Proximal policy optimisation (Schulman et al. 2017), discrete actions. One update on a rollout of T × N steps:

δ_t  = r_t + γ (1 − terminated) V(s'_t) − V(s_t),   A_t = δ_t + γ λ A_{t+1},   y_t = A_t + V(s_t)
L(θ) = −E min(ρ A, clip(ρ, 1 ± ε) A) − c_H E H(π(·|s)) + c_V E (V(s) − y)²,    ρ = π(a|s) / π_old(a|s)

in up to ten passes of minibatches, none after one whose mean log π_old(a|s) − log π(a|s) exceeds 1.5 target_kl.
Details as in the code ICRL was published with, but for one: a time-out keeps its future value (docs/algorithms/ppo.md).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from scopil.algos.base import Metrics, Spaces
from scopil.algos.onpolicy import OnPolicyAlgorithm, Rollout
from scopil.config import pytree
from scopil.core import normalise, surrogate
from scopil.core.distributions import Categorical
from scopil.core.learner import Learned, descend, learned
from scopil.core.minibatches import passes
from scopil.core.nets import MLP, orthogonal_mlp
from scopil.core.returns import gae
from scopil.types import PRNGKey

STATIC = ("hidden", "batch_size", "num_envs", "rollout_steps", "epochs", "normalise_obs", "normalise_reward")
KL_MARGIN = 1.5
Scalar = float | Float[Array, ""]


@pytree(static=STATIC)
@dataclass(frozen=True, kw_only=True)
class Config:
    """Defaults of ICRL's published code and the SCOPIL paper's table."""

    discount: float = 0.99
    """γ per environment step, in [0, 1]."""
    gae_lambda: float = 0.95
    """λ of the advantage estimator, in [0, 1]."""
    learning_rate: float = 3e-4
    """η of all networks (one Adam, ε = 1e-5)."""
    clip: float = 0.2
    """ε of the clipped surrogate."""
    target_kl: float = 0.02
    """No further pass once the policy has moved 1.5 times this far, in nats; inf never stops."""
    entropy_weight: float = 0.0
    """c_H."""
    value_weight: float = 0.5
    """c_V, of every critic."""
    max_grad_norm: float = 0.5
    """The gradient of all parameters together is shortened to this length."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of policy and critics (tanh, separate)."""
    batch_size: int = 64
    """Steps a minibatch; divides num_envs × rollout_steps."""
    num_envs: int = 5
    """N, environments stepped together."""
    rollout_steps: int = 2048
    """T, steps of each environment between two updates."""
    epochs: int = 10
    """Passes over a rollout, at most."""
    normalise_obs: bool = True
    """Observations to zero mean and unit variance, by running statistics."""
    normalise_reward: bool = True
    """Rewards divided by the deviation of their running discounted return."""


class Nets(NamedTuple):
    actor: MLP
    critic: MLP


class State(NamedTuple):
    nets: Learned  # Nets
    obs_stats: normalise.Running | None
    reward_scale: normalise.ReturnScale | None


class Batch(NamedTuple):
    """Steps to learn from."""

    seen: Float[Array, "B D"]
    action: Int[Array, " B"]
    log_prob: Float[Array, " B"]  # log π_old(a|s)
    advantage: Float[Array, " B"]
    target: Float[Array, " B"]


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    k_actor, k_critic = jax.random.split(key)
    nets = Nets(actor_net(k_actor, spaces, cfg), critic_net(k_critic, spaces, cfg))
    return State(learned(nets, rule(cfg)), *fresh_statistics(spaces, cfg))


def policy(state: Any, obs: Float[Array, "*B D"]) -> Categorical:
    return Categorical(state.nets.params.actor(normalise.normalise(state.obs_stats, obs)))


def update(state: State, rollout: Rollout, demos: None, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
    batch, reward_scale = prepare(state, rollout, cfg)

    def step(nets: Learned, mini: Batch, key: PRNGKey) -> tuple[Learned, Metrics]:
        nets, _, metrics = descend(nets, lambda p: loss(p, mini, cfg), cfg.learning_rate, rule(cfg))
        return nets, metrics

    nets, metrics = sweep(state.nets, batch, step, key, cfg)
    return State(nets, state.obs_stats, reward_scale), metrics


# --- parts shared with PPO+DGD and PPO-Lagrangian ------------------------------------------------------------------


def actor_net(key: PRNGKey, spaces: Spaces, cfg: Config) -> MLP:
    return orthogonal_mlp((spaces.obs_dim, *cfg.hidden, spaces.num_actions), key, 0.01)


def critic_net(key: PRNGKey, spaces: Spaces, cfg: Config) -> MLP:
    return orthogonal_mlp((spaces.obs_dim, *cfg.hidden, 1), key, 1.0)


def rule(cfg: Config) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(cfg.max_grad_norm), optax.scale_by_adam(eps=1e-5))


def fresh_statistics(
    spaces: Spaces, cfg: Config
) -> tuple[normalise.Running | None, normalise.ReturnScale | None]:
    return (
        normalise.fresh((spaces.obs_dim,)) if cfg.normalise_obs else None,
        normalise.fresh_scale(cfg.num_envs) if cfg.normalise_reward else None,
    )


def prepare(state: Any, rollout: Rollout, cfg: Config) -> tuple[Batch, normalise.ReturnScale | None]:
    """Scaled rewards, advantages, value targets and π_old of a rollout, flattened."""
    step, nets = rollout.step, state.nets.params
    ended = step.terminated | step.truncated
    scale, reward = normalise.scale_signal(state.reward_scale, step.reward, ended, cfg.discount)
    advantage, target = advantages(nets.critic, rollout, reward, cfg.discount, cfg.gae_lambda)
    log_prob = Categorical(nets.actor(rollout.seen)).log_prob(step.action)
    return flat(Batch(rollout.seen, step.action, log_prob, advantage, target)), scale


def advantages(
    critic: MLP, rollout: Rollout, signal: Float[Array, "T N"], discount: Scalar, trace: Scalar
) -> tuple[Float[Array, "T N"], Float[Array, "T N"]]:
    """A_t and y_t = A_t + V(s_t) of a reward-like signal."""
    value, next_value = critic(rollout.seen)[..., 0], critic(rollout.next_seen)[..., 0]
    step = rollout.step
    a = gae(signal, value, next_value, step.terminated, step.truncated, discount, trace)
    return a, a + value


def flat(tree: Any) -> Any:
    """(T, N, …) → (T·N, …)"""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def loss(nets: Any, mini: Batch, cfg: Config) -> tuple[Float[Array, ""], Metrics]:
    """L(θ) of a minibatch; advantages are standardised within it."""
    objective, _, metrics = surrogate_objective(nets, mini, cfg)
    value_loss = squared_error(nets.critic, mini.seen, mini.target)
    value = -objective - cfg.entropy_weight * metrics["policy/entropy"] + cfg.value_weight * value_loss
    return value, metrics | {"critic/loss": value_loss}


def squared_error(critic: MLP, seen: Float[Array, "B D"], target: Float[Array, " B"]) -> Float[Array, ""]:
    return ((critic(seen)[..., 0] - target) ** 2).mean()


def surrogate_objective(
    nets: Any, mini: Any, cfg: Config
) -> tuple[Float[Array, ""], Float[Array, " B"], Metrics]:
    """E min(ρ A, clip(ρ, 1 ± ε) A), each log ρ, and what there is to say of the policy."""
    pi = Categorical(nets.actor(mini.seen))
    log_ratio = pi.log_prob(mini.action) - mini.log_prob
    objective = surrogate.clipped(log_ratio, surrogate.standardised(mini.advantage), cfg.clip).mean()
    outside = jnp.abs(jnp.exp(log_ratio) - 1.0) > cfg.clip
    return (
        objective,
        log_ratio,
        {
            "policy/objective": objective,
            "policy/kl": -log_ratio.mean(),
            "policy/entropy": pi.entropy().mean(),
            "policy/clipped": outside.astype(jnp.float32).mean(),
        },
    )


def sweep(carry: Any, batch: Any, step: Callable, key: PRNGKey, cfg: Config) -> tuple[Any, Metrics]:
    """The passes of one update."""
    max_kl = KL_MARGIN * cfg.target_kl
    return passes(carry, batch, step, key, epochs=cfg.epochs, batch_size=cfg.batch_size, max_kl=max_kl)


def numpy_logits(state: Any) -> Callable[[np.ndarray], np.ndarray]:
    stats = jax.tree.map(np.asarray, state.obs_stats)
    actor = state.nets.params.actor.in_numpy()
    return lambda obs: actor(normalise.normalise_in_numpy(stats, obs))


ALGORITHM = OnPolicyAlgorithm(
    name="ppo",
    title="PPO",
    config=Config,
    init=init,
    policy=policy,
    update=update,
    needs_demos=False,
    numpy_logits=numpy_logits,
)
