"""The paper's Table 1, on the demonstrations that people recorded for it, and the same figures of another set."""

from typing import NamedTuple

import numpy as np

from scopil.data import storage
from scopil.data.dataset import Demonstrations
from scopil.envs.marble_maze.env import path_length
from scopil.envs.registration import IDS


class Row(NamedTuple):
    """Means over episodes, with standard deviations (None: not printed)."""

    pairs: int
    reward: float  # normalised, summed over an episode
    reward_std: float | None
    length: float  # px between the positions of consecutive steps, summed over an episode
    length_std: float
    steps: float
    steps_std: float


# Simple is printed with raw rewards, −4.50 ± 9.57. An episode of T steps with raw sum R has the normalised sum
# (R − 10 T) / 15, hence the mean below; its deviation does not follow from the table.
TABLE_1 = {
    "marble-maze/simple-v1": Row(850, (-4.50 - 10 * 21.25) / 15, None, 256.04, 134.01, 21.25, 8.62),
    "marble-maze/multiple-v1": Row(1204, -20.85, 12.02, 265.10, 138.28, 30.10, 16.33),
    "marble-maze/two-modes-v1": Row(1067, -18.30, 8.51, 280.49, 129.48, 26.67, 11.69),
}


EPISODES = 40  # in each of the paper's sets


SHIPPED = {"our planner": "marble-maze/{}-v1", "our model of people": "marble-maze/{}-people-v1"}


def published(env_id: str | None) -> Row | None:
    """Table 1's row for the environment that a set was recorded on, whoever recorded the set."""
    return TABLE_1.get(f"marble-maze/{_setting(env_id)}-v1")


def rows(env_id: str | None) -> dict[str, Row]:
    """The paper's row for an environment and those of both shipped sets; empty where the paper has none."""
    paper = published(env_id)
    if paper is None:
        return {}
    names, files = {who: name.format(_setting(env_id)) for who, name in SHIPPED.items()}, storage.library()
    ours = {who: measure(storage.read(files[name])) for who, name in names.items() if name in files}
    return {"the paper's people": paper} | ours


def _setting(env_id: str | None) -> str | None:
    return {known: setting for setting, known in IDS.items()}.get(env_id or "")


def measure(demos: Demonstrations) -> Row:
    """Table 1's figures of a Marble Maze set."""
    seen, length = demos.statistics(), np.array([path_length(e) for e in demos])
    return Row(
        pairs=demos.pairs,
        reward=seen["reward"],
        reward_std=seen["reward_std"],
        length=float(length.mean()),
        length_std=float(length.std()),
        steps=seen["steps"],
        steps_std=seen["steps_std"],
    )
