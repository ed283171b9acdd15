"""Where is the demonstrator found? Small classifiers tell demonstrated states from a learner's own.

Each of K classifiers f_k is trained without one quarter of the demonstrations, on states blurred by Gaussian noise:

    f_k  → log (ρ_B + ε ρ_A)/(ρ_E + ε ρ_A)   of the blurred densities; high where only the learner goes
    τ_k    the q-quantile of f_k over the demonstrations it has not seen
    c(s) = mean_k clip(f_k(s) − τ_k, 0, 1)

so that a demonstrated state that was not shown costs something in at most a share 1 − q of cases, by construction. B
are states that can be compared with the demonstrations (buffers/matched_states), A states from anywhere: where neither
the demonstrations nor B has been, nothing is said, and f is 0. Nor is anything said of states further along a way than
where demonstrations were cut off by the clock: c is 0 there.
docs/algorithms/scopil_rho.md derives it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from scopil.nn.gradient import Trainable, gradient_step, trainable
from scopil.nn.nets import affine, columns
from scopil.types import PRNGKey

Scalar = float | Float[Array, ""]


class Classifiers(NamedTuple):
    """K networks of two hidden layers with one output each, on the same inputs. The first layers are stacked, so that
    one product serves all."""

    w1: Float[Array, "KH D"]
    b1: Float[Array, " KH"]
    w2: Float[Array, "K H H"]
    b2: Float[Array, "K H"]
    w3: Float[Array, "K 1 H"]
    b3: Float[Array, "K 1"]


class Contrast(NamedTuple):
    """All that the cost is made of."""

    nets: Trainable  # Classifiers
    threshold: Float[Array, " K"]  # τ_k
    mean: Float[Array, " D"]  # of demonstrated states
    scale: Float[Array, " D"]  # one over their deviation; 0 for components that are left out
    blur: Float[Array, " D"]  # deviation of the noise, in the demonstrations' deviations
    way: Float[Array, " D"]  # ±1 for components that lead one way until the clock cuts demonstrations off; else 0
    cut: Float[Array, " D"]  # how far along that way, in deviations
    demo_cost: Float[Array, ""]  # E_D[c], each demonstrated state by the classifier that has not seen it
    loss: Float[Array, ""]  # of the last step


def new_contrast(key: PRNGKey, obs_dim: int, width: int, folds: int) -> Contrast:
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
    blank, nothing = jnp.zeros(obs_dim, jnp.float32), jnp.float32(0.0)
    return Contrast(
        trainable(nets),
        jnp.zeros(folds, jnp.float32),
        mean=blank,
        scale=blank,
        blur=blank,
        way=blank,
        cut=blank,
        demo_cost=nothing,
        loss=nothing,
    )


def logits(nets: Classifiers, x: Float[Array, "D B"]) -> Float[Array, "K B"]:
    """f_k of samples that are columns."""
    folds, width = nets.b2.shape
    h = jax.nn.relu(affine(nets.w1, nets.b1, x))
    outputs = [
        affine(nets.w3[k], nets.b3[k], jax.nn.relu(affine(nets.w2[k], nets.b2[k], h[k * width : (k + 1) * width])))
        for k in range(folds)
    ]
    return jnp.concatenate(outputs)


def features(contrast: Contrast, obs: Float[Array, "B D"]) -> Float[Array, "D B"]:
    """States in the demonstrations' deviations, as columns; 0 where a component is left out."""
    return columns((obs - contrast.mean[None]) * contrast.scale[None])


def excess(f: Float[Array, "K B"], threshold: Float[Array, " K"]) -> Float[Array, "K B"]:
    """clip(f_k − τ_k, 0, 1)"""
    return jnp.clip(f - threshold[:, None], 0.0, 1.0)


def known(contrast: Contrast, x: Float[Array, "D B"]) -> Bool[Array, " B"]:
    """Whether demonstrations could tell: not further along a way than where they were cut off."""
    return ~(contrast.way[:, None] * x > contrast.cut[:, None]).any(0)


def cost(contrast: Contrast, obs: Float[Array, "B D"]) -> Float[Array, " B"]:
    """c(s)"""
    x = features(contrast, obs)
    c = excess(logits(contrast.nets.params, x), contrast.threshold).mean(0)
    return jnp.where(known(contrast, x), c, 0.0)


