"""What `scopil demos check` says about the numbers of a set: ranges, bounds, columns, copies, and odd jumps."""

from collections.abc import Iterator

import gymnasium as gym
import numpy as np

from scopil.cli.finding import Finding
from scopil.demos.dataset import Demonstrations

JUMP = 5.0  # times the largest other step of a game: no physics does that at the very end of most games
NAMED = 8  # columns to name at most


def numbers(demos: Demonstrations) -> Iterator[Finding]:
    yield Finding(
        "observations",
        f"{_short(demos.observation_space)}, {range_of(demos.observations)}, all finite and inside",
    )
    yield Finding("actions", f"{_short(demos.action_space)}, {_actions(demos)}, all finite and inside")
    yield from _constant(demos)
    yield _copies(demos)
    yield from _jumps(demos)


def range_of(array: np.ndarray) -> str:
    return f"from {array.min():.6g} to {array.max():.6g}"


def _short(space: gym.spaces.Box | gym.spaces.Discrete) -> str:
    """A large Box prints all its bounds; shape and dtype are what one looks for."""
    return f"Box{space.shape} {space.dtype}" if isinstance(space, gym.spaces.Box) else str(space)


def _actions(demos: Demonstrations) -> str:
    space, actions = demos.action_space, demos.actions
    if isinstance(space, gym.spaces.Discrete):
        used = len(np.unique(actions))
        return f"{range_of(actions)}, {used} of {space.n} used"
    at = (actions == space.low) | (actions == space.high)
    return f"{range_of(actions)}, {100 * at.mean():.3g} % of components exactly at a bound"


def _constant(demos: Demonstrations) -> Iterator[Finding]:
    """Columns that tell nothing, or are there by mistake."""
    rows = demos.observations.reshape(demos.pairs, -1)
    still = np.flatnonzero((rows == rows[0]).all(axis=0))
    if len(still) and demos.pairs > 1:
        which = ", ".join(map(str, still[:NAMED])) + (", …" if len(still) > NAMED else "")
        yield Finding("columns", f"{len(still)} of {rows.shape[1]} never change: {which}", doubt=True)


def _copies(demos: Demonstrations) -> Finding:
    games = len(demos) - len({(e.observations.tobytes(), e.actions.tobytes()) for e in demos})
    pairs = demos.pairs - len({(o.tobytes(), a.tobytes()) for o, a in zip(demos.observations, demos.actions)})
    said = f"{games} games are copies of others" if games else "none: every game is different"
    return Finding(
        "duplicates", f"{said}; {pairs} of {demos.pairs} pairs stood there before", doubt=games > 0
    )


def _jumps(demos: Demonstrations) -> Iterator[Finding]:
    """Recorders that reset too early write the next game's first observation as this one's last. It shows in columns
    that move slowly."""
    factors = []
    for e in demos:
        rows = e.observations.reshape(len(e) + 1, -1).astype(np.float64)
        if np.array_equal(rows[-1], rows[-2]):
            rows = rows[:-1]  # the last observation stands there twice where it was not recorded
        moved = np.abs(np.diff(rows, axis=0))
        if len(moved) > 2:
            usual = moved[:-1].max(axis=0)
            factors.append(np.max(moved[-1][usual > 0] / usual[usual > 0], initial=0.0))
    far = sum(f > JUMP for f in factors)
    if 2 * far > len(factors):
        yield Finding(
            "last step",
            f"in {far} of {len(demos)} games a number moves about {np.median(factors):.2g} times further on the last "
            f"step than on any before: is the last observation the next game's first?",
            doubt=True,
        )
