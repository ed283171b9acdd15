"""Demonstrations for LapGridWorld: laps run forwards, as the law wants."""

import numpy as np

from scopil.demos.dataset import Demonstrations
from scopil.envs.lap_grid_world import ACTIONS, CELLS, COINS, FORWARD, MAX_STEPS, OBSERVATIONS


def forward_laps(games: int = 1) -> Demonstrations:
    """The task is deterministic and has one start, so every game is the same."""
    cells = np.arange(MAX_STEPS + 1) % CELLS
    return Demonstrations.from_arrays(
        [(cells[:, None] / (CELLS / 2) - 1.0).astype(np.float32)] * games,
        [np.full(MAX_STEPS, FORWARD)] * games,
        [3.0 * np.isin(cells[1:], COINS)] * games,
        observation_space=OBSERVATIONS,
        action_space=ACTIONS,
        name="lap-grid-world/forward",
    )
