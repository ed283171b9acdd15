"""A shield keeps a policy in actions whose expected future novelty is not above that of demonstrated steps.

    Q(s, a) = max_x Q_x(s, a)                two critics of the novelty; the larger value is the pessimistic one
    discrete:    π'(a|s) ∝ π(a|s) 1[Q(s, a) ≤ τ]
    continuous:  a' = the point with Q(s, a') ≤ τ that is nearest to a ~ π(·|s), among a and `POINTS` other points

If no action is within τ, the action of least Q is taken. `xp` is `jax.numpy` or `numpy`.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from scopil.nn.distributions import Categorical
from scopil.nn.nets import ConvNet, Net

POINTS = 32
NEVER = -1e9  # logit of an action that is left out

Values = Callable[[Any], Any]  # actions (*B, P, A) → Q(s, a) (*B, P)


class Shield(eqx.Module):
    critics: tuple[Net, Net]  # Q_1, Q_2, of normalised observations (and actions in [−1, 1])
    limit: Float[Array, ""]  # τ

    def kept(self, q: Float[Array, "*B A"]) -> Bool[Array, "*B A"]:
        """The actions that are within τ; if there is none, the action of least Q."""
        return within(q, self.limit)

    def masked(self, pi: Categorical, s: Float[Array, "*B D"]) -> Categorical:
        """The distribution over the discrete actions that are kept; `pi` itself where all are kept."""
        kept = self.kept(jnp.maximum(*(critic(s) for critic in self.critics)))
        masked = Categorical(jnp.where(kept, pi.log_probs, NEVER))
        log_probs = jnp.where(kept.all(-1, keepdims=True), pi.log_probs, masked.log_probs)
        return eqx.tree_at(lambda c: c.log_probs, masked, log_probs)

    def moved(self, action: Float[Array, "*B A"], s: Float[Array, "*B D"]) -> Float[Array, "*B A"]:
        """The continuous action, in [−1, 1], that replaces `action`."""
        parts = [(c.features, c.mlp) if isinstance(c, ConvNet) else (None, c) for c in self.critics]
        return nearest(action, values_of(parts, s, jnp), self.limit, jnp)[0]

    def in_numpy(self) -> "NumpyShield":
        return NumpyShield(self)


class NumpyShield:
    """A shield without JAX. Its methods also return whether any action is within τ."""

    def __init__(self, shield: Shield):
        self._limit = np.array(shield.limit)
        self._parts = [
            (c.features_in_numpy(), c.mlp.in_numpy()) if isinstance(c, ConvNet) else (None, c.in_numpy())
            for c in shield.critics
        ]

    def kept(self, s: np.ndarray) -> tuple[np.ndarray, Any]:
        """The discrete actions that are kept."""
        q = np.maximum(*(mlp(s if features is None else features(s)) for features, mlp in self._parts))
        return within(q, self._limit), (q <= self._limit).any(-1)

    def moved(self, action: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, Any]:
        """The continuous actions, in [−1, 1], that replace `action`."""
        return nearest(action, values_of(self._parts, s, np), self._limit, np)


def within(q: Any, limit: Any) -> Any:
    return (q <= limit) | (q <= q.min(-1, keepdims=True))


def nearest(action: Any, values: Values, limit: Any, xp: Any) -> tuple[Any, Any]:
    """The nearest of the points that are kept, and whether any point is within τ."""
    a = action[..., None, :]
    targets, share = (xp.asarray(x)[(None,) * (a.ndim - 2)] for x in points(action.shape[-1]))
    tried = xp.concatenate([a, a + share * (targets - a)], axis=-2)
    q = values(tried)
    away = xp.where(within(q, limit), xp.sum((tried - a) ** 2, axis=-1), xp.inf)
    rows = tried.reshape(-1, *tried.shape[-2:])
    best = rows[xp.arange(rows.shape[0]), away.argmin(-1).reshape(-1)]
    return best.reshape(action.shape), (q <= limit).any(-1)


def values_of(parts: Any, s: Any, xp: Any) -> Values:
    """Q of continuous actions, by critics in two parts: convolutions of the observation or None, and an MLP."""

    def values(tried: Any) -> Any:
        def joined(f: Any) -> Any:
            rows = xp.broadcast_to(f[..., None, :], (*tried.shape[:-1], f.shape[-1]))
            return xp.concatenate([rows, tried], axis=-1)

        shared = joined(s) if parts[0][0] is None else None
        return xp.maximum(*(mlp(joined(f(s)) if shared is None else shared)[..., 0] for f, mlp in parts))

    return values


@lru_cache
def points(width: int) -> tuple[np.ndarray, np.ndarray]:
    """Points that fill [−1, 1]^width evenly (multiples of powers of 1/g modulo 1, with g^(width + 1) = g + 1), and the
    share of the way to each of them that is tried. Consecutive points have the same share: every fourth point alone
    would leave parts of the range empty."""
    g = 2.0
    for _ in range(64):
        g = (1.0 + g) ** (1.0 / (width + 1))
    each = (0.5 + np.arange(1, POINTS + 1)[:, None] * g ** -np.arange(1.0, width + 1)) % 1.0
    share = np.repeat([0.125, 0.25, 0.5, 1.0], POINTS // 4)[:, None]
    return (2.0 * each - 1.0).astype(np.float32), share.astype(np.float32)
