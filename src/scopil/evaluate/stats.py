"""Statistics over independent runs. The unit is the seed: episodes of one policy share its faults, seeds do not."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats as scipy_stats

Values = Sequence[float] | np.ndarray
Interval = tuple[float, float]
EXACT_UP_TO = 20_000  # ways of splitting two samples that are all tried; beyond, as many are drawn


def mean_std(values: Values) -> tuple[float, float]:
    """Mean and population standard deviation, as the paper prints them."""
    return float(np.mean(values)), float(np.std(values))


def iqm(values: Values) -> float:
    """Interquartile mean: the mean without the lowest and the highest ⌊n/4⌋ values (Agarwal et al. 2021)."""
    return float(scipy_stats.trim_mean(np.asarray(values, np.float64).ravel(), 0.25))


def bootstrap_interval(
    strata: Sequence[Values],
    statistic: Callable[[Values], float] = iqm,
    level: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> Interval:
    """Percentile interval of a statistic of all values together. Each stratum (a setting: its values one per seed) is
    resampled by itself, so that every resample has as many seeds of each as there are."""
    arrays = [np.asarray(s, np.float64) for s in strata]
    varied = [a for a in arrays if len(a) > 1]
    single = [a for a in arrays if len(a) == 1]  # SciPy resamples two values or more
    if not varied:
        value = float(statistic(np.concatenate(single)))
        return value, value

    def resampled(*samples: np.ndarray, axis: int = -1) -> np.ndarray:
        shape = samples[0].shape[:-1]
        together = np.concatenate([*samples, *(np.broadcast_to(a, (*shape, 1)) for a in single)], axis=axis)
        if statistic is iqm:  # at once for all resamples
            return scipy_stats.trim_mean(together, 0.25, axis=axis)
        if statistic is np.mean:
            return together.mean(axis=axis)
        return np.apply_along_axis(statistic, axis, together)

    found = scipy_stats.bootstrap(
        varied,
        resampled,
        n_resamples=resamples,
        vectorized=True,
        paired=False,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def clopper_pearson_upper(k: int, n: int, level: float = 0.95) -> float:
    """Exact one-sided upper bound on a probability after k hits in n trials: the p with P(X ≤ k) = 1 − level.

    The trials are taken to be independent. Episodes of one policy are not quite, so over few seeds read it with the
    share of unsafe seeds beside it.
    """
    if not 0 <= k <= n or n < 1:
        raise ValueError(f"{k} hits in {n} trials")
    return 1.0 if k == n else float(scipy_stats.beta.ppf(level, k + 1, n - k))


def unsafe_share(avoidable: Values) -> float:
    """The share of seeds with any avoidable violation, from each seed's mean or count of them."""
    return float(np.mean(np.asarray(avoidable) > 0))


def permutation_test(a: Values, b: Values, seed: int = 0) -> float:
    """Two-sided p-value of a difference of means under exchange of labels; exact while the splits can be tried.

    When drawn, the observed split counts as one of the draws, so that p is never 0.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if min(len(a), len(b)) == 1:  # SciPy refuses this; a split names the one that stands alone
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
        n_resamples=min(splits, EXACT_UP_TO),  # all of them when they are few
        alternative="greater",  # of the absolute difference
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def holm(p_values: Values) -> list[float]:
    """P-values of several comparisons, corrected by Holm's method: with the i-th smallest multiplied by the number of
    those not smaller, and never below a smaller one's. P(any false discovery) ≤ α when those at most α are believed."""
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return corrected.tolist()
