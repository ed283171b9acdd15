"""How networks see a world with continuous actions: observations normalised, actions in [−1, 1]."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scopil.core import normalise
from scopil.types import Transition


class Frame(NamedTuple):
    """Part of a learner's state, so that whatever saves or loads the learner carries it."""

    obs_stats: normalise.Running | None  # None: observations as they are
    low: Float[Array, " A"]
    high: Float[Array, " A"]

    def watch(self, *observations: Float[Array, "_ D"]) -> "Frame":
        """The frame after these observations."""
        return self._replace(obs_stats=normalise.absorb(self.obs_stats, jnp.concatenate(observations)))

    def see(self, obs: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        return normalise.normalise(self.obs_stats, obs)

    def unit(self, action: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """From the environment's box to [−1, 1]."""
        centre, half = self._box(action)
        return jnp.clip((action - centre) / half, -1.0, 1.0)

    def out(self, unit: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """From [−1, 1] to the environment's box, and never a rounding error outside it."""
        centre, half = self._box(unit)
        low, high = (jnp.broadcast_to(x, unit.shape) for x in (self.low, self.high))
        return jnp.clip(centre + half * unit, low, high)

    def through(self, batch: Transition) -> Transition:
        """A batch as the networks see it."""
        return batch._replace(
            obs=self.see(batch.obs), action=self.unit(batch.action), next_obs=self.see(batch.next_obs)
        )

    def _box(self, like: Array) -> tuple[Array, Array]:
        centre, half = 0.5 * self.low + 0.5 * self.high, 0.5 * self.high - 0.5 * self.low
        return jnp.broadcast_to(centre, like.shape), jnp.broadcast_to(half, like.shape)


def frame(obs_dim: int, low: tuple[float, ...], high: tuple[float, ...], normalise_obs: bool) -> Frame:
    stats = normalise.fresh((obs_dim,)) if normalise_obs else None
    return Frame(stats, jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32))


class NumpyFrame:
    """The same for `predict`."""

    def __init__(self, frame: Frame):
        low, high = np.asarray(frame.low), np.asarray(frame.high)
        self.low, self.high = low, high
        self.centre, self.half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
        self.stats = jax.tree.map(np.asarray, frame.obs_stats)

    def see(self, obs: np.ndarray) -> np.ndarray:
        return normalise.normalise_in_numpy(self.stats, obs)

    def out(self, unit: np.ndarray) -> np.ndarray:
        return np.clip(self.centre + self.half * unit, self.low, self.high)
