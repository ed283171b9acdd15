"""Small policies with shields, for tests."""

from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scopil.nn.heads import BoxHead
from scopil.nn.nets import MLP
from scopil.nn.normalise import RunningStats, normalise
from scopil.nn.shield import Shield
from scopil.policy import Policy, _blank

OBS = 3
FORM: dict[str, Any] = {"activation": "relu", "fixed_std": False, "normalises": True}
NUMBERED = {"sizes": [OBS, 6, 4], "start": 3, "shield": {"sizes": [OBS, 6, 4], "activation": "relu"}}
BOX = {"sizes": [OBS, 6, 4], "shield": {"sizes": [OBS + 2, 6, 1], "activation": "relu"}}
IMAGE = {"image": [8, 8, 1], "normalises": False}
KINDS: dict[str, dict[str, Any]] = {
    "numbered": NUMBERED,
    "box": BOX,
    "gaussian": BOX | {"sizes": [OBS, 6, 2], "fixed_std": True},
    "numbered-image": IMAGE
    | {"sizes": [64, 6, 4], "start": 3, "shield": {"sizes": [64, 6, 4], "activation": "relu", "image": [8, 8, 1]}},
    "box-image": IMAGE
    | {"sizes": [64, 6, 4], "shield": {"sizes": [66, 6, 1], "activation": "tanh", "image": [8, 8, 1]}},
}

# Programs that tests share: one for each kind, for 1 000 states.
act: Any = eqx.filter_jit(Policy.act)
distribution: Any = eqx.filter_jit(Policy.distribution)


@lru_cache
def shielded(kind: str, limit: float | None = None) -> Policy:
    """A policy with random networks. By default, half of its most likely actions are within the limit."""
    policy = _blank(FORM | KINDS[kind], jax.random.key(2))
    if policy.head.continuous:
        box = BoxHead(jnp.array([-1.0, 0.0]), jnp.array([3.0, 0.5]))
        policy = eqx.tree_at(lambda p: p.head, policy, box)
    if policy.normaliser is not None:
        stats = RunningStats(jnp.array([1.0, 2.0, 3.0]), jnp.array([0.5, 2.0, 9.0]), jnp.float32(40.0))
        policy = eqx.tree_at(lambda p: p.normaliser, policy, stats)
    return with_limit(policy, float(np.median(q_of_mode(policy))) if limit is None else limit)


def q_of_mode(policy: Policy) -> np.ndarray:
    """Q of the policy's most likely actions without a shield, in all states."""
    assert policy.shield is not None
    obs = jnp.asarray(states(policy))
    s = normalise(policy.normaliser, obs)
    action = np.asarray(distribution(policy.unshielded(), obs).mode())
    if policy.head.continuous:
        x = jnp.concatenate([s, action], axis=-1)
        return np.max([_outputs(critic, x)[:, 0] for critic in policy.shield.critics], axis=0)
    q = np.max([_outputs(critic, s) for critic in policy.shield.critics], axis=0)
    return q[np.arange(len(q)), action]


_outputs = eqx.filter_jit(lambda net, x: net(x))


def with_limit(policy: Policy, limit: float) -> Policy:
    assert policy.shield is not None
    return eqx.tree_at(lambda p: p.shield.limit, policy, jnp.float32(limit))


def states(policy: Policy, count: int = 1000) -> np.ndarray:
    rng = np.random.default_rng(0)
    if policy.normaliser is None:
        return (rng.random((count, 1)) * rng.integers(0, 256, (count, 64))).astype(np.float32)
    return (rng.normal(size=(count, OBS)) * [1.5, 3.0, 6.0] + [1.0, 2.0, 3.0]).astype(np.float32)


def linear(weights: Any, biases: Any) -> MLP:
    """A network without hidden layers, w x + b."""
    w, b = jnp.asarray(weights, jnp.float32), jnp.asarray(biases, jnp.float32)
    made = MLP((w.shape[1], w.shape[0]), jax.random.key(0))
    return eqx.tree_at(lambda m: (m.weights, m.biases), made, ((w,), (b,)))


def linear_shield(weights: Any, biases: Any, limit: float) -> Shield:
    critic = linear(weights, biases)
    return Shield((critic, critic), jnp.float32(limit))
