"""GAIL-SAC: SAC on the task reward plus a discriminator's reward (Ho & Ermon 2016; off-policy: Kostrikov et al. 2019).

    D:   minimise E_D softplus(−D(s,a)) + E_B softplus(D(s,a)) + ρ E (‖∇D(x)‖ − 1)²
    r' = ω r + w log sigmoid D(s,a)                         the reward of SAC

The points x are random interpolations between demonstrated and replayed pairs. ω = 0 is pure imitation. The learner
does not use costs.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scopil.algos import sac
from scopil.algos.base import Algorithm, Curve, Data, Metrics, Spaces
from scopil.config import config, setting
from scopil.nn.gradient import Trainable, gradient_step, trainable
from scopil.nn.nets import Net, network
from scopil.nn.normalise import normalise
from scopil.policy import Policy
from scopil.types import PRNGKey


@config
class Config(sac.Config):
    """SAC's settings and the discriminator's."""

    demo_batch_size: int = setting(default=256, about="Demonstrated steps per gradient step.", low=1)
    imitation: float = setting(default=1.0, about="w: weight of the discriminator's reward.", low=0)
    task_reward: float = setting(default=1.0, about="ω: weight of the task reward; 0: pure imitation.", low=0)
    discriminator_lr: float = setting(default=3e-4, about="η of the discriminator (Adam).", low=0)
    gradient_penalty: float = setting(
        default=10.0, about="ρ: weight of the gradient penalty (Kostrikov et al.: 10).", low=0
    )


class State(NamedTuple):
    sac: sac.State
    discriminator: Trainable  # D


def init(key: PRNGKey, spaces: Spaces, cfg: Config) -> State:
    k_sac, k_discriminator = jax.random.split(key)
    sizes = (spaces.obs_dim + spaces.head.num_actions, *cfg.hidden, 1)
    return State(sac.init(k_sac, spaces, cfg), trainable(network(sizes, k_discriminator, spaces.image)))


def pairs(state: State, obs: Float[Array, "B D"], action: Array) -> Float[Array, "B X"]:
    """Rows of normalised observations and actions; actions are one-hot or in [−1, 1]."""
    head = state.sac.head
    shown = head.to_learner(action) if head.continuous else jax.nn.one_hot(action, head.num_actions, dtype=obs.dtype)
    return jnp.concatenate([normalise(state.sac.obs_stats, obs), shown], -1)


def discriminator_loss(
    net: Net, demo: Float[Array, "M X"], own: Float[Array, "B X"], between: Float[Array, "N X"], penalty: Any
) -> Float[Array, ""]:
    slope = jax.vmap(jax.grad(lambda x: net(x[None])[0, 0]))(between)
    norm = jnp.sqrt(jnp.sum(slope**2, axis=-1) + 1e-12)
    fit = jax.nn.softplus(-net(demo)[:, 0]).mean() + jax.nn.softplus(net(own)[:, 0]).mean()
    return fit + penalty * ((norm - 1.0) ** 2).mean()


def discriminator_step(
    discriminator: Trainable, shown: Float[Array, "M X"], own: Float[Array, "B X"], cfg: Any, key: PRNGKey
) -> tuple[Trainable, Float[Array, ""]]:
    """One step of D, and its loss before the step. The points of the penalty lie between rows of the two batches."""
    count = min(len(shown), len(own))
    share = jax.random.uniform(key, (count, 1))
    between = shown[:count] * share + own[:count] * (1.0 - share)
    discriminator, loss, _ = gradient_step(
        discriminator,
        lambda net: (discriminator_loss(net, shown, own, between, cfg.gradient_penalty), None),
        cfg.discriminator_lr,
    )
    return discriminator, loss


def update(state: State, data: Data, cfg: Config, key: PRNGKey) -> tuple[State, Metrics]:
    k_between, k_sac = jax.random.split(key)
    batch, demo = data.replay, data.demo_batch
    assert batch is not None
    assert demo is not None

    # D: minimise E_D softplus(−D) + E_B softplus(D) + ρ E (‖∇D‖ − 1)²
    shown, own = pairs(state, demo.obs, demo.action), pairs(state, batch.obs, batch.action)
    discriminator, loss = discriminator_step(state.discriminator, shown, own, cfg, k_between)

    # SAC on r' = ω r + w log sigmoid D(s,a)
    bonus = jax.nn.log_sigmoid(discriminator.params(own)[:, 0])
    reward = cfg.task_reward * batch.reward + cfg.imitation * bonus
    learner, metrics = sac.update(state.sac, Data(replay=batch._replace(reward=reward)), cfg, k_sac)
    return State(learner, discriminator), metrics | {"discriminator/loss": loss, "discriminator/reward": bonus.mean()}


def policy(state: State) -> Policy:
    return sac.policy(state.sac)


ALGORITHM = Algorithm(
    name="gail-sac",
    title="GAIL-SAC",
    summary="SAC on the task reward plus a discriminator's reward",
    config=Config,
    init=init,
    update=update,
    policy=policy,
    wants=frozenset({"replay", "demo_batch"}),
    curves=(
        Curve("discriminator/loss", "Loss of the discriminator", "D"),
        Curve("discriminator/reward", "Reward of the discriminator"),
        *sac.CURVES,
    ),
)
