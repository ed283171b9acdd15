"""Signed distances to Marble Maze's constraints in plain NumPy, from the constraints' numbers alone."""

from typing import Any

import numpy as np


def margins(laws: Any, positions: np.ndarray) -> np.ndarray:
    """(T, constraints), negative where a law is broken."""
    x, y = positions.T
    columns = []
    for law in laws:
        match law.kind:
            case "circle":
                columns.append(np.sqrt((x - law.x) ** 2 + (y - law.y) ** 2) - law.radius)
            case "horizontal":
                columns.append(law.above * (y - law.y))
            case "vertical":
                columns.append(law.right * (x - law.x))
            case other:
                raise NotImplementedError(other)
    return np.stack(columns, -1)
