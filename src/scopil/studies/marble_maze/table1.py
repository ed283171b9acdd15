"""The paper's Table 1: the demonstrations its people recorded, and the same figures of a set of ours."""

from typing import NamedTuple

import numpy as np

from scopil.demos.dataset import Demonstrations
from scopil.studies.marble_maze.physics import REACH


class Row(NamedTuple):
    """Means over games, with standard deviations (None: not printed)."""

    pairs: int
    reward: float  # normalised, summed over a game
    reward_std: float | None
    length: float  # px between the positions of consecutive steps, summed over a game
    length_std: float
    steps: float
    steps_std: float


# Simple is printed with raw rewards, −4.50 ± 9.57. A game of T steps with raw sum R has the normalised sum
# (R − 10 T) / 15, hence the mean below; its deviation cannot be had from the table.
TABLE_1 = {
    "marble-maze/simple-v1": Row(850, (-4.50 - 10 * 21.25) / 15, None, 256.04, 134.01, 21.25, 8.62),
    "marble-maze/multiple-v1": Row(1204, -20.85, 12.02, 265.10, 138.28, 30.10, 16.33),
    "marble-maze/two-modes-v1": Row(1067, -18.30, 8.51, 280.49, 129.48, 26.67, 11.69),
}


def path_lengths(demos: Demonstrations) -> np.ndarray:
    """px travelled in each game of a Marble Maze set."""
    positions = (e.observations[:, :2].astype(np.float64) * REACH for e in demos)
    return np.array([np.linalg.norm(np.diff(p, axis=0), axis=1).sum() for p in positions])


def measure(demos: Demonstrations) -> Row:
    """Table 1's figures of a Marble Maze set."""
    seen, length = demos.statistics(), path_lengths(demos)
    return Row(
        pairs=demos.pairs,
        reward=seen["reward"],
        reward_std=seen["reward_std"],
        length=float(length.mean()),
        length_std=float(length.std()),
        steps=seen["steps"],
        steps_std=seen["steps_std"],
    )
