"""SAC and SCOPIL for continuous actions in plain float64 NumPy, every gradient by central differences.

Shares no code with scopil. The noise ξ of every sampled action is an argument. Networks and Adam as in soft_numpy;
observations are normalised by statistics recomputed from all samples, actions are in [−1, 1].
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reference import soft_numpy
from reference.soft_numpy import Net, flat, forward, unflat

LOW_STD, HIGH_STD = -5.0, 2.0
Slopes = list[np.ndarray]


@dataclass(frozen=True)
class Settings(soft_numpy.Settings):
    resolution: float = 0.05


@dataclass(kw_only=True)
class Learner(soft_numpy.Learner):
    low: np.ndarray
    high: np.ndarray
    seen: list[np.ndarray] = field(default_factory=list)

    def statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of all rows seen, together with 1e-4 of a row of mean 0 and variance 1."""
        rows = np.concatenate(self.seen)
        total = 1e-4 + len(rows)
        mean = rows.sum(0) / total
        second = (1e-4 + (rows**2).sum(0)) / total
        return mean, second - mean**2

    def view(self, obs: np.ndarray) -> np.ndarray:
        mean, var = self.statistics()
        return np.clip((obs - mean) / np.sqrt(var + 1e-8), -10, 10)

    def unit(self, action: np.ndarray) -> np.ndarray:
        return 2 * (action - self.low) / (self.high - self.low) - 1


# --- the policy ----------------------------------------------------------------------------------------------------


def moments(actor: Net, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """μ and σ of the Gaussian before tanh."""
    out = forward(actor, x)[0]
    half = out.shape[1] // 2
    middle, reach = (HIGH_STD + LOW_STD) / 2, (HIGH_STD - LOW_STD) / 2
    return out[:, :half], np.exp(middle + reach * np.tanh((out[:, half:] - middle) / reach))


def sampled(actor: Net, x: np.ndarray, xi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """tanh(μ + σξ) and its log density: the normal's at u over the slope of tanh there, 1/cosh²u."""
    mu, sigma = moments(actor, x)
    u = mu + sigma * xi
    normal = np.exp(-(((u - mu) / sigma) ** 2) / 2) / (sigma * np.sqrt(2 * np.pi))
    return np.tanh(u), np.log(normal * np.cosh(u) ** 2).sum(1)


def cdf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)))(x)


def log_mass(actor: Net, x: np.ndarray, action: np.ndarray, resolution: float) -> np.ndarray:
    """log of the product over components of P(|a' − a| ≤ ε); an interval that reaches a bound has no end there."""
    mu, sigma = moments(actor, x)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(action - resolution <= -1, -np.inf, np.arctanh(action - resolution))
        high = np.where(action + resolution >= 1, np.inf, np.arctanh(action + resolution))
    return np.log(cdf((high - mu) / sigma) - cdf((low - mu) / sigma)).sum(1)


# --- the objectives ------------------------------------------------------------------------------------------------


def q_value(net: Net, x: np.ndarray, action: np.ndarray) -> np.ndarray:
    return forward(net, np.concatenate([x, action], axis=1))[0][:, 0]


def critic_loss(net: Net, x: np.ndarray, action: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean(0.5 * (q_value(net, x, action) - y) ** 2))


def constraint(actor: Net, demo: tuple[np.ndarray, np.ndarray, np.ndarray], alpha: float, s: Settings) -> float:
    x, action, xi = demo
    dims = action.shape[1]
    entropy = -sampled(actor, x, xi)[1] - dims * np.log(2 * s.resolution)
    weight = 2 * s.beta * alpha if s.entropy_in_constraint else 0.0
    return float(np.mean(-log_mass(actor, x, action, s.resolution) - weight * entropy) - s.delta)


def lagrangian(
    actor: Net, critics: list[Net], x: np.ndarray, xi: np.ndarray, demo: Any, alpha: float, lam: float, s: Settings
) -> float:
    action, log_pi = sampled(actor, x, xi)
    q = np.minimum(*(q_value(net, x, action) for net in critics))
    weight = 2 * (1 - s.beta) * alpha if s.imitates else alpha
    return float(-np.mean(q - weight * log_pi) + (lam * constraint(actor, demo, alpha, s) if s.imitates else 0.0))


def slopes(value: Callable[[Net], float], net: Net, h: float = 1e-6) -> Slopes:
    """Central differences of `value(net)` in every weight and bias."""
    arrays = [a.copy() for a in flat(net)]
    out = [np.zeros_like(a) for a in arrays]
    for array, slope in zip(arrays, out):
        for at in np.ndindex(array.shape):
            kept, ends = array[at], []
            for sign in (1, -1):
                array[at] = kept + sign * h
                ends.append(value(unflat(arrays)))
            array[at] = kept
            slope[at] = (ends[0] - ends[1]) / (2 * h)
    return out


# --- one gradient step ---------------------------------------------------------------------------------------------


def step(
    learner: Learner,
    batch: dict[str, np.ndarray],
    demo: tuple[np.ndarray, np.ndarray] | None,
    noise: tuple[np.ndarray, np.ndarray, np.ndarray],
    s: Settings,
) -> dict[str, float]:
    """critics → policy → temperature → multiplier → targets, in place. Returns what a learner would log."""
    after, now, of_demo = noise
    learner.seen += [batch["obs"]] + ([demo[0]] if demo is not None else [])
    x, x_next, action = (learner.view(batch["obs"]), learner.view(batch["next_obs"]), learner.unit(batch["action"]))
    pairs = None if demo is None else (learner.view(demo[0]), learner.unit(demo[1]), of_demo)
    alpha = float(np.exp(learner.log_alpha))

    next_action, log_pi = sampled(learner.actor, x_next, after)
    v = np.minimum(*(q_value(net, x_next, next_action) for net in learner.targets)) - alpha * log_pi
    y = batch["reward"] + s.gamma * (1.0 - batch["terminated"]) * v
    log = {"critic/loss": sum(critic_loss(net, x, action, y) for net in learner.critics)}
    log["critic/q"] = float(q_value(learner.critics[0], x, action).mean())
    grads = [g for n in learner.critics for g in slopes(lambda net: critic_loss(net, x, action, y), n)]
    params = learner.adam["critics"].step(learner.optimised()["critics"], grads, s.eta)
    half = len(params) // 2
    learner.critics = [unflat(params[:half]), unflat(params[half:])]

    grads = slopes(lambda net: lagrangian(net, learner.critics, x, now, pairs, alpha, learner.lam, s), learner.actor)
    learner.actor = unflat(learner.adam["actor"].step(flat(learner.actor), grads, s.eta))

    entropy = -float(sampled(learner.actor, x, now)[1].mean())
    gap = entropy - s.target
    (log_alpha,) = learner.adam["log_alpha"].step([np.asarray(learner.log_alpha)], [np.asarray(alpha * gap)], s.kappa)
    learner.log_alpha = float(log_alpha)
    log |= {"alpha/value": float(np.exp(log_alpha)), "alpha/entropy": entropy}

    if pairs is not None:
        g = constraint(learner.actor, pairs, float(np.exp(log_alpha)), s)
        if s.dual_ascent:
            learner.lam = max(learner.lam + s.dual_rate * g, 0.0)
        nll = -log_mass(learner.actor, pairs[0], pairs[1], s.resolution).mean()
        log |= {"dual/lambda": learner.lam, "dual/constraint": g, "demo/nll": float(nll)}

    learner.targets = soft_numpy.tracked(learner.targets, learner.critics, s.epsilon)
    return log
