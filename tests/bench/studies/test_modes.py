"""Mode coverage of episodes with known sides: demonstrations, replayed in chosen mixtures."""

from dataclasses import replace

import numpy as np
import pytest

from scopil.data.storage import load_demos
from scopil.envs.gym_env import compile_env
from scopil.errors import DatasetError, EnvError
from scopil.eval.episodes import replay
from scopil_bench.studies.paper.modes import PAIRS, Modes, has_pairs, mode_coverage

EPISODES = 4


@pytest.fixture(scope="module")
def env():
    return compile_env("scopil/MarbleMaze-TwoModes-v0")


@pytest.fixture(scope="module")
def demos():
    return load_demos("marble-maze/two-modes-v1")


@pytest.fixture(scope="module")
def shown(env, demos):
    """Demonstrated episodes by pair: (left, right)."""
    episodes = replay(env, demos)
    return [(episodes[i], episodes[j]) for i, j in demos.about[PAIRS]]


def coverage(env, demos, choose):
    """`choose(start, k)` returns the k-th episode from a start."""
    pairs = len(demos.about[PAIRS])

    def play(first):
        assert first.steps.shape == (pairs * EPISODES,)
        assert np.asarray(first.obs[0]) == pytest.approx(np.asarray(first.obs[EPISODES - 1]))
        return [choose(i, k) for i in range(pairs) for k in range(EPISODES)]

    return mode_coverage(env, demos, play, EPISODES).measures()


@pytest.mark.parametrize(
    ("side", "both", "divergence"),
    [(lambda k: k % 2, 1.0, 0.0), (lambda k: 0, 0.0, 0.5), (lambda k: k == 0, 1.0, 0.25)],
    ids=["half and half", "one side", "one in four"],
)
def test_the_split_between_the_sides_is_measured(side, both, divergence, env, demos, shown):
    got = coverage(env, demos, lambda start, k: shown[start][side(k)])
    assert got == {"both": both, "divergence": pytest.approx(divergence), "lawful": 1.0}


def test_an_episode_without_the_hole_or_with_a_violation_counts_for_no_side(env, demos, shown):
    def choose(start, k):
        left, right = shown[start]
        if k % 2 == 0:
            return left
        if start % 2:
            return replace(right, terminated=False, truncated=True)
        cost = right.info["cost_circle"].copy()
        cost[3] = 1.0
        return replace(right, info=right.info | {"cost_circle": cost})

    assert coverage(env, demos, choose) == {"both": 0.0, "divergence": 0.5, "lawful": 0.5}


def test_a_start_without_an_episode_that_counts_has_the_largest_divergence():
    got = Modes(np.array([[0, 0], [2, 2]]), np.array([[1, 1], [1, 1]]), 4).measures()
    assert got == {"both": 0.5, "divergence": 0.5, "lawful": 0.5}


def test_sets_and_trays_without_two_sides_are_refused(env, demos):
    simple = load_demos("marble-maze/simple-v1")
    assert has_pairs(demos)
    assert not has_pairs(simple)
    assert not has_pairs(None)
    with pytest.raises(DatasetError, match="paired"):
        mode_coverage(env, simple, lambda first: [])
    with pytest.raises(EnvError, match="one circle"):
        mode_coverage(compile_env("scopil/MarbleMaze-Multiple-v0"), demos, lambda first: [])
