"""Mode coverage: does a policy pass a circle on both sides if both sides were demonstrated?

An episode counts for a side if it reaches the hole and has no violation after its initial state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.base import BatchEnv, EnvState
from scopil.envs.marble_maze.constraints import Circle, MarbleParams
from scopil.envs.marble_maze.physics import REACH
from scopil.errors import DatasetError, EnvError
from scopil.eval.episodes import play
from scopil.eval.measures import Measures, measure
from scopil.registry import find
from scopil_bench.marble_maze.planner import SIDES, passing_side

if TYPE_CHECKING:
    from scopil_bench.studies.base import FinishedRun
    from scopil_bench.summaries import Results

PAIRS = "paired_episodes"
EPISODES = 40  # per start; a side with probability 0.1 is missed with probability 0.015
SEED = 1


@dataclass(frozen=True)
class Modes:
    """Numbers of counted episodes and of demonstrations, each by paired start and side (S, 2)."""

    played: np.ndarray
    demonstrated: np.ndarray
    episodes: int  # number of episodes played from each start

    def measures(self) -> Measures:
        """both: share of starts with episodes on both sides. divergence: mean over starts of the total variation
        ½ Σ |p − q| between the played split p and the demonstrated split q, or 1 if no episode counts. lawful: share
        of episodes that count."""
        counted = self.played.sum(axis=1, keepdims=True)
        p = self.played / np.maximum(counted, 1)
        q = self.demonstrated / self.demonstrated.sum(axis=1, keepdims=True)
        apart = np.where(counted[:, 0] > 0, 0.5 * np.abs(p - q).sum(axis=1), 1.0)
        return {
            "both": float((self.played > 0).all(axis=1).mean()),
            "divergence": float(apart.mean()),
            "lawful": float(counted.mean() / self.episodes),
        }


def has_pairs(demos: Demonstrations | None) -> bool:
    return demos is not None and demos.starts is not None and bool(demos.about.get(PAIRS))


def modes_of(finished: "FinishedRun") -> dict[str, Measures]:
    """Extra measures of a run: mode coverage, if its demonstrations have paired starts."""
    env, demos = finished.env, finished.demos
    if demos is None or not has_pairs(demos) or not env.can_start_at:
        return {}
    sample = lambda first: play(env, finished.policy, first, jax.random.key(SEED), "sampled")  # noqa: E731
    found = mode_coverage(env, demos, sample)
    return {"modes": found.measures()}


def mode_coverage(
    env: BatchEnv, demos: Demonstrations, play: Callable[[EnvState], list[Episode]], episodes: int = EPISODES
) -> Modes:
    """Mode coverage of `play`, which plays one sampled episode from each given initial state."""
    if not has_pairs(demos) or demos.starts is None:
        raise DatasetError(f"{demos.name} has no paired starts; want a set like marble-maze/two-modes-v1.")
    circle, hole = _landmarks(env)
    pairs = demos.about[PAIRS]
    first = env.starts_at(demos.starts[[pair[0] for pair in pairs]])
    again = np.repeat(np.arange(len(pairs)), episodes)
    played = np.zeros((len(pairs), len(SIDES)), int)
    for start, episode in zip(again, play(jax.tree.map(lambda leaf: leaf[again], first))):
        if episode.terminated and not measure(episode)["avoidable"]:
            played[start, SIDES.index(passing_side(episode.info["position"], circle, hole))] += 1
    demonstrated = np.zeros_like(played)
    for start, pair in enumerate(pairs):
        for index in pair:
            path = demos.episodes[index].observations[:, :2].astype(np.float64) * REACH
            demonstrated[start, SIDES.index(passing_side(path, circle, hole))] += 1
    return Modes(played, demonstrated, episodes)


def mode_tables(setting: str, results: "Results") -> list[Any]:
    """Mode coverage of every method, after the tables of a setting with paired starts."""
    from scopil_bench.report.page import Text
    from scopil_bench.report.study_tables import Layout, extra_grid

    headings = {"both": "Both sides", "divergence": "Divergence", "lawful": "Lawful episodes"}
    grid = extra_grid(Layout({}, lambda name: find(name).title), results, setting, "modes", headings)
    text = "Sampled episodes from the starts with demonstrations on both sides of the circle."
    return [] if grid is None else [Text(text), grid]


def _landmarks(env: BatchEnv) -> tuple[Circle, tuple[float, float]]:
    if isinstance(env.params, MarbleParams):
        circles = [c for c in env.params.constraints if isinstance(c, Circle)]
        if len(circles) == 1:
            return circles[0], env.params.hole
    raise EnvError(f"{env.name}: sides are defined for a Marble Maze with one circle.")
