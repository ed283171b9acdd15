"""Heads: map the outputs of a network to a distribution over actions, and actions to the environment's range."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scopil.nn.distributions import Categorical, SquashedGaussian, soft_clip_log_std


class DiscreteHead(eqx.Module):
    """Discrete actions. Learners number them from 0, a Gymnasium environment from `start`."""

    num_actions: int = eqx.field(static=True)
    start: int = eqx.field(static=True, default=0)

    continuous = False

    @property
    def num_outputs(self) -> int:
        return self.num_actions

    def __call__(self, outputs: Float[Array, "*B A"]) -> Categorical:
        return Categorical(outputs)

    def to_learner(self, action: Array) -> Array:
        return action

    def to_env(self, action: Array) -> Array:
        """Actions for a `BatchEnv`, which also numbers them from 0."""
        return action

    def act_numpy(self, outputs: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        """Actions for a Gymnasium environment, numbered from `start`; greedy if `rng` is None."""
        noisy = outputs if rng is None else outputs + rng.gumbel(size=outputs.shape)
        return np.asarray(noisy.argmax(axis=-1) + self.start)


class BoxHead(eqx.Module):
    """Continuous actions. Learners use [−1, 1]; the environment's bounds are `low` and `high`."""

    low: Float[Array, " A"]
    high: Float[Array, " A"]

    continuous = True

    @property
    def num_actions(self) -> int:
        """The number of components of an action."""
        return self.low.shape[0]

    @property
    def num_outputs(self) -> int:
        return 2 * self.num_actions

    def __call__(self, outputs: Float[Array, "*B A2"]) -> SquashedGaussian:
        return SquashedGaussian(outputs)

    def to_learner(self, action: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """Map actions from the environment's bounds to [−1, 1]."""
        centre, half = self._box(action)
        return jnp.clip((action - centre) / half, -1.0, 1.0)

    def to_env(self, action: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """Map actions from [−1, 1] to the environment's bounds. Clipped, because rounding may exceed the bounds."""
        centre, half = self._box(action)
        low, high = (jnp.broadcast_to(x, action.shape) for x in (self.low, self.high))
        return jnp.clip(centre + half * action, low, high)

    def _box(self, like: Array) -> tuple[Array, Array]:
        centre, half = 0.5 * self.low + 0.5 * self.high, 0.5 * self.high - 0.5 * self.low
        return jnp.broadcast_to(centre, like.shape), jnp.broadcast_to(half, like.shape)

    def act_numpy(self, outputs: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        return self.to_env_numpy(self.unit_numpy(outputs, rng))

    def unit_numpy(self, outputs: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        """Actions in [−1, 1]; greedy if `rng` is None."""
        u, raw = outputs[..., : self.num_actions], outputs[..., self.num_actions :]  # np.split takes ten times as long
        if rng is not None:
            u = u + np.exp(soft_clip_log_std(raw, np.tanh)) * rng.standard_normal(u.shape, np.float32)
        return np.tanh(u)

    def to_env_numpy(self, action: np.ndarray) -> np.ndarray:
        low, high = np.asarray(self.low), np.asarray(self.high)
        return np.clip(0.5 * low + 0.5 * high + (0.5 * high - 0.5 * low) * action, low, high)

    def to_learner_numpy(self, action: np.ndarray) -> np.ndarray:
        low, high = np.asarray(self.low), np.asarray(self.high)
        return np.clip((action - (0.5 * low + 0.5 * high)) / (0.5 * high - 0.5 * low), -1.0, 1.0)


Head = DiscreteHead | BoxHead
