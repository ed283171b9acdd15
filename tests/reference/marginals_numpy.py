"""The tables of SCOPIL-ρ by hand, in float64 NumPy: features, cells, histograms, thresholds, novelty, Welch's t, the
step of a multiplier, the cut of drifting components. Shares no code with scopil.losses or scopil.algos."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

UNSEEN = 4  # the bin of values that no demonstration has


@dataclass
class Axis:
    """One axis of a table: `bins` bins of width `width` from `low` on; σ of the blur in bins."""

    column: int
    low: float
    width: float
    bins: int
    sigma: float = 0.0


def cell(row: np.ndarray, axes: Sequence[Axis]) -> tuple[int, ...]:
    return tuple(min(max(math.floor((float(row[a.column]) - a.low) / a.width), 0), a.bins - 1) for a in axes)


def spread(axis: Axis, at: int) -> np.ndarray:
    """The mass of one value that lies in bin `at`, over all bins."""
    if axis.sigma == 0:
        return np.eye(axis.bins)[at]
    mass = np.array([math.exp(-((i - at) ** 2) / (2 * axis.sigma**2)) for i in range(axis.bins)])
    # As in a matrix whose columns sum to 1: mass beyond the last bin goes back to the bins that there are.
    return mass / mass.sum()


def histogram(values: np.ndarray, use: np.ndarray, axes: Sequence[Axis]) -> np.ndarray:
    """The blurred histogram of the rows in use; 0 everywhere if there are none."""
    total = np.zeros([a.bins for a in axes])
    for row in values[use]:
        mass = np.ones(())
        for axis, at in zip(axes, cell(row, axes)):
            mass = np.multiply.outer(mass, spread(axis, at))
        total += mass / use.sum()
    return total


def quantile(values: list[float], q: float) -> float:
    """With linear interpolation between the neighbours."""
    v = sorted(values)
    place = q * (len(v) - 1)
    below = math.floor(place)
    above = min(below + 1, len(v) - 1)
    return v[below] + (place - below) * (v[above] - v[below])


def outermost(e: np.ndarray, b: np.ndarray, axis: int, ends: str, tail: float, epsilon: float) -> np.ndarray:
    """The cells up to which ("low" in `ends`), or from which on ("high"), at most a share `tail` of their slice along
    `axis` lies; none in slices where E has at most ε times the mass of B."""
    found = np.zeros(e.shape, bool)
    for line, own, out in zip(*(np.moveaxis(x, axis, -1).reshape(-1, e.shape[axis]) for x in (e, b, found))):
        if sum(line) <= epsilon * sum(own):
            continue
        below, above = list(accumulate(line)), list(accumulate(line[::-1]))[::-1]
        beyond = ([below] if "low" in ends else []) + ([above] if "high" in ends else [])
        out[:] = [min(masses) <= tail * below[-1] for masses in zip(*beyond)]
    return found


def distance_of_episodes(values: np.ndarray, episode: np.ndarray, share: float) -> float:
    """The share-quantile of every value's distance to the nearest value of another episode."""
    apart = [min(abs(v - w) for w, f in zip(values, episode) if f != e) for v, e in zip(values, episode)]
    return quantile(apart, share)


@dataclass
class Table:
    f: np.ndarray  # (K, …)
    tau: np.ndarray  # (K,)
    novelty: np.ndarray  # c
    demo: np.ndarray  # c of every demonstrated row, by the fold that has not seen it


