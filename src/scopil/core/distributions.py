"""Action distributions. Everything stays in logits and logs: `log(softmax(z))` is NaN for a certain policy."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from scopil.types import PRNGKey


class Categorical(eqx.Module):
    """π(·|s) over A actions, for any leading axes."""

    log_probs: Float[Array, "*B A"]

    def __init__(self, logits: Float[Array, "*B A"]):
        self.log_probs = jax.nn.log_softmax(logits)

    @property
    def probs(self) -> Float[Array, "*B A"]:
        return jnp.exp(self.log_probs)

    def log_prob(self, action: Int[Array, "*B"]) -> Float[Array, "*B"]:
        return jnp.take_along_axis(self.log_probs, action[..., None], axis=-1)[..., 0]

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
