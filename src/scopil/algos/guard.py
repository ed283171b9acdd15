"""The critics behind a shield (nn/shield.py): expected future novelty of the policy, and a limit for it.

y        = c + γ_c (1 − terminated) E_{a'~π'} max_x Q̄_x(s', a')        π': the policy behind the shield
Q_x      minimise E_B ½ (Q_x(s, a) − y)²;   Q̄_x follows Q_x and is less noisy: the shield uses it
τ        the `shield_quantile` of max_x Q̄_x over demonstrated steps
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
    limit: Float[Array, ""]  # τ


def new_guard(key: PRNGKey, spaces: Spaces, hidden: tuple[int, ...]) -> Guard:
    sizes = operator(spaces.head).critic_sizes(spaces.obs_dim, hidden, spaces.head)
    k_1, k_2 = jax.random.split(key)
    critics = (network(sizes, k_1, spaces.image), network(sizes, k_2, spaces.image))
    return Guard(trainable(critics), critics, jnp.float32(UNLIMITED))


def shield(guard: Guard) -> Shield:
    return Shield(guard.targets, guard.limit)


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
    """The discrete actions that the shield allows."""
    return q <= jnp.maximum(guard.limit, q.min(0, keepdims=True))


def blocked(guard: Guard, learner: Any, obs: Float[Array, "N D"], key: PRNGKey) -> Float[Array, ""]:
    """The probability that the shield replaces the policy's action in states."""
    op = operator(learner.head)
    s = op.states(normalise(learner.obs_stats, obs))
    pi = op.distribution(learner.actor.params, s, op.noise(key, len(obs), 0, learner.head).now)
    if isinstance(pi, Categorical):
        q = jnp.maximum(*(critic.columns(s) for critic in guard.targets))
        return 1.0 - pi.expect(_kept(guard, q).astype(jnp.float32)).mean()
    q = jnp.maximum(*(op.q(critic, s, pi.action) for critic in guard.targets))
    return (q > guard.limit).mean(dtype=jnp.float32)


def calibrated(guard: Guard, demos: DemoTransitions, stats: RunningStats | None, head: Any, quantile: Any) -> Guard:
    """The guard with the limit that demonstrated steps give."""
    op = operator(head)
    s, action = op.states(normalise(stats, demos.obs)), head.to_learner(demos.action)
    q = jnp.maximum(*(op.q(critic, s, action) for critic in guard.targets))
    return guard._replace(limit=jnp.quantile(q, quantile))