class Monitor(NamedTuple):
    """What tells how familiar a state is, apart from training."""

    contrast: Contrast
    shown: Float[Array, "K M"]  # f_k of demonstrated states that k has not seen, ascending; −∞ of others
    known: Int[Array, " K"]  # how many these are


def monitor(contrast: Contrast, demo_obs: Float[Array, "M D"], fold: Int[Array, " M"]) -> Monitor:
    held_out = jnp.arange(len(contrast.threshold))[:, None] == fold[None]
    f = logits(contrast.nets.params, features(contrast, demo_obs))
    return Monitor(contrast, jnp.sort(jnp.where(held_out, f, -jnp.inf), axis=1), held_out.sum(1))


def familiarity(monitor: Monitor, obs: Float[Array, "B D"]) -> Float[Array, " B"]:
    """The share of demonstrated states that look at least as strange as this one, in [0, 1]: for every classifier over
    the demonstrations it has not seen, then the mean over the classifiers."""
    asked = logits(monitor.contrast.nets.params, features(monitor.contrast, obs))
    rows = monitor.shown.shape[1]
    stranger = rows - jax.vmap(jnp.searchsorted)(monitor.shown, asked)
    some = monitor.known > 0
    shares = jnp.where(some[:, None], stranger / jnp.maximum(monitor.known, 1)[:, None], 0.0)
    return shares.sum(0) / jnp.maximum(some.sum(), 1)


BACKGROUND = 0.1  # ε: what both sides have of states from anywhere


def contrast_step(
    contrast: Contrast,
    demo_obs: Float[Array, "M D"],
    fold: Int[Array, " M"],
    own_obs: Float[Array, "M D"],
    any_obs: Float[Array, "A D"],
    quantile: Scalar,
    rate: Scalar,
    key: PRNGKey,
) -> Contrast:
    """One gradient step of every classifier, then one step of every threshold."""
    n = len(demo_obs)
    held_out = jnp.arange(len(contrast.threshold))[:, None] == fold[None]
    sharp = features(contrast, jnp.concatenate([demo_obs, own_obs, any_obs]))
    blurred = sharp + contrast.blur[:, None] * jax.random.normal(key, sharp.shape)
    told = known(contrast, sharp[:, :n])[None]

    def loss(nets: Classifiers):
        """E_E softplus(f) + E_B softplus(−f) + ε E_A [softplus(f) + softplus(−f)]"""
        f = logits(nets, blurred)
        demo, own, anywhere = f[:, :n], f[:, n : 2 * n], f[:, 2 * n :]
        each = _mean(jax.nn.softplus(demo), ~held_out & told) + jax.nn.softplus(-own).mean(1)
        each = each + BACKGROUND * (jax.nn.softplus(anywhere) + jax.nn.softplus(-anywhere)).mean(1)
        return each.sum(), each.mean()

    nets, _, value = gradient_step(contrast.nets, loss, rate)
    f = logits(nets.params, sharp[:, :n])
    threshold = pinball_step(contrast.threshold, f, held_out & told, quantile)
    demo_cost = _mean(excess(f, threshold), held_out & told).mean()
    return contrast._replace(nets=nets, threshold=threshold, demo_cost=demo_cost, loss=value)


THRESHOLD_RATE = 0.01


def pinball_step(
    threshold: Float[Array, " K"], f: Float[Array, "K M"], held_out: Bool[Array, "K M"], quantile: Scalar
) -> Float[Array, " K"]:
    """τ_k ← τ_k + η (share of held-out f_k above τ_k − (1 − q)): at rest where a share 1 − q lies above."""
    above = _mean((f > threshold[:, None]).astype(f.dtype), held_out)
    moved = threshold + THRESHOLD_RATE * (above - (1.0 - quantile))
    return jnp.where(held_out.any(1), moved, threshold)


def _mean(values: Float[Array, "K M"], where: Bool[Array, "K M"]) -> Float[Array, " K"]:
    return jnp.sum(jnp.where(where, values, 0.0), axis=1) / jnp.maximum(where.sum(1), 1)
