"""Test of whether two sets of initial observations come from the same distribution. Its level is exact for any sizes.

Components are replaced by their ranks. For each component, and for all of them together, the energy distance is

    d = −Σ_ij a_i a_j |x_i − x_j|        a_i = 1/N for the N rows of the one set, −1/n for the n rows of the other

The same distances are computed for random exchanges of rows between the sets. Each kind of distance is divided by its
spread over all exchanges. The statistic is the largest of them, and p its rank among the exchanges. The true assignment
counts as one of them, so P(p ≤ level) ≤ level if the rows are exchangeable.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist
from scipy.stats import rankdata

EXCHANGES = 999
MOST = 2000  # rows of a set that are compared: memory grows with the square
TOGETHER = "all components together"


@dataclass(frozen=True)
class Difference:
    component: str
    p: float  # probability of so large a distance in any component, by chance
    demonstrated: float | None  # median
    played: float | None


@dataclass(frozen=True)
class Shift:
    p: float
    compared: tuple[int, int]  # rows of the policy's episodes and of the demonstrations
    components: tuple[Difference, ...]  # the smallest p first


def shift_of(
    played: Float[np.ndarray, "N D"], shown: Float[np.ndarray, "n D"], names: Sequence[str], rng: np.random.Generator
) -> Shift:
    """Compare the initial observations of a policy's episodes with those of demonstrations."""
    played, shown = played[:MOST], shown[:MOST]
    rows = np.concatenate([played, shown]).astype(np.float64)
    x = (rankdata(rows, axis=0) - 1.0) / len(rows)
    weight = np.repeat([1.0 / len(played), -1.0 / len(shown)], [len(played), len(shown)])
    ways = np.concatenate([weight[None], rng.permuted(np.tile(weight, (EXCHANGES, 1)), axis=1)])
    distance = np.stack(
        [*(_along(column, ways) for column in x.T), -np.sum((ways @ cdist(x, x)) * ways, axis=1)], axis=1
    )
    spread = distance.std(0)
    scaled = (distance - distance.mean(0)) / np.where(spread > 1e-12, spread, 1.0)
    largest = scaled.max(1)
    p = [float((largest >= one - 1e-9).mean()) for one in scaled[0]]  # 1e-9: rounding of equal values
    found = [
        Difference(name, one, float(np.median(shown[:, i])), float(np.median(played[:, i])))
        for i, (name, one) in enumerate(zip(names, p))
    ]
    found.append(Difference(TOGETHER, p[-1], None, None))
    return Shift(min(p), (len(played), len(shown)), tuple(sorted(found, key=lambda d: d.p)))


def _along(x: Float[np.ndarray, " M"], ways: Float[np.ndarray, "W M"]) -> Float[np.ndarray, " W"]:
    """The energy distance of one component: 2 ∫ (F − G)², with F and G the two distribution functions."""
    order = np.argsort(x)
    gap = np.diff(x[order])
    return 2.0 * np.cumsum(ways[:, order], axis=1)[:, :-1] ** 2 @ gap
