# merge: delete this file; it keeps the old agents.py, cli/demos.py and cli/sets.py working until they are replaced.
"""Old names of `episodes` and `rules`."""

from scopil.evaluate.adapters import Episode as Game
from scopil.evaluate.episodes import replay
from scopil.evaluate.rules import Rules as Cost
from scopil.evaluate.rules import with_rules as with_cost

__all__ = ["Cost", "Game", "replay", "with_cost"]
