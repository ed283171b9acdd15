"""Measures of an episode, and their averages.

reward, steps             sum of the rewards, if recorded; number of actions
violations                number of (visited state, rule) pairs with a cost above 0, including the initial state; if
                          the environment names no rules, number of states with `cost` above 0
violations/<rule>         the same for one rule
frequency, frequency/…    violations divided by steps
avoidable                 violations except those of the initial state, which no policy can avoid
success                   1 if `info["is_success"]` or `info["success"]` of the last state is true, if it is reported
unfamiliar                share of states less familiar than 90 % of the demonstrated ones, if familiarity is known
interventions             share of steps whose action the policy's shield changed, if it has one; for sampled actions,
                          the share among other samples in the same states

An environment that reports no cost has no violations. A method `measures(episode)` of the environment adds measures.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from scopil.data.dataset import Episode
from scopil.envs.base import BatchEnv
from scopil.envs.gym_vector import is_nan
from scopil.errors import EnvError
from scopil.eval.rules import UNNAMED, with_rules

Measures = dict[str, float]
UNFAMILIAR = 0.1
SUCCESS = ("is_success", "success")  # keys of `info`, as in Stable-Baselines3 and Gymnasium-Robotics
COUNTS = ("violations", "frequency", "avoidable")  # a missing count is 0: the rule was never broken


def broken_rules(episode: Episode) -> dict[str, np.ndarray]:
    """For each rule, whether each visited state breaks it. If `info` has a cost per rule, `cost` summarises them and is
    not counted. Otherwise `cost` is the only rule and has no name."""
    named = {k.removeprefix("cost_"): v > 0 for k, v in episode.info.items() if k.startswith("cost_")}
    return named or ({UNNAMED: episode.info["cost"] > 0} if "cost" in episode.info else {})


def breaks_a_rule(episode: Episode) -> np.ndarray:
    """Whether each visited state breaks any rule; all False if there are no rules."""
    return np.any([np.zeros(len(episode) + 1, bool), *broken_rules(episode).values()], axis=0)


def measure(episode: Episode, further: Callable[[Episode], dict[str, float]] | None = None) -> Measures:
    """The measures of one episode. `further` computes the environment's own measures."""
    for name, costs in episode.info.items():
        if name.startswith("cost") and is_nan(costs):
            at = int(np.argmax(np.isnan(costs)))
            raise EnvError(f"{name} is NaN after step {at} of an episode; want a number, 0 if no rule is violated.")
    broken = broken_rules(episode)
    steps = len(episode)
    out = {} if episode.rewards is None else {"reward": episode.total_reward}
    out["steps"] = float(steps)
    if (flag := next((key for key in SUCCESS if key in episode.info), None)) is not None:
        out["success"] = float(episode.info[flag][-1] > 0)
    if further is not None:
        out |= {name: float(value) for name, value in further(episode).items()}
    if broken:
        out["violations"] = float(sum(np.sum(v) for v in broken.values()))
        out["frequency"] = out["violations"] / steps
        out["avoidable"] = float(sum(np.sum(v[1:]) for v in broken.values()))
    if (familiar := episode.info.get("familiarity")) is not None:
        out["unfamiliar"] = float(np.mean(familiar < UNFAMILIAR))
    if (changed := episode.info.get("intervened")) is not None:
        out["interventions"] = float(np.sum(changed)) / steps
    for rule, v in broken.items():
        if rule != UNNAMED:
            out[f"violations/{rule}"] = float(np.sum(v))
            out[f"frequency/{rule}"] = float(np.sum(v)) / steps
    return out


def measure_all(episodes: Sequence[Any], env: BatchEnv | None = None, rules: Any = None) -> list[Measures]:
    """Measures of each episode, including the environment's own. `rules`, in any form that `Rules.of` takes, replace
    the costs that the environment reported."""
    judged = episodes if rules is None else with_rules(episodes, rules, env)
    further = None if env is None else env.hook("measures")
    return [measure(episode, further) for episode in judged]


def average(measures: Sequence[Measures]) -> Measures:
    """The mean of each measure over episodes."""
    return {name: mean for name, (mean, _) in mean_and_std(measures).items()}


def with_margin(measures: Sequence[Measures]) -> dict[str, tuple[float, float]]:
    """The mean of each measure over episodes, and half of its 95 % interval (Student's). It is NaN for one episode, and
    for a count that is 0 in all of them: their deviation says nothing (`never`)."""
    from scipy.special import stdtrit

    n = len(measures)
    widths = stdtrit(max(n - 1, 1), 0.975) / math.sqrt(n - 1) if n > 1 else math.nan
    found = mean_and_std(measures)
    return {k: (mean, math.nan if is_never(k, mean) else widths * std) for k, (mean, std) in found.items()}


