"""Needle Master: games that people played on a touch screen. `make` makes `scopil/NeedleMaster-v0`.

The game and its recordings are by the authors of CoSTAR Plan (Paxton, Hundt, Barnoy and Yu, The Johns Hopkins
University, Apache License 2.0). The recordings are not shipped; a path names their folder.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

import gymnasium as gym

if TYPE_CHECKING:
    from scopil.envs.jax_env import CompiledEnv


def make(
    data: str | None = None,
    left_out: tuple[int, ...] = (),
    levels: int = 12,
    seed: int = 0,
    render_mode: str | None = None,
) -> gym.Env:
    """The environment.

    Args:
        data: a folder of levels, `environment_1.txt` and so on; default: generated levels.
        left_out: numbers of the levels that training leaves out; unseen starts are on these.
        levels: the number of generated levels.
        seed: the seed of generated levels.
        render_mode: as in Gymnasium.
    """
    from scopil.envs.as_gym import FunctionalEnv

    return FunctionalEnv(compiled(data, tuple(left_out), levels, seed), render_mode)


@lru_cache  # equal environments share their compiled code
def compiled(data: str | None = None, left_out: tuple[int, ...] = (), levels: int = 12, seed: int = 0) -> "CompiledEnv":
    from scopil.envs.jax_env import CompiledEnv
    from scopil_bench.studies.needle_master.env import NeedleMaster
    from scopil_bench.studies.needle_master.levels import generate_levels, read_levels

    found = generate_levels(levels, seed) if data is None else read_levels(data)
    return CompiledEnv(NeedleMaster({n: level for n, level in found.items() if level.gates}, left_out))
