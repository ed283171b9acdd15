"""What can be learned from demonstrations alone, before the first step: a clone, and how close the demonstrator is to
himself."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from scopil.core.gradient import Trainable, gradient_step, trainable
from scopil.core.heads import Head
from scopil.core.nets import MLP
from scopil.core.normalise import RunningStats, normalise
from scopil.core.soft import operator
from scopil.demos.dataset import FOLDS, DemoTransitions
from scopil.types import PRNGKey

CLONE_STEPS = 20_000
FOLD_STEPS, FOLD_EVERY = (
    3_000,
    100,
)  # clones of three quarters of the demonstrations, and how often they are scored
SCORED = 4_096  # at most so many pairs: enough for the second digit
RATE = 1e-3


class Lesson(NamedTuple):
    """Demonstrated pairs as a network sees them."""

    obs: Float[Array, "M D"]
    action: Array
    group: Int[Array, " M"]
    head: Head
    resolution: Any
    batch_size: int


def lesson(demos: DemoTransitions, stats: RunningStats | None, head: Head, cfg: Any) -> Lesson:
    return Lesson(
        normalise(stats, demos.obs),
        head.to_learner(demos.action),
        demos.group,
        head,
        cfg.action_resolution,
        min(cfg.demo_batch_size, len(demos.obs)),
    )


def nll(actor: MLP, shown: Lesson, index: Int[Array, " B"]) -> Float[Array, " B"]:
    """−log π(a|s) of some of the pairs."""
    op = operator(shown.head)
    noise = op.noise(
        jax.random.key(0), 0, len(index), shown.head
    ).demo  # of the entropy, which nobody asks for
    pi = op.imitator(actor, op.states(shown.obs[index]), noise, shown.resolution)
    return -pi.log_prob(shown.action[index])


def clone(actor: Trainable, shown: Lesson, key: PRNGKey) -> Trainable:
    """θ: minimise E_D [ −log π(a|s) ]. The optimiser starts anew afterwards: its pace was set by another loss."""
    return trainable(_descend(actor, shown, None, key, CLONE_STEPS).params)


def soften(actor: Trainable, shown: Lesson, entropy: Any, key: PRNGKey) -> Trainable:
    """The same likeliest actions, with so many nats of entropy on the demonstrated states. Without this the temperature
    would first have to break a clone that is certain of everything."""
    k_pick, k_noise = jax.random.split(key)
    op = operator(shown.head)
    index = jax.random.permutation(k_pick, len(shown.obs))[:SCORED]
    s, noise = op.states(shown.obs[index]), op.noise(k_noise, len(index), 0, shown.head).now

    def too_little(t: Array) -> Array:
        return op.distribution(_wider(actor.params, t, shown.head), s, noise).entropy().mean() < entropy

    def halve(_: Any, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = 0.5 * (low + high)
        more = too_little(middle)
        return jnp.where(more, middle, low), jnp.where(more, high, middle)

    low, high = jax.lax.fori_loop(0, 25, halve, (jnp.float32(-6.0), jnp.float32(6.0)))
    return trainable(_wider(actor.params, 0.5 * (low + high), shown.head))


def _wider(actor: MLP, t: Array, head: Head) -> MLP:
    """Logits over eᵗ; of continuous actions log σ plus t."""
    w, b, shrink = actor.weights[-1], actor.biases[-1], jnp.exp(-t)
    last = (w, b.at[head.num_actions :].add(t)) if head.continuous else (w * shrink, b * shrink)
    return eqx.tree_at(lambda m: (m.weights[-1], m.biases[-1]), actor, last)


def own_distance(clone: MLP, shown: Lesson, hidden: tuple[int, ...], key: PRNGKey) -> Float[Array, ""]:
    """δ from the data: how close the demonstrator is to himself, in nats per action. A clone leaves open too little of
    what it has learned by heart; clones of other demonstrations leave too much, having seen too little. We take the
    middle."""
    k_folds, k_pick = jax.random.split(key)
    scored = jax.random.permutation(k_pick, len(shown.obs))[:SCORED]
    by_heart, held_out = nll(clone, shown, scored).mean(), held_out_nll(shown, scored, hidden, k_folds)
    return 0.5 * (by_heart + jnp.maximum(held_out, by_heart))


def held_out_nll(
    shown: Lesson, scored: Int[Array, " S"], hidden: tuple[int, ...], key: PRNGKey
) -> Float[Array, ""]:
    """Nats per action that clones leave open of demonstrations they have not seen: the mean over the folds, at the
    training length where that mean is smallest."""
    k_net, k_run = jax.random.split(key)
    sizes = (shown.obs.shape[1], *hidden, shown.head.num_outputs)
    fold = shown.group % FOLDS

    def one(k: Array, net: Trainable, key: PRNGKey) -> tuple[Trainable, Array]:
        net = _descend(net, shown, fold != k, key, FOLD_EVERY)
        held = fold[scored] == k
        left_open = jnp.where(held, nll(net.params, shown, scored), 0.0).sum() / jnp.maximum(held.sum(), 1)
        return net, left_open

    def stage(clones: Trainable, key: PRNGKey) -> tuple[Trainable, Array]:
        return jax.vmap(one, (0, 0, None))(jnp.arange(FOLDS), clones, key)

    clones = jax.vmap(lambda k: trainable(MLP(sizes, k)))(jax.random.split(k_net, FOLDS))
    _, losses = jax.lax.scan(stage, clones, jax.random.split(k_run, FOLD_STEPS // FOLD_EVERY))
    return losses.mean(axis=1).min()


def _descend(
    net: Trainable, shown: Lesson, use: Bool[Array, " M"] | None, key: PRNGKey, steps: int
) -> Trainable:
    """Adam on all pairs, or on those in use."""

    def step(net: Trainable, key: PRNGKey) -> tuple[Trainable, None]:
        index = jax.random.randint(key, (shown.batch_size,), 0, len(shown.obs))
        weight = jnp.ones(len(index)) if use is None else use[index].astype(jnp.float32)

        def loss(actor: MLP):
            return jnp.sum(weight * nll(actor, shown, index)) / jnp.maximum(weight.sum(), 1.0), None

        return gradient_step(net, loss, RATE)[0], None

    return jax.lax.scan(step, net, jax.random.split(key, steps))[0]
