"""Novelty of states relative to the demonstrations: a density ratio estimated by small classifiers.

K classifiers are trained on states with added Gaussian noise. Classifier f_k does not see fold k of the demonstrations:

    f_k  → log (ρ_B + ε ρ_A)/(ρ_E + ε ρ_A)   of the noisy states' densities; high where only the learner goes
    τ_k    the q-quantile of f_k over the demonstrations of fold k
    c(s) = mean_k clip(f_k(s) − τ_k, 0, 1)   the novelty

A held-out demonstrated state therefore has a cost with probability at most 1 − q. E is the set of demonstrated states,
B the learner's states in matched episodes (buffers/matched_states.py), and A the states of any episode. f is 0 where
neither E nor B has states. c is 0 beyond the point where the time limit ended the demonstrations.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from scopil.nn.gradient import Trainable, gradient_step, trainable
from scopil.nn.nets import affine, columns
from scopil.types import PRNGKey

Scalar = float | Float[Array, ""]


class Classifiers(NamedTuple):
    """K networks with the same inputs, two hidden layers and one output each. One matrix product computes all first
    layers."""

    w1: Float[Array, "KH D"]
    b1: Float[Array, " KH"]
    w2: Float[Array, "K H H"]
    b2: Float[Array, "K H"]
    w3: Float[Array, "K 1 H"]
    b3: Float[Array, "K 1"]


class DensityRatio(NamedTuple):
    """The classifiers, their thresholds, and the units of their inputs."""

    nets: Trainable  # Classifiers
    threshold: Float[Array, " K"]  # τ_k
    mean: Float[Array, " D"]  # of demonstrated states
    scale: Float[Array, " D"]  # 1 / standard deviation of demonstrated states; 0 for components that are not used
    blur: Float[Array, " D"]  # standard deviation of the noise, in standard deviations of the demonstrations
    way: Float[Array, " D"]  # ±1 for components that drift in one direction until the time limit; else 0
    cut: Float[Array, " D"]  # largest known value along `way`, in standard deviations
    demo_cost: Float[Array, ""]  # E_D[c]; each state is scored by the classifier that did not see its fold
    loss: Float[Array, ""]  # of the newest step


def new_density_ratio(key: PRNGKey, obs_dim: int, width: int, folds: int) -> DensityRatio:
    def uniform(key: PRNGKey, shape: tuple[int, ...], fan_in: int) -> Array:
        return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0) * fan_in**-0.5

    k = jax.random.split(key, 6)
    nets = Classifiers(
        uniform(k[0], (folds * width, obs_dim), obs_dim),
        uniform(k[1], (folds * width,), obs_dim),
        uniform(k[2], (folds, width, width), width),
        uniform(k[3], (folds, width), width),
        uniform(k[4], (folds, 1, width), width),
        uniform(k[5], (folds, 1), width),
    )
    blank, zero = jnp.zeros(obs_dim, jnp.float32), jnp.float32(0.0)
    return DensityRatio(
        trainable(nets),
        jnp.zeros(folds, jnp.float32),
        mean=blank,
        scale=blank,
        blur=blank,
        way=blank,
        cut=blank,
        demo_cost=zero,
        loss=zero,
    )


def logits(nets: Classifiers, x: Float[Array, "D B"]) -> Float[Array, "K B"]:
    """f_k; samples are columns."""
    folds, width = nets.b2.shape
    h = jax.nn.relu(affine(nets.w1, nets.b1, x))
    outputs = [
        affine(nets.w3[k], nets.b3[k], jax.nn.relu(affine(nets.w2[k], nets.b2[k], h[k * width : (k + 1) * width])))
        for k in range(folds)
    ]
    return jnp.concatenate(outputs)


def features(ratio: DensityRatio, obs: Float[Array, "B D"]) -> Float[Array, "D B"]:
    """States in units of the demonstrations' standard deviations, as columns. Unused components are 0."""
    return columns((obs - ratio.mean[None]) * ratio.scale[None])


def excess(f: Float[Array, "K B"], threshold: Float[Array, " K"]) -> Float[Array, "K B"]:
    """clip(f_k − τ_k, 0, 1)"""
    return jnp.clip(f - threshold[:, None], 0.0, 1.0)


def known(ratio: DensityRatio, x: Float[Array, "D B"]) -> Bool[Array, " B"]:
    """Whether a state is not beyond the point where the time limit ended the demonstrations."""
    return ~(ratio.way[:, None] * x > ratio.cut[:, None]).any(0)


