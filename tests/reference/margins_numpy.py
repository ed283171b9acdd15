"""Signed distances to Marble Maze's constraints in plain NumPy, from the constraints' numbers alone."""

from typing import Any

import numpy as np


def margins(constraints: Any, positions: np.ndarray) -> np.ndarray:
    """(T, constraints), negative where a rule is violated."""
    x, y = positions.T
    columns = []
    for c in constraints:
        match c.rule:
            case "circle":
                columns.append(np.sqrt((x - c.x) ** 2 + (y - c.y) ** 2) - c.radius)
            case "horizontal":
                columns.append(c.above * (y - c.y))
            case "vertical":
                columns.append(c.right * (x - c.x))
            case other:
                raise NotImplementedError(other)
    return np.stack(columns, -1)
