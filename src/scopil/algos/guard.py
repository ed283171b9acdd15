"""The critics behind a shield (nn/shield.py): expected future novelty of the acting policy, and limits for it.

y        = c + γ_c (1 − terminated) E_{a'~π'} max_x Q̄_x(s', a')        π': the policy behind the shield
Q_x      minimise E_B ½ (Q_x(s, a) − y)²;   Q̄_x follows Q_x
τ        the q-quantile of max_x Q_x over demonstrated steps. While learning q is `shield_quantile`. The deployed
         policy has q = 1: it is held back only where Q is larger than at every demonstrated step.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from scopil.algos import sac
from scopil.algos.base import Metrics, Spaces
from scopil.data.dataset import DemoTransitions
from scopil.losses import soft
from scopil.losses.soft import operator
from scopil.nn.distributions import Categorical
from scopil.nn.gradient import Trainable, trainable
from scopil.nn.nets import Net, network
from scopil.nn.normalise import RunningStats, normalise
from scopil.nn.shield import NEVER, Shield
from scopil.types import PRNGKey

UNLIMITED = 1e6  # more than any sum of novelties


class Guard(NamedTuple):
    critics: Trainable  # (Q_1, Q_2)
    targets: tuple[Net, Net]  # (Q̄_1, Q̄_2)
    limit: Float[Array, ""]  # τ while learning
    most: Float[Array, ""]  # τ of the deployed policy


def new_guard(key: PRNGKey, spaces: Spaces, hidden: tuple[int, ...]) -> Guard:
    sizes = operator(spaces.head).critic_sizes(spaces.obs_dim, hidden, spaces.head)
    k_1, k_2 = jax.random.split(key)
    critics = (network(sizes, k_1, spaces.image), network(sizes, k_2, spaces.image))
    return Guard(trainable(critics), critics, jnp.float32(UNLIMITED), jnp.float32(UNLIMITED))


def acting(guard: Guard) -> Shield:
    """The shield while learning."""
    return Shield(guard.critics.params, guard.limit)


def deployed(guard: Guard) -> Shield:
    """The shield of the policy: the critics that follow the others are less noisy."""
    return Shield(guard.targets, guard.most)


def step(guard: Guard, actor: Net, x: sac.Inputs, novelty: Float[Array, " B"], cfg: Any) -> tuple[Guard, Metrics]:
    """One step of the critics. The actions of continuous policies in y are those before the shield: the shield of a
    batch would take as long as the update."""
    pi = x.op.distribution(actor, x.s_next, x.noise.after)
    if isinstance(pi, Categorical):
        q = jnp.maximum(*(critic.columns(x.s_next) for critic in guard.targets))
        after = Categorical(jnp.where(_kept(guard, q), pi.log_probs, NEVER), axis=0).expect(q)
    else:
        after = jnp.maximum(*(x.op.q(critic, x.s_next, pi.action) for critic in guard.targets))
    y = soft.td_target(novelty, x.terminated, after, cfg.shield_discount)
    critics, metrics = sac.fit_critics("shield", guard.critics, x, y, cfg)
    return guard._replace(critics=critics, targets=sac.track(guard.targets, critics, cfg)), metrics


def _kept(guard: Guard, q: Float[Array, "A B"]) -> Bool[Array, "A B"]:
    """The discrete actions that the shield allows while learning."""
    return q <= jnp.maximum(guard.limit, q.min(0, keepdims=True))


def blocked(guard: Guard, learner: Any, obs: Float[Array, "N D"], key: PRNGKey) -> Float[Array, ""]:
    """The probability that the shield replaces the policy's action in states."""
    op = operator(learner.head)
    s = op.states(normalise(learner.obs_stats, obs))
    pi = op.distribution(learner.actor.params, s, op.noise(key, len(obs), 0, learner.head).now)
    if isinstance(pi, Categorical):
        q = jnp.maximum(*(critic.columns(s) for critic in guard.critics.params))
        return 1.0 - pi.expect(_kept(guard, q).astype(jnp.float32)).mean()
    q = jnp.maximum(*(op.q(critic, s, pi.action) for critic in guard.critics.params))
    return (q > guard.limit).mean(dtype=jnp.float32)


def excess(guard: Guard, pi: Any, x: sac.Inputs) -> Float[Array, " B"]:
    """E_{a~π} [max_x Q_x(s, a) − τ]₊"""
    if isinstance(pi, Categorical):
        q = jnp.maximum(*(critic.columns(x.s) for critic in guard.critics.params))
        return pi.expect(jax.nn.relu(q - guard.limit))
    q = jnp.maximum(*(x.op.q(critic, x.s, pi.action) for critic in guard.critics.params))
    return jax.nn.relu(q - guard.limit)


def calibrated(guard: Guard, demos: DemoTransitions, stats: RunningStats | None, head: Any, quantile: Any) -> Guard:
    """The guard with the limits that demonstrated steps give."""
    op = operator(head)
    s, action = op.states(normalise(stats, demos.obs)), head.to_learner(demos.action)

    def q(critics: tuple[Net, Net]) -> Array:
        return jnp.maximum(*(op.q(critic, s, action) for critic in critics))

    return guard._replace(limit=jnp.quantile(q(guard.critics.params), quantile), most=q(guard.targets).max())
