"""What can be learned from demonstrations alone, before the first step: a clone, and how well clones predict
demonstrations that they were not shown."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from scopil.core.gradient import Trainable, gradient_step, trainable
from scopil.core.heads import Head
from scopil.core.nets import MLP
from scopil.core.normalise import RunningStats, normalise
from scopil.core.soft import operator
from scopil.demos.dataset import FOLDS, DemoTransitions
from scopil.types import PRNGKey

CLONE_STEPS = 5_000
CV_STEPS, CV_EVERY = 3_000, 100
CV_PAIRS = 4_096  # at most so many pairs are scored: enough for the second digit
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


def clone(actor: Trainable, shown: Lesson, key: PRNGKey, steps: int = CLONE_STEPS) -> Trainable:
    """θ: minimise E_D [ −log π(a|s) ]. The optimiser starts anew afterwards: its pace was set by another loss."""
    everything = jnp.ones(len(shown.obs), bool)
    return trainable(_descend(actor, shown, everything, key, steps).params)


def own_distance(actor: MLP, shown: Lesson, hidden: tuple[int, ...], key: PRNGKey) -> Float[Array, ""]:
    """δ from the data: how close the demonstrator is to himself, in nats per action. A clone leaves too little of the
    actions it has seen, by learning them by heart, and too much of others, by knowing too few; we take the middle."""
    k_cv, k_pick = jax.random.split(key)
    scored = jax.random.permutation(k_pick, len(shown.obs))[:CV_PAIRS]
    return 0.5 * (nll(actor, shown, scored).mean() + held_out_nll(shown, hidden, k_cv))


def held_out_nll(shown: Lesson, hidden: tuple[int, ...], key: PRNGKey) -> Float[Array, ""]:
    """Nats per demonstrated action of clones that have not seen it: the mean over the folds, at the training length
    where that mean is smallest."""
    k_net, k_pick, k_run = jax.random.split(key, 3)
    sizes = (shown.obs.shape[1], *hidden, shown.head.num_outputs)
    fold = shown.group % FOLDS
    scored = jax.random.permutation(k_pick, len(shown.obs))[:CV_PAIRS]

    def stage(clones: Trainable, key: PRNGKey) -> tuple[Trainable, Array]:
        def one(k: Array, net: Trainable) -> tuple[Trainable, Array]:
            net = _descend(net, shown, fold != k, key, CV_EVERY)
            held = fold[scored] == k
            return net, jnp.sum(jnp.where(held, nll(net.params, shown, scored), 0.0)) / held.sum()

        return jax.vmap(one)(jnp.arange(FOLDS), clones)

    clones = jax.vmap(lambda k: trainable(MLP(sizes, k)))(jax.random.split(k_net, FOLDS))
    _, losses = jax.lax.scan(stage, clones, jax.random.split(k_run, CV_STEPS // CV_EVERY))
    return losses.mean(axis=1).min()


def _descend(net: Trainable, shown: Lesson, use: Array, key: PRNGKey, steps: int) -> Trainable:
    def step(net: Trainable, key: PRNGKey) -> tuple[Trainable, None]:
        index = jax.random.randint(key, (shown.batch_size,), 0, len(use))
        weight = use[index].astype(jnp.float32)

        def loss(actor: MLP):
            return jnp.sum(weight * nll(actor, shown, index)) / jnp.maximum(weight.sum(), 1.0), None

        return gradient_step(net, loss, RATE)[0], None

    return jax.lax.scan(step, net, jax.random.split(key, steps))[0]
