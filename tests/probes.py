"""Small environments with known values, a small learner for them, and conversions for the NumPy references."""

from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.experimental.functional import FuncEnv

from scopil.data.dataset import DemoTransitions


class ProbeState(NamedTuple):
    sign: Any  # ±1, drawn at the start
    clock: Any  # steps played


class Probe(FuncEnv):
    """Two actions, one constant observation, reward 1, one step. Tests override what they probe."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def initial(self, rng, params=None):
        return ProbeState(jnp.where(jax.random.bernoulli(rng), jnp.float32(1), jnp.float32(-1)), jnp.int32(0))

    def transition(self, state, action, rng, params=None):
        return state._replace(clock=state.clock + 1)

    def observation(self, state, rng, params=None):
        return jnp.ones(1)

    def reward(self, state, action, next_state, rng, params=None):
        return jnp.float32(1.0)

    def terminal(self, state, rng, params=None):
        return state.clock >= 1

    def state_info(self, state, params=None):
        return {}

    def transition_info(self, state, action, next_state, params=None):
        return {}


class Endless(Probe):
    """Reward 1 at every step, without an end."""

    def terminal(self, state, rng, params=None):
        return jnp.array(False)


SMALL = {"hidden": (8,), "batch_size": 16, "replay_size": 512}


def demo_steps(obs: Any, action: Any) -> DemoTransitions:
    """Demonstrated steps with these observations and actions."""
    obs = jnp.asarray(obs)
    ended = jnp.zeros(len(obs), bool)
    return DemoTransitions(obs, jnp.asarray(action), obs, jnp.zeros(len(obs), jnp.int32), None, ended)


def mostly_one() -> DemoTransitions:
    """Of four steps in one state, three take action 1."""
    return demo_steps(jnp.ones((4, 1)), jnp.array([0, 1, 1, 1]))


def as_type(tree: Any, real: Any) -> Any:
    """The same tree with real numbers in another precision."""

    def cast(leaf: Any) -> Any:
        leaf = jnp.asarray(leaf)
        return leaf.astype(real) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(cast, tree)


def layers(net: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """The layers (w, b) of a network in float64, weights (in, out), as in tests/reference."""
    return [(np.asarray(w, np.float64).T, np.asarray(b, np.float64)) for w, b in zip(net.weights, net.biases)]
