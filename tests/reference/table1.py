"""The paper's Table 1: figures of its 40 recorded demonstrations per tray."""

from typing import NamedTuple


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
    "simple": Row(850, (-4.50 - 10 * 21.25) / 15, None, 256.04, 134.01, 21.25, 8.62),
    "multiple": Row(1204, -20.85, 12.02, 265.10, 138.28, 30.10, 16.33),
    "two-modes": Row(1067, -18.30, 8.51, 280.49, 129.48, 26.67, 11.69),
}
