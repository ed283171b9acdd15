"""Marble Maze: a ball on a tilting tray, with rules that nothing enforces."""

from scopil.studies.marble_maze.constraints import Circle, Constraint, HorizontalLine, Rectangle, VerticalLine
from scopil.studies.marble_maze.env import MarbleMaze
from scopil.studies.marble_maze.settings import SETTINGS, MarbleParams

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
