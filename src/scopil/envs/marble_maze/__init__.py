"""Marble Maze: a ball on a tilting tray, with rules that have no physical effect."""

from scopil.envs.marble_maze.constraints import Circle, Constraint, HorizontalLine, Rectangle, VerticalLine
from scopil.envs.marble_maze.env import MarbleMaze
from scopil.envs.marble_maze.settings import SETTINGS, MarbleParams

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
