"""What a learner of continuous actions is made of, beyond `base.Algorithm`."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from scopil.algos.base import Algorithm, NumpyPolicy, Spaces
from scopil.core.frame import NumpyFrame
from scopil.core.nets import MLP
from scopil.core.squashed import bent
from scopil.types import PRNGKey

RESOLUTION = {"action_resolution": (1e-3, 0.5)}  # finer is lost in float32, coarser is no imitation


@dataclass(frozen=True, kw_only=True)
class ContinuousAlgorithm(Algorithm):
    """`update` is (state, batch, demo pairs, config, key) → state, metrics: an expectation over actions is no sum any
    more, so it is sampled. The state has `actor`, a squashed Gaussian's network, and `frame`."""

    def in_numpy(self, state: Any) -> NumpyPolicy:
        head, frame = state.actor.params.in_numpy(), NumpyFrame(state.frame)

        def act(obs: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
            u, raw = np.split(head(frame.see(obs)), 2, axis=-1)
            if rng is not None:
                u = u + np.exp(bent(raw, np.tanh)) * rng.standard_normal(u.shape, np.float32)
            return frame.out(np.tanh(u))

        return act


def squashed_actor(key: PRNGKey, spaces: Spaces, hidden: tuple[int, ...]) -> MLP:
    """A network whose outputs are a squashed Gaussian's μ and log σ."""
    return MLP((spaces.obs_dim, *hidden, 2 * len(spaces.bounds.low)), key)
