"""Proximal policy optimisation (Schulman et al. 2017). One update on a rollout of T × N steps:

δ_t  = r_t + γ (1 − terminated) V(s'_t) − V(s_t),   A_t = δ_t + γ λ A_{t+1},   y_t = A_t + V(s_t)
L(θ) = −E min(ρ A, clip(ρ, 1 ± ε) A) − c_H E H(π(·|s)) + c_V E (V(s) − y)²,    ρ = π(a|s) / π_old(a|s)

The update makes at most `epochs` passes over minibatches. It stops after a pass whose mean log π_old(a|s) − log π(a|s)
exceeds kl_margin × target_kl. Details follow ICRL's published code with three exceptions: a truncated step bootstraps
from V(s'), observation statistics change only between rollouts, and continuous actions are squashed instead of clipped
(docs/algorithms/ppo.md).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from scopil.algos.base import Algorithm, Curve, Data, Metrics, Spaces, new_obs_stats
from scopil.config import config, setting
from scopil.losses import policy_gradient
from scopil.nn import normalise
from scopil.nn.distributions import Sampled, SquashedGaussian
from scopil.nn.gradient import Trainable, gradient_step, trainable
from scopil.nn.heads import Head
from scopil.nn.nets import GaussianNet, Net, Network, network, orthogonal_mlp
from scopil.policy import Policy
from scopil.types import PRNGKey, Transition

Scalar = float | Float[Array, ""]
Step = Callable[[Any, Any, PRNGKey], tuple[Any, Metrics]]  # (carry, minibatch, key) → carry, metrics with "policy/kl"


@config
class Config:
    """The defaults come from ICRL's published code and the SCOPIL paper's table."""

    discount: float = setting(default=0.99, about="γ per environment step.", low=0, high=1)
    gae_lambda: float = setting(default=0.95, about="λ of the advantage estimator.", low=0, high=1)
    learning_rate: float = setting(default=3e-4, about="η of all networks (one Adam).", low=0)
    adam_eps: float = setting(default=1e-5, about="ε of Adam, as in ICRL's published code.", low=0)
    clip: float = setting(default=0.2, about="ε of the clipped surrogate.", low=0)
    target_kl: float = setting(
        default=0.02, about="No further pass after a mean KL of kl_margin × target_kl, in nats; inf: all passes.", low=0
    )
    kl_margin: float = setting(default=1.5, about="Factor of target_kl, as in ICRL's published code.", low=0)
    entropy_weight: float = setting(default=0.0, about="c_H.", low=0)
    value_weight: float = setting(default=0.5, about="c_V, of every critic.", low=0)
    max_grad_norm: float = setting(
        default=0.5, about="Largest norm of the gradient of all parameters; longer ones are scaled down.", low=0
    )
    hidden: tuple[int, ...] = setting(
        default=(64, 64), about="Widths of the hidden layers of policy and critics (tanh, separate).", low=1
    )
    batch_size: int = setting(default=64, about="Steps per minibatch; divides num_envs × rollout_steps.", low=1)
    num_envs: int = setting(default=5, about="N, environments stepped together.", low=1)
    rollout_steps: int = setting(default=2048, about="T, steps of each environment between two updates.", low=1)
    epochs: int = setting(default=10, about="Passes over a rollout, at most.", low=1)
    normalise_obs: bool = setting(
        default=True, about="Whether networks see observations with zero mean and unit variance, by running statistics."
    )
    normalise_reward: bool = setting(
        default=True, about="Whether rewards are divided by the deviation of their running discounted return."
    )

    def problem(self) -> str | None:
        if self.num_envs * self.rollout_steps % self.batch_size:
            return (
                f"num_envs {self.num_envs} × rollout_steps {self.rollout_steps} is not a multiple of batch_size "
                f"{self.batch_size}; change one."
            )
        return None


class Nets(NamedTuple):
    actor: Network
    critic: Net


class State(NamedTuple):
    nets: Trainable  # Nets
    obs_stats: normalise.RunningStats | None
    head: Head
    reward_scale: normalise.ReturnScale | None


class Rollout(NamedTuple):
    """A rollout: its steps, and their normalised observations and actions. Every leaf has shape (T, N, …)."""

    step: Transition
    obs: Float[Array, "T N D"]
    next_obs: Float[Array, "T N D"]
    action: Array


class Batch(NamedTuple):
    """Steps of a rollout with their advantages and value targets."""

    obs: Float[Array, "B D"]
    action: Array
    log_prob: Float[Array, " B"]  # log π_old(a|s)
    advantage: Float[Array, " B"]
    target: Float[Array, " B"]


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    k_actor, k_critic = jax.random.split(key)
    nets = Nets(actor_net(k_actor, spaces, cfg), critic_net(k_critic, spaces, cfg))
    return State(trainable(nets, optimiser(cfg)), *statistics(spaces, cfg))


def policy(state: Any) -> Policy:
    return Policy(state.obs_stats, state.nets.params.actor, state.head)


def update(state: State, data: Data, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
    rollout = preprocess(state, data)
    batch, reward_scale = prepare(state, rollout, cfg)

    def step(nets: Trainable, mini: Batch, key: PRNGKey) -> tuple[Trainable, Metrics]:
        # θ: minimise L(θ)
        nets, _, metrics = gradient_step(
            nets, lambda p: loss(p, state.head, mini, cfg, key), cfg.learning_rate, optimiser(cfg)
        )
        return nets, metrics

    nets, metrics = sweep(state.nets, batch, step, key, cfg)
    return State(nets, update_obs_stats(state.obs_stats, rollout.step), state.head, reward_scale), metrics


# --- parts shared with PPO+DGD and PPO-Lagrangian ------------------------------------------------------------------


def actor_net(key: PRNGKey, spaces: Spaces, cfg: Config) -> Network:
    """Logits of discrete actions, or means of continuous actions with a learned σ that does not depend on the state."""
    sizes = (spaces.obs_dim, *cfg.hidden, spaces.head.num_actions)
    net = network(sizes, key, spaces.image, partial(orthogonal_mlp, head_gain=0.01))
    return GaussianNet(net, jnp.zeros(spaces.head.num_actions)) if spaces.head.continuous else net


def critic_net(key: PRNGKey, spaces: Spaces, cfg: Config) -> Net:
    return network((spaces.obs_dim, *cfg.hidden, 1), key, spaces.image, partial(orthogonal_mlp, head_gain=1.0))


def optimiser(cfg: Config) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(cfg.max_grad_norm), optax.scale_by_adam(eps=cfg.adam_eps))


def statistics(spaces: Spaces, cfg: Config) -> tuple[normalise.RunningStats | None, Head, normalise.ReturnScale | None]:
    return (
        new_obs_stats(spaces, cfg),
        spaces.head,
        normalise.new_scale(cfg.num_envs) if cfg.normalise_reward else None,
    )


def preprocess(state: Any, data: Data) -> Rollout:
    """The rollout, normalised with the statistics that the policy used to collect it."""
    step = data.rollout
    assert step is not None
    obs, next_obs = (normalise.normalise(state.obs_stats, x) for x in (step.obs, step.next_obs))
    return Rollout(step, obs, next_obs, state.head.to_learner(step.action))


def update_obs_stats(stats: normalise.RunningStats | None, step: Transition) -> normalise.RunningStats | None:
    """The statistics, updated with the observations of a rollout."""
    return normalise.update_stats(stats, step.obs.reshape(-1, step.obs.shape[-1]))


def prepare(state: Any, rollout: Rollout, cfg: Config) -> tuple[Batch, normalise.ReturnScale | None]:
    """Advantages, value targets and log π_old of a flattened rollout, and the new scale of rewards."""
    step, nets = rollout.step, state.nets.params
    ended = step.terminated | step.truncated
    scale, reward = normalise.scale_signal(state.reward_scale, step.reward, ended, cfg.discount)
    advantage, target = advantages(nets.critic, rollout, reward, cfg.discount, cfg.gae_lambda)
    log_prob = state.head(nets.actor(rollout.obs)).log_prob(rollout.action)
    return flat(Batch(rollout.obs, rollout.action, log_prob, advantage, target)), scale


def advantages(
    critic: Net, rollout: Rollout, signal: Float[Array, "T N"], discount: Scalar, trace: Scalar
) -> tuple[Float[Array, "T N"], Float[Array, "T N"]]:
    """A_t and y_t = A_t + V(s_t), where `signal` is rewards or costs."""
    value, next_value = critic(rollout.obs)[..., 0], critic(rollout.next_obs)[..., 0]
    step = rollout.step
    a = policy_gradient.gae(signal, value, next_value, step.terminated, step.truncated, discount, trace)
    return a, a + value


def flat(tree: Any) -> Any:
    """(T, N, …) → (T·N, …)"""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def loss(nets: Any, head: Head, mini: Batch, cfg: Config, key: PRNGKey) -> tuple[Float[Array, ""], Metrics]:
    """L(θ) of a minibatch. Advantages are standardised within the minibatch."""
    objective, _, metrics = surrogate_objective(nets, head, mini, cfg, key)
    value_loss = squared_error(nets.critic, mini.obs, mini.target)
    value = -objective - cfg.entropy_weight * metrics["policy/entropy"] + cfg.value_weight * value_loss
    return value, metrics | {"critic/loss": value_loss}


def squared_error(critic: Net, obs: Float[Array, "B D"], target: Float[Array, " B"]) -> Float[Array, ""]:
    return ((critic(obs)[..., 0] - target) ** 2).mean()


def surrogate_objective(
    nets: Any, head: Head, mini: Any, cfg: Config, key: PRNGKey
) -> tuple[Float[Array, ""], Float[Array, " B"], Metrics]:
    """E min(ρ A, clip(ρ, 1 ± ε) A), log ρ of each step, and metrics of the policy."""
    pi = head(nets.actor(mini.obs))
    log_ratio = pi.log_prob(mini.action) - mini.log_prob
    objective = policy_gradient.clipped(log_ratio, policy_gradient.standardised(mini.advantage), cfg.clip).mean()
    outside = jnp.abs(jnp.exp(log_ratio) - 1.0) > cfg.clip
    return (
        objective,
        log_ratio,
        {
            "policy/objective": objective,
            "policy/kl": -log_ratio.mean(),
            "policy/entropy": entropy(pi, key).mean(),
            "policy/clipped": outside.astype(jnp.float32).mean(),
        },
    )


def entropy(pi: Any, key: PRNGKey) -> Float[Array, " B"]:
    """Exact entropy for discrete actions; an estimate from one sampled action for continuous actions."""
    if isinstance(pi, SquashedGaussian):
        pi = Sampled(pi, jax.random.normal(key, pi.mean.shape))
    return pi.entropy()


def sweep(carry: Any, batch: Any, step: Callable, key: PRNGKey, cfg: Config) -> tuple[Any, Metrics]:
    """Run the passes of one update."""
    max_kl = cfg.kl_margin * cfg.target_kl
    return passes(carry, batch, step, key, epochs=cfg.epochs, batch_size=cfg.batch_size, max_kl=max_kl)


def passes(
    carry: Any, data: Any, step: Step, key: PRNGKey, *, epochs: int, batch_size: int, max_kl: float | Float[Array, ""]
) -> tuple[Any, Metrics]:
    """Apply `step` to shuffled minibatches of `data` in at most `epochs` passes. Stop after a pass whose mean
    `policy/kl` exceeds `max_kl`.

    The metrics are means over the last pass. `policy/epochs` is the number of passes.
    """
    rows = jax.tree.leaves(data)[0].shape[0]
    count = rows // batch_size
    assert count * batch_size == rows, (rows, batch_size)

    def one_pass(carry: Any, epoch: Array) -> tuple[Any, Metrics]:
        k_order, k_steps = jax.random.split(jax.random.fold_in(key, epoch))
        order = jax.random.permutation(k_order, rows)
        shuffled = jax.tree.map(lambda x: x[order].reshape(count, batch_size, *x.shape[1:]), data)
        keys = jax.random.split(k_steps, count)
        carry, metrics = jax.lax.scan(lambda c, x: step(c, *x), carry, (shuffled, keys))
        return carry, jax.tree.map(jnp.mean, metrics)

    def wanted(loop):
        _, epoch, metrics = loop
        return (epoch < epochs) & (metrics["policy/kl"] <= max_kl)

    def body(loop):
        carry, epoch, _ = loop
        carry, metrics = one_pass(carry, epoch)
        return carry, epoch + 1, metrics

    shapes = jax.eval_shape(one_pass, carry, jnp.int32(0))[1]
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    carry, made, metrics = jax.lax.while_loop(wanted, body, (carry, jnp.int32(0), zeros))
    return carry, metrics | {"policy/epochs": made.astype(jnp.float32)}


CURVES = (
    Curve("policy/entropy", "Entropy of the policy (nats)", "H"),
    Curve("policy/kl", "KL to the policy of the rollout (nats)"),
    Curve("critic/loss", "Loss of the critic"),
)
ALGORITHM = Algorithm(
    name="ppo",
    title="PPO",
    summary="proximal policy optimisation: reward only, on-policy",
    config=Config,
    init=init,
    update=update,
    policy=policy,
    wants=frozenset({"rollout"}),
    curves=CURVES,
)
