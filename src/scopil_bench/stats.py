"""Statistics over independent runs. The unit is the seed: episodes of one policy are not independent, seeds are."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy import stats as scipy_stats

from scopil.eval.measures import clopper_pearson_upper

Values = Sequence[float] | np.ndarray
Interval = tuple[float, float]
EXACT_UP_TO = 20_000  # maximum number of splits of two samples; if there are more, this many are drawn at random


def mean_std(values: Values) -> tuple[float, float]:
    """Mean and population standard deviation, as the paper prints them."""
    return float(np.mean(values)), float(np.std(values))


def iqm(values: Values, axis: int = 0) -> Any:
    """Interquartile mean: the mean without the lowest and the highest ⌊n/4⌋ values (Agarwal et al. 2021)."""
    return scipy_stats.trim_mean(np.asarray(values, np.float64), 0.25, axis=axis)


def bootstrap_interval(
    values: Values, statistic: Callable[..., Any] = iqm, level: float = 0.95, resamples: int = 2_000, seed: int = 0
) -> Interval:
    """Percentile interval of a statistic over seeds. With few seeds it is too narrow (tests/bench/test_stats.py)."""
    values = np.asarray(values, np.float64)
    if len(values) == 1:  # SciPy needs at least two values
        return float(values[0]), float(values[0])
    found = scipy_stats.bootstrap(
        (values,),
        statistic,
        n_resamples=resamples,
        vectorized=True,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def upper_bound(hits: Sequence[int], trials: Sequence[int], level: float = 0.95) -> float:
    """One-sided upper bound on the probability of a hit, from the hits and trials of each seed. Trials of one seed are
    not independent, so the result is the larger of two bounds: Clopper–Pearson over all trials, and Student's t over
    the seeds' hit rates."""
    pooled = clopper_pearson_upper(sum(hits), sum(trials), level)
    seeds = len(hits)
    if seeds < 2:
        return pooled
    shares = np.asarray(hits) / np.asarray(trials)
    margin = scipy_stats.t.ppf(level, seeds - 1) * shares.std(ddof=1) / math.sqrt(seeds)
    return max(pooled, min(float(shares.mean() + margin), 1.0))


def permutation_test(a: Values, b: Values, seed: int = 0) -> float:
    """Two-sided p-value of a difference of means under exchange of labels. It is exact up to EXACT_UP_TO splits. If
    there are more, EXACT_UP_TO splits are drawn at random; the observed split counts as a draw, so p is never 0."""
    return _permutation_test(tuple(map(float, a)), tuple(map(float, b)), seed)


@cache  # a report page uses the same test in several places
def _permutation_test(first: tuple[float, ...], second: tuple[float, ...], seed: int) -> float:
    a, b = np.asarray(first), np.asarray(second)
    if min(len(a), len(b)) == 1:  # SciPy rejects this; the single value determines the split
        alone, others = (a, b) if len(a) == 1 else (b, a)
        pooled = np.concatenate([alone, others])
        gaps = np.abs(pooled - (pooled.sum() - pooled) / len(others))
        return float(np.mean(gaps >= gaps[0] - 1e-12))
    splits = math.comb(len(a) + len(b), len(a))
    found = scipy_stats.permutation_test(
        (a, b),
        lambda a, b, axis: np.abs(np.mean(a, axis=axis) - np.mean(b, axis=axis)),
        permutation_type="independent",
        vectorized=True,
        n_resamples=min(splits, EXACT_UP_TO),
        alternative="greater",  # of the absolute difference
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def smallest_p(a: int, b: int) -> float:
    """The smallest p-value of `permutation_test` for samples of these sizes."""
    splits = math.comb(a + b, a)
    return max((1 + (a == b)) / splits, 1 / (EXACT_UP_TO + 1))  # for equal sizes, the mirrored split is equally extreme


def holm(p_values: Values) -> list[float]:
    """P-values of several comparisons, corrected by Holm's method: the i-th smallest of n is multiplied by n − i + 1,
    and is at least the previous corrected value. Rejecting at corrected p ≤ α gives P(any false discovery) ≤ α."""
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return corrected.tolist()
