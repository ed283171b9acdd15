"""What of a learner acts, and what is said about it. Both forms of export agree on it.

inputs    obs (batch, D), as a learner sees it: one flat row of float32 each
          noise (batch, A): standard Gumbel for numbered actions, standard normal for continuous ones; zeros are greedy
outputs   action, sampled_action: (batch,) numbers as the environment counts them, or (batch, A) in its box
          logits (batch, A): log π(a|s) · or mean, std (batch, A): of the Gaussian before tanh
"""

import os
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from scopil import __version__
from scopil.agents import Agent
from scopil.algos.continuous import ContinuousAlgorithm
from scopil.core.frame import Frame
from scopil.core.nets import MLP
from scopil.core.normalise import Running
from scopil.errors import ConfigError


@dataclass(frozen=True)
class Acting:
    """The parts of a policy, in the order in which an observation goes through them."""

    stats: Running | None
    actor: MLP
    frame: Frame | None  # of continuous actions
    first: int  # of numbered actions
    obs_dim: int
    width: int  # A: how many actions there are, or components of one

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("action", "sampled_action", *(("logits",) if self.frame is None else ("mean", "std")))


def acting(agent: Agent) -> Acting:
    state, space = agent.learner, agent.env.action_space
    continuous = isinstance(agent.algorithm, ContinuousAlgorithm)
    frame: Frame | None = state.frame if continuous else None
    on_policy = hasattr(state, "nets")
    actor: MLP = state.nets.params.actor if on_policy else state.actor.params
    stats = frame.obs_stats if frame is not None else getattr(state, "obs_stats", None)
    width = int(space.n) if isinstance(space, gym.spaces.Discrete) else len(state.frame.low)
    return Acting(stats, actor, frame, int(getattr(space, "start", 0)), actor.weights[0].shape[1], width)


def description(agent: Agent, parts: Acting) -> dict[str, str]:
    """For the file's reader."""
    return {
        "algorithm": agent.algorithm.name,
        "env_id": agent.env_id or "",
        "seed": str(agent.seed),
        "env_steps": str(agent.num_timesteps),
        "scopil_version": __version__,
        "noise": "gumbel" if parts.frame is None else "normal",
        "normalises_observations": str(parts.stats is not None).lower(),
    }


def checked_path(path: Any, ending: str) -> Any:
    """Before the work, not after it."""
    if os.path.isdir(path):
        raise ConfigError(
            f"{path} is a folder; want a file name such as {os.path.join(path, 'policy' + ending)}."
        )
    return path