def table(
    axes: Sequence[Axis],
    demos: tuple[np.ndarray, np.ndarray],
    fold: np.ndarray,
    own: tuple[np.ndarray, np.ndarray],
    newest: tuple[np.ndarray, np.ndarray],
    folds: int,
    q: float,
    epsilon: float,
    limited: int | None = None,
    tail: float = 0.0,
    ends: str = "low high",
    rare: float = 0.5,
) -> Table:
    """f_k = log (ρ_B + ε ρ_A)/(ρ_E^−k + ε ρ_A), τ_k = max(0, quantile of held-out f_k), c = mean_k [f_k − τ_k]₀¹. With
    a limit along the axis `limited`, f_k is at most 0 in cells that are not outermost at the ends `ends`. Without one,
    f_k is at most 0 where ρ_E^−k is not below its `rare`-quantile over its own demonstrations."""
    values, use = demos
    b, a = histogram(*own, axes), histogram(*newest, axes)
    f, tau = [], []
    for k in range(folds):
        e = histogram(values, use & (fold != k), axes)
        f.append(np.log((b + epsilon * a + 1e-7) / (e + epsilon * a + 1e-7)))
        if limited is not None:
            novel = outermost(e, b, limited, ends, tail, epsilon)
        else:
            seen = [e[cell(row, axes)] for row in values[use & (fold != k)]]
            novel = e < (quantile(seen, rare) if seen else 0.0)
        f[k] = np.where(novel, f[k], np.minimum(f[k], 0.0))
        held_out = [f[k][cell(row, axes)] for row in values[use & (fold == k)]]
        tau.append(max(0.0, quantile(held_out, q)) if held_out else 0.0)
    above = [np.minimum(np.maximum(f[k] - tau[k], 0.0), 1.0) for k in range(folds)]
    demo = np.array([above[k][cell(row, axes)] for row, k in zip(values, fold)])
    return Table(np.stack(f), np.array(tau), np.mean(above, axis=0), demo)


def episode_means(values: np.ndarray, episode: np.ndarray, use: np.ndarray) -> dict[int, float]:
    return {int(e): float(np.mean(values[use & (episode == e)])) for e in np.unique(episode[use])}


def welch(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """The difference of the means and Welch's t."""
    gap = float(np.mean(a) - np.mean(b))
    return gap, gap / math.sqrt(np.var(a, ddof=1) / len(a) + np.var(b, ddof=1) / len(b))


def dual_step(mu: float, own: float, budget: float, rates: tuple[float, float], most: float) -> float:
    """μ ← [μ + η (E_π[c] − b)/(E_π[c] + b)]₊, at most `most`. 10⁻³ in the divisor: both may be 0. `rates`: η, and the
    factor for a step down."""
    step = rates[0] * (own - budget) / (own + budget + 1e-3)
    return min(max(mu + (step if step > 0 else rates[1] * step), 0.0), most)


def features(
    obs: np.ndarray,
    action: np.ndarray,
    next_obs: np.ndarray,
    used: Sequence[int],
    vectors: Sequence[tuple[Sequence[int], Sequence[int]]],
    shown: np.ndarray,
) -> np.ndarray:
    """Rows of: components of s', norms and distances of s' (`vectors`), components of s, categories of the components
    of s', the action, 0. `shown` are demonstrated observations: a component has a category if it has two to four
    values there."""
    rows = []
    for s, a, after in zip(obs, action, next_obs):
        row = [after[i] for i in used]
        for plus, minus in vectors:
            other = after[list(minus)] if len(minus) else np.zeros(len(plus))
            row.append(np.linalg.norm(after[list(plus)] - other))
        row += [s[i] for i in used]
        for i in used:
            kinds = sorted(set(shown[:, i].tolist()))
            known = 2 <= len(kinds) <= 4 and after[i] in kinds
            row.append(kinds.index(after[i]) if known else UNSEEN)
        rows.append([*row, *np.atleast_1d(a), 0.0])
    return np.array(rows, np.float64)


def cut_off(paths: Sequence[np.ndarray], terminates: bool, one_way: float, share: float) -> list[tuple[float, float]]:
    """Per component: ±1 and the value that a share 1 − `share` of the episodes passes in this direction, for components
    that drift one way until the end of the episodes; (0, 0) for others. `paths` are the states of each episode."""
    found = []
    for i in range(paths[0].shape[1]):
        net, late = [], []
        for path in paths:
            x, steps = path[:, i], len(path) - 1
            reach = max(x.max() - x.min(), 1e-6)
            net.append((x[-1] - x[0]) / reach)
            late.append((x[-1] - x[int(0.9 * (steps - 1))]) / reach)
        way = math.copysign(1.0, np.mean(net))
        if terminates or abs(np.mean(net)) <= one_way or np.mean(late) * way <= 0.05:
            found.append((0.0, 0.0))
        else:
            found.append((way, quantile([way * path[-1, i] for path in paths], share)))
    return found
