"""The paper's three settings. The paper gives its geometry only as a picture; these numbers were chosen so that an
unconstrained SAC violates the rules about as often as in the paper."""

from typing import NamedTuple

from scopil.envs.marble_maze.constraints import Circle, Constraint, HorizontalLine, VerticalLine


class MarbleParams(NamedTuple):
    """The tray as data: pass another one to `MarbleMaze` to draw your own constraints."""

    constraints: tuple[Constraint, ...] = ()
    hole: tuple[float, float] = (-144.0, -144.0)  # px
    start_distance: float = 40.0  # px; episodes start at least this far from the hole
    max_steps: int = 200  # an episode that has not reached the hole by then times out


_LINE = HorizontalLine(-160.0)

SIMPLE = MarbleParams((_LINE, Circle(-50.0, -60.0, 45.0)))
MULTIPLE = MarbleParams(
    (
        _LINE,
        VerticalLine(-160.0),
        Circle(-50.0, -60.0, 30.0),
        Circle(62.0, -22.0, 28.0),
        Circle(-104.0, 48.0, 26.0),
        Circle(22.0, 84.0, 28.0),
        Circle(-2.0, -128.0, 20.0),
        Circle(124.0, 66.0, 26.0),
        Circle(96.0, -112.0, 26.0),
    )
)
TWO_MODES = SIMPLE  # the demonstrations differ, the tray does not

SETTINGS: dict[str, MarbleParams] = {"simple": SIMPLE, "multiple": MULTIPLE, "two-modes": TWO_MODES}
