"""Which compiled loop an algorithm runs in."""

from dataclasses import replace

import numpy as np

from scopil.algos.base import Algorithm
from scopil.algos.onpolicy import InverseAlgorithm, OnPolicyAlgorithm
from scopil.algos.sac_lagrangian import OracleAlgorithm
from scopil.demos.dataset import Demonstrations
from scopil.envs.functional import BatchEnv
from scopil.envs.host import HostEnv
from scopil.train.inverse import Inverse, padded
from scopil.train.offpolicy import OffPolicy, demo_pairs
from scopil.train.onpolicy import OnPolicy
from scopil.train.oracle import OracleOffPolicy
from scopil.train.trainer import Loop


def make_loop(algorithm: Algorithm, env: BatchEnv, demos: Demonstrations | None) -> Loop:
    demos = as_seen(demos, env)
    pairs = demo_pairs(demos, env) if algorithm.needs_demos else None
    if (
        isinstance(algorithm, InverseAlgorithm) and demos is not None
    ):  # without, its policy can play but not learn
        return Inverse(algorithm=algorithm, env=env, experts=padded(demos, env))
    if isinstance(algorithm, OnPolicyAlgorithm):
        return OnPolicy(algorithm, env, pairs)
    if isinstance(algorithm, OracleAlgorithm):
        return OracleOffPolicy(algorithm, env)
    return OffPolicy(algorithm, env, pairs)


def as_seen(demos: Demonstrations | None, env: BatchEnv) -> Demonstrations | None:
    """Demonstrations with observations as the environment gave them, flattened as a learner sees them."""
    if demos is None or not isinstance(env, HostEnv):
        return demos
    found, raw = demos.observation_space, env.flat.raw
    same = (
        type(found) is type(raw) and found.shape == raw.shape and found.shape != env.observation_space.shape
    )
    if not same or getattr(found, "n", 0) > getattr(raw, "n", 0):
        return demos  # flat already, or refused with the pairs
    episodes = tuple(
        replace(e, observations=np.stack([env.flat.row(obs) for obs in e.observations])) for e in demos
    )
    return replace(demos, episodes=episodes, observation_space=env.observation_space)
