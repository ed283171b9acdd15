"""A shield keeps a policy in actions whose expected future novelty is not above that of demonstrated steps.

    Q(s, a) = max_x Q_x(s, a)                two critics of the novelty; the larger value is the pessimistic one
    discrete:    π'(a|s) ∝ π(a|s) 1[Q(s, a) ≤ τ]
    continuous:  a' = the point with Q(s, a') ≤ τ that is nearest to a ~ π(·|s), among a and `POINTS` other points

If no action is within τ, the action of least Q is taken.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from scopil.nn.distributions import Categorical
from scopil.nn.nets import Network

POINTS = 32
NEVER = -1e9  # logit of an action that is left out
TOO_FAR = 1e6  # more than any squared distance in [−1, 1]^A


class Shield(eqx.Module):
    critics: tuple[Network, Network]  # Q_1, Q_2, of normalised observations (and actions in [−1, 1])
    limit: Float[Array, ""]  # τ

    def kept(self, q: Float[Array, "*B A"]) -> Bool[Array, "*B A"]:
        """The actions that are within τ; if there is none, the action of least Q."""
        return q <= jnp.maximum(self.limit, q.min(-1, keepdims=True))

    def masked(self, pi: Categorical, s: Float[Array, "*B D"]) -> Categorical:
        """The distribution over the discrete actions that are kept."""
        q = jnp.maximum(*(critic(s) for critic in self.critics))
        return Categorical(jnp.where(self.kept(q), pi.log_probs, NEVER))

    def moved(self, action: Float[Array, "*B A"], s: Float[Array, "*B D"]) -> Float[Array, "*B A"]:
        """The continuous action, in [−1, 1], that replaces `action`."""
        a = action[..., None, :]
        lead = (1,) * (action.ndim - 1)
        targets, share = (jnp.asarray(x, jnp.float32).reshape(*lead, *x.shape) for x in points(action.shape[-1]))
        tried = jnp.concatenate([a, a + share * (targets - a)], axis=-2)
        x = jnp.concatenate([jnp.broadcast_to(s[..., None, :], (*tried.shape[:-1], s.shape[-1])), tried], axis=-1)
        q = jnp.maximum(*(critic(x)[..., 0] for critic in self.critics))
        away = jnp.sum((tried - a) ** 2, axis=-1)
        best = jnp.argmin(jnp.where(q <= self.limit, away, TOO_FAR + q), axis=-1)
        return jnp.take_along_axis(tried, best[..., None, None], axis=-2)[..., 0, :]


def points(width: int) -> tuple[np.ndarray, np.ndarray]:
    """Points that fill [−1, 1]^width evenly (multiples of powers of 1/g modulo 1, with g^(width + 1) = g + 1), and the
    share of the way to each of them that is tried."""
    g = 2.0
    for _ in range(64):
        g = (1.0 + g) ** (1.0 / (width + 1))
    each = (0.5 + np.arange(1, POINTS + 1)[:, None] * g ** -np.arange(1.0, width + 1)) % 1.0
    return 2.0 * each - 1.0, np.tile([0.125, 0.25, 0.5, 1.0], POINTS // 4)[:, None]
