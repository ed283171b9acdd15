"""Which compiled loop an algorithm runs in."""

from scopil.algos.base import Algorithm
from scopil.demos.dataset import Demonstrations
from scopil.envs.functional import CompiledEnv
from scopil.train.offpolicy import OffPolicy, demo_pairs
from scopil.train.trainer import Loop


def make_loop(algorithm: Algorithm, env: CompiledEnv, demos: Demonstrations | None) -> Loop:
    return OffPolicy(algorithm, env, demo_pairs(demos, env) if algorithm.needs_demos else None)
