"""Action distributions. Everything stays in logits and logs: `log(softmax(z))` is NaN for a certain policy."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from scopil.types import PRNGKey


def pick(values: Float[Array, "..."], action: Int[Array, "*B"], axis: int = -1) -> Float[Array, "*B"]:
    """values(s, a) at the given actions. A masked sum: its gradient is a product, where a gather's is a scatter."""
    chosen = jax.nn.one_hot(action, values.shape[axis], dtype=bool, axis=axis)
    return jnp.sum(jnp.where(chosen, values, 0.0), axis=axis)


class Categorical(eqx.Module):
    """π(·|s) over A actions, for any other axes. Actions are the last axis, or the first where samples are columns."""

    log_probs: Float[Array, "..."]
    axis: int = eqx.field(static=True)

    def __init__(self, logits: Float[Array, "..."], axis: int = -1):
        self.log_probs = jax.nn.log_softmax(logits, axis)
        self.axis = axis

    @property
    def num_actions(self) -> int:
        return self.log_probs.shape[self.axis]

    @property
    def probs(self) -> Float[Array, "..."]:
        return jnp.exp(self.log_probs)

    def log_prob(self, action: Int[Array, "*B"]) -> Float[Array, "*B"]:
        return pick(self.log_probs, action, self.axis)

    def expect(self, values: Float[Array, "..."]) -> Float[Array, "*B"]:
        """Σ_a π(a|s) values(s, a)"""
        return jnp.sum(self.probs * values, axis=self.axis)

    def entropy(self) -> Float[Array, "*B"]:
        """H(π(·|s)) in nats."""
        return -self.expect(self.log_probs)

    def sample(self, key: PRNGKey) -> Int[Array, "*B"]:
        return jax.random.categorical(key, self.log_probs, axis=self.axis)

    def mode(self) -> Int[Array, "*B"]:
        return jnp.argmax(self.log_probs, axis=self.axis)

    def matches(self, action: Int[Array, "*B"]) -> Bool[Array, "*B"]:
        """Whether the greedy action is the demonstrated one."""
        return self.mode() == action
