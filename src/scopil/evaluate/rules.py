"""Rules of the caller's own, to count violations by."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from scopil.demos.dataset import Episode
from scopil.errors import ConfigError

# (observation, action, next observation) → a number, above 0 where the rule is broken, or such numbers by rule name
Rules = Callable[[np.ndarray, Any, np.ndarray], Any]


def with_rules(episodes: Sequence[Any], rules: Rules) -> list[Episode]:
    """The same episodes judged by `rules`, in place of the costs that the environment reported.

    Every step is judged with the state it leads to; the initial state counts as lawful.
    """
    return [_judged(episode, rules) for episode in episodes]


def _judged(episode: Episode, rules: Rules) -> Episode:
    seen = episode.observations
    try:
        found = [_by_name(rules(seen[t], episode.actions[t], seen[t + 1])) for t in range(len(episode))]
        costs = {name: np.array([0.0, *(step[name] for step in found)]) for name in found[0]}
    except Exception as error:
        raise ConfigError(
            f"the rules failed: {type(error).__name__}: {error}; want rules(obs, action, next_obs) → a number, or "
            f"numbers by rule name."
        ) from error
    kept = {k: v for k, v in episode.info.items() if k != "cost" and not k.startswith("cost_")}
    return replace(episode, info=kept | costs)


def _by_name(cost: Any) -> dict[str, float]:
    if isinstance(cost, Mapping):
        return {f"cost_{rule}": float(value) for rule, value in cost.items()}
    return {"cost": float(cost)}
