"""Behaviour cloning before the first environment step. It gives an initial actor, and δ from the demonstrations."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from scopil.config import config, setting
from scopil.data.dataset import DemoTransitions
from scopil.losses.soft import operator
from scopil.nn.gradient import Trainable, gradient_step, trainable
from scopil.nn.heads import Head
from scopil.nn.nets import Net, top
from scopil.nn.normalise import RunningStats, normalise
from scopil.types import PRNGKey


@config
class Config:
    """Settings of the clone."""

    clone_steps: int = setting(
        default=10_000, about="Gradient steps of cloning; δ is read after them, and as many follow.", low=1
    )
    clone_lr: float = setting(default=1e-3, about="η of cloning (Adam).", low=0)
    clone_scored: int = setting(
        default=4_096, about="Demonstrated pairs, at most, that δ and the clone's entropy are averaged over.", low=1
    )


class Pairs(NamedTuple):
    """Demonstrated (observation, action) pairs in the units of the networks."""

    obs: Float[Array, "M D"]
    action: Array
    head: Head
    resolution: Any
    batch_size: int


def pairs(demos: DemoTransitions, stats: RunningStats | None, head: Head, cfg: Any) -> Pairs:
    return Pairs(
        normalise(stats, demos.obs),
        head.to_learner(demos.action),
        head,
        cfg.action_resolution,
        min(cfg.demo_batch_size, len(demos.obs)),
    )


def nll(actor: Net, shown: Pairs, index: Int[Array, " B"]) -> Float[Array, " B"]:
    """−log π(a|s) of the pairs at `index`."""
    op = operator(shown.head)
    noise = op.noise(jax.random.key(0), 0, len(index), shown.head).demo  # noise for the entropy, which is not used
    pi = op.imitator(actor, op.states(shown.obs[index]), noise, shown.resolution)
    return -pi.log_prob(shown.action[index])


class Clone(NamedTuple):
    actor: Trainable
    nll: Float[Array, ""]  # E_D [−log π(a|s)] after the first half of cloning, in nats


def clone(actor: Trainable, shown: Pairs, cfg: Any, key: PRNGKey) -> Clone:
    """θ: minimise E_D [ −log π(a|s) ] in two stages of `clone_steps`.

    A network fits regular behaviour first and memorises noise later. The negative log-likelihood after the first stage
    therefore measures how inconsistent the demonstrator is. It is used as δ.
    """
    keys = jax.random.split(key, 3)
    scored = jax.random.permutation(keys[2], len(shown.obs))[: cfg.clone_scored]

    def step(net: Trainable, key: PRNGKey) -> tuple[Trainable, None]:
        index = jax.random.randint(key, (shown.batch_size,), 0, len(shown.obs))
        return gradient_step(net, lambda actor: (nll(actor, shown, index).mean(), None), cfg.clone_lr)[0], None

    def stage(net: Trainable, key: PRNGKey) -> tuple[Trainable, Net]:
        net, _ = jax.lax.scan(step, net, jax.random.split(key, cfg.clone_steps))
        return net, net.params

    # With a scan over the stages, the stage is compiled only once.
    actor, after = jax.lax.scan(stage, actor, keys[:2])
    first = jax.tree.map(lambda leaf: leaf[0], after)
    # The optimiser restarts, because its statistics belong to another loss.
    return Clone(trainable(actor.params), nll(first, shown, scored).mean())


class Soft(NamedTuple):
    """A clone with a given entropy on the demonstrated states."""

    actor: Trainable
    entropy: Float[Array, ""]  # the entropy that was reached, in nats


def soften(actor: Trainable, shown: Pairs, entropy: Any, cfg: Any, key: PRNGKey) -> Soft:
    """Change the clone's entropy on the demonstrated states to `entropy` nats, with the same greedy actions. A clone is
    nearly deterministic. Without this change, the temperature would destroy it before the critics are trained.

    A continuous clone with less entropy than `entropy` is not changed: its demonstrator is that consistent, or acts at
    the bounds of the box.
    """
    k_pick, k_noise = jax.random.split(key)
    op = operator(shown.head)
    index = jax.random.permutation(k_pick, len(shown.obs))[: cfg.clone_scored]
    s, noise = op.states(shown.obs[index]), op.noise(k_noise, len(index), 0, shown.head).now

    def entropy_of(net: Net) -> Array:
        return op.distribution(net, s, noise).entropy().mean()

    def halve(_: Any, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = 0.5 * (low + high)
        more = entropy_of(_wider(actor.params, middle, shown.head)) < entropy
        return jnp.where(more, middle, low), jnp.where(more, high, middle)

    low, high = jax.lax.fori_loop(0, 25, halve, (jnp.float32(-6.0), jnp.float32(6.0)))
    soft = _wider(actor.params, 0.5 * (low + high), shown.head)
    if shown.head.continuous:
        now = entropy_of(actor.params)
        soft = jax.tree.map(lambda a, b: jnp.where(now < entropy, a, b), actor.params, soft)
        entropy = jnp.minimum(now, entropy)
    return Soft(trainable(soft), jnp.asarray(entropy, jnp.float32))


def _wider(actor: Net, t: Array, head: Head) -> Net:
    """The actor with logits divided by eᵗ (discrete actions), or with t added to log σ (continuous actions)."""
    w, b, shrink = top(actor).weights[-1], top(actor).biases[-1], jnp.exp(-t)
    last = (w, b.at[head.num_actions :].add(t)) if head.continuous else (w * shrink, b * shrink)
    return eqx.tree_at(lambda m: (top(m).weights[-1], top(m).biases[-1]), actor, last)


def deliberate(steps: DemoTransitions) -> np.ndarray:
    """Mask (M,) of the demonstrated steps that are not hesitation.

    A step is hesitation if the observation does not change and a different action follows in the same observation. A
    policy that imitates hesitation waits forever. The mask keeps waiting with the action that finally changes the
    observation. It also keeps all continuous actions.
    """
    if steps.action.ndim > 1:
        return np.ones(len(steps.obs), bool)
    unchanged = (steps.obs == steps.next_obs).reshape(len(steps.obs), -1).all(1)
    goes_on = unchanged & (np.append(steps.episode[1:], -1) == steps.episode)
    hesitates, moved_by = np.zeros(len(goes_on), bool), None  # the action that finally changed the observation
    for i in reversed(range(len(goes_on))):
        if not goes_on[i]:  # no action changed the observation if the episode ended first
            moved_by = None if unchanged[i] else steps.action[i]
        hesitates[i] = goes_on[i] and moved_by is not None and steps.action[i] != moved_by
    return ~hesitates
