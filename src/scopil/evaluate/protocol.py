# merge: delete this file; it keeps the old agents.py and train/run.py working until they are replaced.
"""Old names of `starts` and `episodes`."""

from scopil.evaluate import episodes
from scopil.evaluate.adapters import Policy
from scopil.evaluate.starts import demos_for, starts_from, watched_from, watched_starts

__all__ = ["demos_for", "player", "starts_from", "usual_starts", "watched_starts"]
usual_starts = watched_from


def player(env, algorithm, mode):
    play = episodes.player(env, mode)
    return lambda learner, first, key: play(Policy(learner, algorithm), first, key)
