"""Against closed forms and counting by hand."""

import math
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scopil_bench import stats


def test_mean_deviation_and_interquartile_mean():
    assert stats.mean_std([1.0, 2.0, 3.0, 6.0]) == pytest.approx((3.0, math.sqrt((4 + 1 + 0 + 9) / 4)))
    assert stats.iqm([100.0, 1.0, 2.0, -50.0]) == 1.5
    assert stats.iqm([7.0]) == 7.0
    ten = np.array([0, 0, 1, 2, 3, 4, 5, 6, 1e6, 1e9])
    assert stats.iqm(ten) == pytest.approx(3.5)


def test_bootstrap_of_a_mean_matches_the_normal_interval():
    values = np.random.default_rng(1).normal(5.0, 2.0, size=400)
    assert stats.bootstrap_interval([2.0]) == (2.0, 2.0)
    low, high = stats.bootstrap_interval(values, np.mean, level=0.9)
    half = 1.645 * values.std() / math.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)


@pytest.mark.parametrize(("seeds", "share"), [(3, 0.7), (5, 0.85), (10, 0.9)])
def test_bootstrap_of_few_seeds_is_too_narrow(seeds, share):
    """As the report and docs/reproduce.md say."""
    rng = np.random.default_rng(5)
    intervals = [stats.bootstrap_interval(rng.normal(size=seeds), np.mean, resamples=500) for _ in range(400)]
    assert np.mean([low <= 0 <= high for low, high in intervals]) == pytest.approx(share, abs=0.05)


def test_bootstrap_is_repeatable_and_moves_with_its_seed():
    values = [0.1, 0.5, 0.2, 0.9, 0.3]
    assert stats.bootstrap_interval(values, seed=3) == stats.bootstrap_interval(values, seed=3)
    few = {stats.bootstrap_interval(values, resamples=50, seed=s) for s in range(5)}
    assert len(few) > 1


def test_no_hits_and_all_but_one_have_closed_bounds():
    """P(X ≤ 0) = (1 − p)ⁿ and P(X ≤ n−1) = 1 − pⁿ."""
    for n, level in ((1, 0.95), (40, 0.95), (400, 0.99)):
        assert stats.clopper_pearson_upper(0, n, level) == pytest.approx(1 - (1 - level) ** (1 / n), rel=1e-12)
    assert stats.clopper_pearson_upper(6, 7) == pytest.approx(0.95 ** (1 / 7), rel=1e-12)
    assert stats.clopper_pearson_upper(7, 7) == 1.0
    with pytest.raises(ValueError, match="4 hits in 3"):
        stats.clopper_pearson_upper(4, 3)


def test_seeds_that_differ_widen_the_bound():
    """Student's bound of the shares 0.1, 0.2, 0.6; equal shares leave Clopper and Pearson's, and so does one seed."""
    t95 = 2.919985580355516  # of two degrees of freedom
    expected = 0.3 + t95 * math.sqrt((0.04 + 0.01 + 0.09) / 2 / 3)
    assert stats.upper_bound([10, 20, 60], [100] * 3) == pytest.approx(expected)
    assert stats.upper_bound([10] * 3, [100] * 3) == stats.clopper_pearson_upper(30, 300)
    assert stats.upper_bound([0] * 3, [100] * 3) == stats.clopper_pearson_upper(0, 300)
    assert stats.upper_bound([3], [40]) == stats.clopper_pearson_upper(3, 40)
    assert stats.upper_bound([0, 40], [40, 40]) == 1.0


@pytest.mark.parametrize(("a", "b"), [(3, 3), (4, 4), (3, 5), (1, 4)])
def test_the_smallest_p_is_that_of_samples_apart(a, b):
    assert stats.permutation_test(np.arange(a), 100.0 + np.arange(b)) == pytest.approx(stats.smallest_p(a, b))


def test_bound_by_counting():
    """At the bound, as few hits or fewer have a probability of exactly 5 %."""
    for k, n in ((0, 5), (4, 12), (7, 9)):
        p = stats.clopper_pearson_upper(k, n)
        tail = sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))
        assert tail == pytest.approx(0.05, rel=1e-9)


@pytest.mark.parametrize(
    ("a", "b"),
    [([1.0, 4.0, 2.5], [3.0, 5.0, 6.0, 2.0]), ([7.0], [1.0, 2.0, 3.5]), ([1.0, 2.0, 3.5, 0.5], [2.5]), ([1.0], [9.0])],
)
def test_permutation_test_by_going_through_every_order(a, b):
    pooled, observed, n = a + b, abs(np.mean(a) - np.mean(b)), len(a)
    orders = list(permutations(range(len(pooled))))
    gaps = [abs(np.mean([pooled[i] for i in o[:n]]) - np.mean([pooled[i] for i in o[n:]])) for o in orders]
    assert stats.permutation_test(a, b) == pytest.approx(np.mean(np.array(gaps) >= observed - 1e-9))


def test_permutation_test_separates_and_does_not():
    rng = np.random.default_rng(0)
    near, far = rng.normal(0, 1, (2, 10)), rng.normal(3, 1, 10)  # C(20, 10) = 184 756: drawn
    assert stats.permutation_test(near[0], far) < 0.001
    assert stats.permutation_test(near[0], near[1]) > 0.05
    assert stats.permutation_test([1.0, 1.0], [1.0, 1.0]) == 1.0


def test_permutation_p_values_are_uniform_when_nothing_differs():
    rng = np.random.default_rng(2)
    p = [stats.permutation_test(*rng.normal(size=(2, 5))) for _ in range(200)]
    assert 0.02 < np.mean(np.array(p) <= 0.1) < 0.18


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6))
def test_holm_is_the_closed_test_of_bonferronis(p):
    """A comparison is corrected to the largest |S| · min p over all subsets S that contain it."""
    subsets = [s for size in range(1, len(p) + 1) for s in combinations(range(len(p)), size)]
    wanted = [min(1.0, max(len(s) * min(p[j] for j in s) for s in subsets if i in s)) for i in range(len(p))]
    assert stats.holm(p) == pytest.approx(wanted)
