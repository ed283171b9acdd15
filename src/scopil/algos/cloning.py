"""What can be learned from demonstrations alone, before the first step: a clone, and how close the demonstrator is to
himself."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from scopil.data.dataset import DemoTransitions
from scopil.losses.soft import operator
from scopil.nn.gradient import Trainable, gradient_step, trainable
from scopil.nn.heads import Head
from scopil.nn.nets import Net, top
from scopil.nn.normalise import RunningStats, normalise
from scopil.types import PRNGKey

STAGE_STEPS = 10_000  # of gradient; twice
SCORED = 4_096  # at most so many pairs: enough for the second digit
RATE = 1e-3


class Lesson(NamedTuple):
    """Demonstrated pairs as a network sees them."""

    obs: Float[Array, "M D"]
    action: Array
    head: Head
    resolution: Any
    batch_size: int


def lesson(demos: DemoTransitions, stats: RunningStats | None, head: Head, cfg: Any) -> Lesson:
    return Lesson(
        normalise(stats, demos.obs),
        head.to_learner(demos.action),
        head,
        cfg.action_resolution,
        min(cfg.demo_batch_size, len(demos.obs)),
    )


def nll(actor: Net, shown: Lesson, index: Int[Array, " B"]) -> Float[Array, " B"]:
    """−log π(a|s) of some of the pairs."""
    op = operator(shown.head)
    noise = op.noise(jax.random.key(0), 0, len(index), shown.head).demo  # of the entropy, which nobody asks for
    pi = op.imitator(actor, op.states(shown.obs[index]), noise, shown.resolution)
    return -pi.log_prob(shown.action[index])


class Clone(NamedTuple):
    actor: Trainable
    left_open: Float[Array, ""]  # nats per demonstrated action, when the regular part was learned


def clone(actor: Trainable, shown: Lesson, key: PRNGKey) -> Clone:
    """θ: minimise E_D [ −log π(a|s) ].

    What repeats is learned first, and noise is learned by heart much later. So what a clone leaves open after the
    first of two stages tells how close the demonstrator is to himself: it is δ from the data.
    """
    keys = jax.random.split(key, 3)
    scored = jax.random.permutation(keys[2], len(shown.obs))[:SCORED]

    def step(net: Trainable, key: PRNGKey) -> tuple[Trainable, None]:
        index = jax.random.randint(key, (shown.batch_size,), 0, len(shown.obs))
        return gradient_step(net, lambda actor: (nll(actor, shown, index).mean(), None), RATE)[0], None

    def stage(net: Trainable, key: PRNGKey) -> tuple[Trainable, Net]:
        net, _ = jax.lax.scan(step, net, jax.random.split(key, STAGE_STEPS))
        return net, net.params

    # A loop of two stages, so that a stage is compiled once.
    actor, after = jax.lax.scan(stage, actor, keys[:2])
    regular = jax.tree.map(lambda leaf: leaf[0], after)
    left_open = nll(regular, shown, scored).mean()
    return Clone(trainable(actor.params), left_open)  # Adam anew: its pace was set by another loss


class Soft(NamedTuple):
    """A clone that is as uncertain as the policy shall be."""

    actor: Trainable
    entropy: Float[Array, ""]  # that can be asked of a policy near the demonstrations


def soften(actor: Trainable, shown: Lesson, entropy: Any, key: PRNGKey) -> Soft:
    """The same likeliest actions, with so many nats of entropy on the demonstrated states. Without this the temperature
    would first have to break a clone that is certain of everything.

    A continuous clone that is narrower than asked stays as it is: the demonstrator is that certain, or acts at the
    bounds, where no width has much entropy. More could only be had far from the demonstrations.
    """
    k_pick, k_noise = jax.random.split(key)
    op = operator(shown.head)
    index = jax.random.permutation(k_pick, len(shown.obs))[:SCORED]
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
    """Logits over eᵗ; of continuous actions log σ plus t."""
    w, b, shrink = top(actor).weights[-1], top(actor).biases[-1], jnp.exp(-t)
    last = (w, b.at[head.num_actions :].add(t)) if head.continuous else (w * shrink, b * shrink)
    return eqx.tree_at(lambda m: (top(m).weights[-1], top(m).biases[-1]), actor, last)
