# merge: delete this file; it keeps the old agents.py, train/run.py and cli/sets.py working until they are replaced.
"""Old names of `measures`."""

from scopil.evaluate.measures import Measures, average
from scopil.evaluate.measures import measure as _measure

__all__ = ["Measures", "average", "measure"]


def measure(episode):
    from scopil.studies.marble_maze.paths import measures

    return _measure(episode, measures if "position" in episode.info else None)
