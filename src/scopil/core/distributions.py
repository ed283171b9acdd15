"""Action distributions. Everything stays in logits and logs: `log(softmax(z))` is NaN for a certain policy."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from scopil.types import PRNGKey


def pick(values: Float[Array, "*B A"], action: Int[Array, "*B"]) -> Float[Array, "*B"]:
    """values(s, a) at the given actions. A masked sum: its gradient is a product, where a gather's is a scatter."""
    chosen = jax.nn.one_hot(action, values.shape[-1], dtype=bool)
    return jnp.sum(jnp.where(chosen, values, 0.0), axis=-1)


class Categorical(eqx.Module):
    """π(·|s) over A actions, for any leading axes."""

    log_probs: Float[Array, "*B A"]

    def __init__(self, logits: Float[Array, "*B A"]):
        self.log_probs = jax.nn.log_softmax(logits)

    @property
    def probs(self) -> Float[Array, "*B A"]:
        return jnp.exp(self.log_probs)

    def log_prob(self, action: Int[Array, "*B"]) -> Float[Array, "*B"]:
        return pick(self.log_probs, action)

    def expect(self, values: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        """Σ_a π(a|s) values(s, a)"""
        return jnp.sum(self.probs * values, axis=-1)

    def entropy(self) -> Float[Array, "*B"]:
        """H(π(·|s)) in nats."""
        return -self.expect(self.log_probs)

    def sample(self, key: PRNGKey) -> Int[Array, "*B"]:
        return jax.random.categorical(key, self.log_probs)

    def mode(self) -> Int[Array, "*B"]:
        return jnp.argmax(self.log_probs, axis=-1)
