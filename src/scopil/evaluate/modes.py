"""Mode coverage: where the demonstrator went both ways round a circle, does the policy?

A game counts for a side when it reaches the hole and breaks no law after its initial state: ploughing through the
circle is no way round it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from scopil.demos.dataset import Demonstrations
from scopil.envs.functional import CompiledEnv, EnvState
from scopil.errors import DatasetError, EnvError
from scopil.evaluate.games import Game, first_states
from scopil.evaluate.metrics import Measures, measure
from scopil.studies.marble_maze.constraints import Circle
from scopil.studies.marble_maze.physics import REACH
from scopil.studies.marble_maze.settings import MarbleParams
from scopil.studies.marble_maze.sides import SIDES, passing_side

GAMES = 40  # a start; a side taken once in ten games is missed with probability 0.015


@dataclass(frozen=True)
class Modes:
    """Games that count, by paired start and side (S, 2), and the sides of the demonstrations (S, 2)."""

    played: np.ndarray
    demonstrated: np.ndarray
    games: int  # played from each start

    def measures(self) -> Measures:
        """both: share of starts from which both sides were taken. divergence: mean over starts of the total
        variation ½ Σ |p − q| between the played split p and the demonstrated split q; without a game that counts it
        is 1. lawful: share of games that count."""
        counted = self.played.sum(axis=1, keepdims=True)
        p = self.played / np.maximum(counted, 1)
        q = self.demonstrated / self.demonstrated.sum(axis=1, keepdims=True)
        apart = np.where(counted[:, 0] > 0, 0.5 * np.abs(p - q).sum(axis=1), 1.0)
        return {
            "both": float((self.played > 0).all(axis=1).mean()),
            "divergence": float(apart.mean()),
            "lawful": float(counted.mean() / self.games),
        }


def has_pairs(demos: Demonstrations | None) -> bool:
    return demos is not None and demos.starts is not None and bool(demos.about.get("paired_episodes"))


def mode_coverage(
    env: CompiledEnv, demos: Demonstrations, play: Callable[[EnvState], list[Game]], games: int = GAMES
) -> Modes:
    """`play` plays one sampled game from each first state it is given."""
    if not has_pairs(demos) or demos.starts is None:
        raise DatasetError(
            f"{demos.name} has no starts with several games; want a set like marble-maze/two-modes-v1."
        )
    circle, hole = _landmarks(env)
    pairs = demos.about["paired_episodes"]
    first = first_states(env, demos.starts[[pair[0] for pair in pairs]])
    again = np.repeat(np.arange(len(pairs)), games)
    played = np.zeros((len(pairs), len(SIDES)), int)
    for start, game in zip(again, play(jax.tree.map(lambda leaf: leaf[again], first))):
        if game.terminated and not measure(game)["avoidable"]:
            played[start, SIDES.index(passing_side(game.info["position"], circle, hole))] += 1
    demonstrated = np.zeros_like(played)
    for start, pair in enumerate(pairs):
        for index in pair:
            path = demos.episodes[index].observations[:, :2].astype(np.float64) * REACH
            demonstrated[start, SIDES.index(passing_side(path, circle, hole))] += 1
    return Modes(played, demonstrated, games)


def _landmarks(env: CompiledEnv) -> tuple[Circle, tuple[float, float]]:
    if isinstance(env.params, MarbleParams):
        circles = [c for c in env.params.constraints if isinstance(c, Circle)]
        if len(circles) == 1:
            return circles[0], env.params.hole
    raise EnvError(f"{type(env.env).__name__}: sides are defined for a Marble Maze with one circle.")