def clopper_pearson_upper(k: int, n: int, level: float = 0.95) -> float:
    """Exact one-sided upper bound on a probability after k hits in n independent trials: the p with
    P(X ≤ k) = 1 − level."""
    from scipy.special import betaincinv

    if not 0 <= k <= n or n < 1:
        raise ValueError(f"{k} hits in {n} trials")
    return 1.0 if k == n else float(betaincinv(k + 1, n - k, level))


def share_interval(hits: int, trials: int) -> tuple[float, float]:
    """The exact 95 % interval of a share (Clopper and Pearson): `hits` of `trials` episodes."""
    return 1.0 - clopper_pearson_upper(trials - hits, trials, 0.975), clopper_pearson_upper(hits, trials, 0.975)


def is_never(name: str, mean: object) -> bool:
    """Whether the mean is that of a count of violations which is 0 in every episode."""
    return mean == 0 and name.partition("/")[0] in COUNTS


def never(episodes: int) -> str:
    """What these episodes say about a rule that none of them breaks: `0 (≤ 7.2 %)`. The share is the
    exact one-sided upper bound, with 95 % confidence, of episodes that break it."""
    return f"0 (≤ {percent(clopper_pearson_upper(0, episodes))})"


def percent(share: float) -> str:
    """Two digits: `24 %`, `8.8 %`, `0.037 %`."""
    return f"{100 * share:{'.0f' if share >= 0.1 else '.2g'}} %"


def violating_words(measures: Sequence[Measures]) -> str:
    """How many of the episodes have a violation; empty if violations are not counted."""
    if not any("violations" in m for m in measures):
        return ""
    hits, n = sum(m.get("violations", 0.0) > 0 for m in measures), len(measures)
    low, high = share_interval(hits, n)
    return (
        f"{hits} of {n} episodes have a violation: {percent(hits / n)}, 95 % interval {percent(low)} to {percent(high)}"
    )


def score(measures: Measures) -> tuple[float, float]:
    """Sort key of evaluations: first fewer avoidable violations, then more reward."""
    return -measures.get("avoidable", 0.0), measures["reward"]


def mean_and_std(runs: Sequence[Measures]) -> dict[str, tuple[float, float]]:
    """Mean and (population) standard deviation over independent runs. If a run does not report a
    rule, the count is 0. Any other measure is averaged over the runs that report it."""
    names = dict.fromkeys(name for run in runs for name in run)
    values = {
        name: [run.get(name, 0.0) for run in runs if name in run or name.partition("/")[0] in COUNTS] for name in names
    }
    return {name: (float(np.mean(v)), float(np.std(v))) for name, v in values.items()}


def warning(episodes: Sequence[Episode]) -> Measures:
    """How well familiarity predicts broken rules, over all states.

    `auc`: the probability that a state that breaks a rule is less familiar than a state that breaks none; `flagged, …`:
    the share of unfamiliar states among each of these two kinds; `precision`: the share of unfamiliar states that break
    a rule, if any state is unfamiliar. Empty if familiarity or costs are unknown, or if one kind has no states."""
    known = [e for e in episodes if "familiarity" in e.info]
    if not known:
        return {}
    novelty = -np.concatenate([e.info["familiarity"] for e in known])
    broken = np.concatenate([breaks_a_rule(e) for e in known])
    if broken.all() or not broken.any():
        return {}
    flagged = novelty > -UNFAMILIAR
    below = np.searchsorted(np.sort(novelty[~broken]), novelty[broken], "left")
    upto = np.searchsorted(np.sort(novelty[~broken]), novelty[broken], "right")
    found = {
        "auc": float((below + upto).mean() / 2 / (~broken).sum()),
        "flagged, breaking a rule": float(flagged[broken].mean()),
        "flagged, lawful": float(flagged[~broken].mean()),
    }
    return found | ({"precision": float(broken[flagged].mean())} if flagged.any() else {})


_LABELS = {"violations": "Violations", "frequency": "Violations per step", "avoidable": "Avoidable violations"}


def label(name: str) -> str:
    """A table heading: `violations/circle` → Violations (circle)."""
    what, _, rule = name.partition("/")
    plain = _LABELS.get(what, what.replace("_", " ").capitalize())
    return f"{plain} ({rule})" if rule else plain
