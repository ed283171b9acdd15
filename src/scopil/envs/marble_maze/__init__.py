"""Marble Maze: a ball on a tilting tray, with rules that have no physical effect."""

from scopil.envs.marble_maze.constraints import (
    SETTINGS,
    Circle,
    Constraint,
    HorizontalLine,
    MarbleParams,
    Rectangle,
    VerticalLine,
)
from scopil.envs.marble_maze.env import MarbleMaze

__all__ = [
    "SETTINGS",
    "Circle",
    "Constraint",
    "HorizontalLine",
    "MarbleMaze",
    "MarbleParams",
    "Rectangle",
    "VerticalLine",
]
