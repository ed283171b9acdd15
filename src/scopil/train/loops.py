"""Which compiled loop an algorithm runs in."""

from scopil.algos.base import Algorithm
from scopil.algos.onpolicy import InverseAlgorithm, OnPolicyAlgorithm
from scopil.algos.sac_lagrangian import OracleAlgorithm
from scopil.demos.dataset import Demonstrations
from scopil.envs.functional import CompiledEnv
from scopil.train.inverse import Inverse, padded
from scopil.train.offpolicy import OffPolicy, demo_pairs
from scopil.train.onpolicy import OnPolicy
from scopil.train.oracle import OracleOffPolicy
from scopil.train.trainer import Loop


def make_loop(algorithm: Algorithm, env: CompiledEnv, demos: Demonstrations | None) -> Loop:
    pairs = demo_pairs(demos, env) if algorithm.needs_demos else None
    if (
        isinstance(algorithm, InverseAlgorithm) and demos is not None
    ):  # without, its policy can play but not learn
        return Inverse(algorithm=algorithm, env=env, experts=padded(demos))
    if isinstance(algorithm, OnPolicyAlgorithm):
        return OnPolicy(algorithm, env, pairs)
    if isinstance(algorithm, OracleAlgorithm):
        return OracleOffPolicy(algorithm, env)
    return OffPolicy(algorithm, env, pairs)