def cost(ratio: DensityRatio, obs: Float[Array, "B D"]) -> Float[Array, " B"]:
    """c(s)"""
    x = features(ratio, obs)
    c = excess(logits(ratio.nets.params, x), ratio.threshold).mean(0)
    return jnp.where(known(ratio, x), c, 0.0)


class Monitor(NamedTuple):
    """The data that `familiarity` needs. It does not need the learner."""

    ratio: DensityRatio
    shown: Float[Array, "K M"]  # f_k of the demonstrated states of fold k, ascending; −∞ for the others
    known: Int[Array, " K"]  # the number of states of fold k


def monitor(ratio: DensityRatio, demo_obs: Float[Array, "M D"], fold: Int[Array, " M"]) -> Monitor:
    held_out = jnp.arange(len(ratio.threshold))[:, None] == fold[None]
    f = logits(ratio.nets.params, features(ratio, demo_obs))
    return Monitor(ratio, jnp.sort(jnp.where(held_out, f, -jnp.inf), axis=1), held_out.sum(1))


def familiarity(monitor: Monitor, obs: Float[Array, "B D"]) -> Float[Array, " B"]:
    """The share of held-out demonstrated states that are at least as novel as this one, in [0, 1]: per classifier over
    its fold, then the mean over classifiers."""
    f = logits(monitor.ratio.nets.params, features(monitor.ratio, obs))
    rows = monitor.shown.shape[1]
    above = rows - jax.vmap(jnp.searchsorted)(monitor.shown, f)
    some = monitor.known > 0
    shares = jnp.where(some[:, None], above / jnp.maximum(monitor.known, 1)[:, None], 0.0)
    return shares.sum(0) / jnp.maximum(some.sum(), 1)


def ratio_step(
    ratio: DensityRatio,
    demo_obs: Float[Array, "M D"],
    fold: Int[Array, " M"],
    own_obs: Float[Array, "M D"],
    any_obs: Float[Array, "A D"],
    cfg: Any,
    key: PRNGKey,
) -> DensityRatio:
    """One gradient step of every classifier, then one step of every threshold.

    Args:
        demo_obs: demonstrated states (E), with their fold.
        own_obs: states of the learner in matched episodes (B).
        any_obs: states of any episode (A).
        cfg: `quantile`, `classifier_lr`, `background`, `threshold_lr`.
    """
    n = len(demo_obs)
    held_out = jnp.arange(len(ratio.threshold))[:, None] == fold[None]
    sharp = features(ratio, jnp.concatenate([demo_obs, own_obs, any_obs]))
    blurred = sharp + ratio.blur[:, None] * jax.random.normal(key, sharp.shape)
    informed = known(ratio, sharp[:, :n])[None]

    def loss(nets: Classifiers):
        """E_E softplus(f) + E_B softplus(−f) + ε E_A [softplus(f) + softplus(−f)]"""
        f = logits(nets, blurred)
        demo, own, anywhere = f[:, :n], f[:, n : 2 * n], f[:, 2 * n :]
        each = _mean(jax.nn.softplus(demo), ~held_out & informed) + jax.nn.softplus(-own).mean(1)
        each = each + cfg.background * (jax.nn.softplus(anywhere) + jax.nn.softplus(-anywhere)).mean(1)
        return each.sum(), each.mean()

    nets, _, value = gradient_step(ratio.nets, loss, cfg.classifier_lr)
    f = logits(nets.params, sharp[:, :n])
    threshold = pinball_step(ratio.threshold, f, held_out & informed, cfg.quantile, cfg.threshold_lr)
    demo_cost = _mean(excess(f, threshold), held_out & informed).mean()
    return ratio._replace(nets=nets, threshold=threshold, demo_cost=demo_cost, loss=value)


def pinball_step(
    threshold: Float[Array, " K"], f: Float[Array, "K M"], held_out: Bool[Array, "K M"], quantile: Scalar, rate: Scalar
) -> Float[Array, " K"]:
    """τ_k ← τ_k + η (share of held-out f_k above τ_k − (1 − q)); the fixed point is the q-quantile."""
    above = _mean((f > threshold[:, None]).astype(f.dtype), held_out)
    moved = threshold + rate * (above - (1.0 - quantile))
    return jnp.where(held_out.any(1), moved, threshold)


def _mean(values: Float[Array, "K M"], where: Bool[Array, "K M"]) -> Float[Array, " K"]:
    return jnp.sum(jnp.where(where, values, 0.0), axis=1) / jnp.maximum(where.sum(1), 1)
