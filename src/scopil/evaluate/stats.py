"""Statistics over independent runs. The unit is the seed: games of one policy share its faults, seeds do not."""

import math
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

Values = Sequence[float] | np.ndarray
Interval = tuple[float, float]
EXACT_UP_TO = 20_000  # ways of splitting two samples that are all tried; beyond, as many are drawn


def mean_std(values: Values) -> tuple[float, float]:
    """Mean and population standard deviation, as the paper prints them."""
    return float(np.mean(values)), float(np.std(values))


def iqm(values: Values) -> float:
    """Interquartile mean: the mean without the lowest and the highest ⌊n/4⌋ values (Agarwal et al. 2021)."""
    ordered = np.sort(np.asarray(values, np.float64).ravel())
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def bootstrap_interval(
    strata: Sequence[Values],
    statistic: Callable[[Values], float] = iqm,
    level: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> Interval:
    """Percentile interval of a statistic of all values together. Each stratum (a setting: its values one a seed) is
    resampled by itself, so that every resample has as many seeds of each as there are."""
    rng = np.random.default_rng(seed)
    arrays = [np.asarray(s, np.float64) for s in strata]
    drawn = [a[rng.integers(len(a), size=(resamples, len(a)))] for a in arrays]
    found = [statistic(row) for row in np.concatenate(drawn, axis=1)]
    tail = 50.0 * (1.0 - level)
    low, high = np.percentile(found, [tail, 100.0 - tail])
    return float(low), float(high)


def binomial_cdf(k: int, n: int, p: float) -> float:
    """P(X ≤ k) for X ~ Binomial(n, p), summed from logarithms: no term over- or underflows on the way."""
    if p <= 0.0 or k >= n:
        return 1.0
    if p >= 1.0:
        return 0.0
    log_terms = [
        math.lgamma(n + 1)
        - math.lgamma(i + 1)
        - math.lgamma(n - i + 1)
        + i * math.log(p)
        + (n - i) * math.log1p(-p)
        for i in range(k + 1)
    ]
    top = max(log_terms)
    return min(1.0, math.exp(top) * math.fsum(math.exp(t - top) for t in log_terms))


def clopper_pearson_upper(k: int, n: int, level: float = 0.95) -> float:
    """Exact one-sided upper bound on a probability after k hits in n trials: the p with P(X ≤ k) = 1 − level.

    The trials are taken to be independent. Games of one policy are not quite, so over few seeds read it with the
    share of unsafe seeds beside it.
    """
    if not 0 <= k <= n or n < 1:
        raise ValueError(f"{k} hits in {n} trials")
    if k == n:
        return 1.0
    low, high = k / n, 1.0
    for _ in range(80):  # halves: beyond the precision of a double
        middle = 0.5 * (low + high)
        low, high = (middle, high) if binomial_cdf(k, n, middle) > 1.0 - level else (low, middle)
    return high


def unsafe_share(avoidable: Values) -> float:
    """The share of seeds with any avoidable violation, from each seed's mean or count of them."""
    return float(np.mean(np.asarray(avoidable) > 0))


def permutation_test(a: Values, b: Values, seed: int = 0) -> float:
    """Two-sided p-value of a difference of means under exchange of labels; exact while the splits can be tried.

    When drawn, the observed split counts as one of the draws, so that p is never 0.
    """
    pooled = np.concatenate([np.asarray(a, np.float64), np.asarray(b, np.float64)])
    n, total = len(a), len(pooled)
    observed = abs(np.mean(a) - np.mean(b))
    exact = math.comb(total, n) <= EXACT_UP_TO
    if exact:
        chosen = np.array(list(combinations(range(total), n)))
    else:
        rng = np.random.default_rng(seed)
        chosen = np.argsort(rng.random((EXACT_UP_TO, total)), axis=1)[:, :n]
    sums = pooled[chosen].sum(axis=1)
    gaps = np.abs(sums / n - (pooled.sum() - sums) / (total - n))
    as_far = int(np.sum(gaps >= observed - 1e-12 * max(1.0, observed)))
    return as_far / len(gaps) if exact else (as_far + 1) / (len(gaps) + 1)
