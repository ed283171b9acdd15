"""The constraint network of ICRL (Malik et al. 2021), as the paper describes it, computed in logits and logs.

ζ(s,a) = sigmoid(z) is the estimated probability that a pair satisfies the constraint, 1 − ζ = sigmoid(−z) its cost, and
e = 1e-5. Trajectories are padded to one length T; `mask` is true for the steps of the episode.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from scopil.nn.nets import Image, Net, image_of, network, width_of
from scopil.types import PRNGKey

OBS_LIMIT = 20.0  # observations are clipped to ± this, as in the published code
LOG_EPS = math.log(1e-5)  # log e, as in the published code


def constraint_net(
    obs_dim: int, num_actions: int, hidden: tuple[int, ...], key: PRNGKey, image: Image | None = None, outputs: int = 1
) -> Net:
    """A network for `num_actions` discrete actions, or for continuous actions with `num_actions` components."""
    return network((obs_dim + num_actions, *hidden, outputs), key, image)


def logit(net: Net, obs: Float[Array, "*B D"], action: Array) -> Float[Array, "*B"]:
    """z(s, a)"""
    return outputs(net, obs, action)[..., 0]


def outputs(net: Net, obs: Float[Array, "*B D"], action: Array) -> Float[Array, "*B K"]:
    """The outputs of the network. Observations are raw, clipped to ±20 unless they are images. Discrete actions are
    encoded one-hot; continuous ones are in [−1, 1]."""
    if jnp.issubdtype(action.dtype, jnp.integer):
        action = jax.nn.one_hot(action, width_of(net) - obs.shape[-1], dtype=obs.dtype)
    obs = obs if image_of(net) else jnp.clip(obs, -OBS_LIMIT, OBS_LIMIT)
    return net(jnp.concatenate([obs, action], -1))


def cost(z: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """1 − ζ"""
    return jax.nn.sigmoid(-z)


def log_zeta(z: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """log(ζ + e)"""
    return jnp.logaddexp(jax.nn.log_sigmoid(z), LOG_EPS)


def masked_mean(x: Float[Array, "M T"], mask: Bool[Array, "M T"]) -> Float[Array, ""]:
    """The mean over the steps in `mask`."""
    return jnp.where(mask, x, 0.0).sum() / mask.sum()


def log_ratios(z: Float[Array, "M T"], z_old: Float[Array, "M T"], mask: Bool[Array, "M T"]) -> Float[Array, " M"]:
    """l_j = Σ_t log (ζ(s_t,a_t) + e) / (ζ_old(s_t,a_t) + e): the log of each trajectory's importance ratio P_j."""
    return jnp.where(mask, log_zeta(z) - log_zeta(z_old), 0.0).sum(-1)


def importance_weights(log_ratio: Float[Array, " M"]) -> Float[Array, " M"]:
    """w_j = M P_j / Σ_i P_i.

    This is a softmax of logs. The published code multiplies the ratios; the product overflows float32 at T = 400.
    """
    return log_ratio.shape[0] * jax.nn.softmax(log_ratio)


def forward_kl(log_ratio: Float[Array, " M"]) -> Float[Array, ""]:
    """KL(old ‖ new) = E_j[ −log P_j ]. The published code saturates at −log e = 11.51; this function does not."""
    return -log_ratio.mean()


def reverse_kl(log_ratio: Float[Array, " M"]) -> Float[Array, ""]:
    """KL(new ‖ old) = E_j[ (P_j − P̄) log P_j ] / P̄,  P̄ = E_j[ P_j ]"""
    return jnp.sum(jax.nn.softmax(log_ratio) * log_ratio) - log_ratio.mean()


def loss(
    z_expert: Float[Array, "E S"],
    expert_mask: Bool[Array, "E S"],
    z_nominal: Float[Array, "M T"],
    nominal_mask: Bool[Array, "M T"],
    weights: Float[Array, " M"],
    regulariser: float | Float[Array, ""],
) -> Float[Array, ""]:
    """− E_E log(ζ+e) + E_N w log(ζ+e) + ρ ( E_E (1−ζ) + E_N (1−ζ) ), means over steps; w is a constant."""
    w = jnp.broadcast_to(jax.lax.stop_gradient(weights)[:, None], z_nominal.shape)
    fit = masked_mean(w * log_zeta(z_nominal), nominal_mask) - masked_mean(log_zeta(z_expert), expert_mask)
    sparse = masked_mean(cost(z_expert), expert_mask) + masked_mean(cost(z_nominal), nominal_mask)
    return fit + regulariser * sparse
