"""User-defined rules for counting violations. Learners never see them.

A rule has a name, and either a cost function or a key of `info`:

    RULES = {
        "too fast": lambda obs, action, next_obs: next_obs["speed"] > 0.3,  # above 0 if the rule is broken
        "crashed": "crashed",  # info["crashed"], as the environment reports it
    }

Rules come from `--rules my_rules.py`, from a run or study, or from the environment's attribute `rules`.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from scopil.data.dataset import Demonstrations, Episode
from scopil.envs.base import BatchEnv, Judge
from scopil.envs.spaces import joint_sizes
from scopil.errors import ConfigError
from scopil.user_code import load_module, load_object, split_name

# A key of `info`, or a function (obs, action, next_obs) → cost or dict of costs by name. A cost above 0 means that the
# rule is broken. Observations have the environment's form.
Rule = Callable[[Any, Any, Any], Any] | str
UNNAMED = ""  # for a function without a name, or a function that returns costs by name
EXAMPLE = "--rules my_rules.py or my_rules.py:name"


@dataclass(frozen=True)
class Rules:
    """Named rules and their source."""

    by_name: Mapping[str, Any]  # → Rule
    source: str | None = None  # name given by the caller: my_rules.py, module:name
    checked: bool = False  # whether the keys of `info` are known to exist: a step without one keeps the rule

    def __post_init__(self) -> None:
        if not self.by_name:
            raise ConfigError(f"{self.source or 'rules'}: no rules; want at least one.")
        for name, rule in self.by_name.items():
            if not isinstance(name, str) or "/" in name or (isinstance(rule, str) and not name):
                raise ConfigError(f"a rule is called {name!r}; want a name without '/'.")
            if not callable(rule) and not isinstance(rule, str):
                found = type(rule).__name__
                raise ConfigError(f"rule {name!r} is a {found}; want a function (obs, action, next_obs) or info key.")
        if len(self.by_name) > 1 and UNNAMED in self.by_name:
            raise _not_told_apart(UNNAMED, self.source)

    @classmethod
    def of(cls, given: Any, source: str | None = None) -> "Rules":
        """Rules from a function, a dict of functions or `info` keys, a list of these, or a file name."""
        if isinstance(given, Rules):
            return given
        if isinstance(given, str | Path):
            return load_rules(str(given))
        if isinstance(given, Mapping):
            return cls(dict(given), source)
        if callable(given):
            return cls({_name_of(given): given}, source)
        if isinstance(given, Sequence):
            names = [one if isinstance(one, str) else _name_of(one) for one in given]
            if twice := [name for i, name in enumerate(names) if name in names[:i]]:
                raise _not_told_apart(twice[0], source)
            return cls(dict(zip(names, given)), source)
        raise ConfigError(
            f"rules of type {type(given).__name__}; want a function of (obs, action, next_obs), a dict of functions or "
            f"info keys by name, or a file."
        )

    def known_to(self, episodes: Sequence[Episode]) -> "Rules | None":
        """The rules that apply to these episodes: all functions, and the keys present in the episodes' `info`."""
        reported = {key for episode in episodes for key in episode.info}
        kept = {n: rule for n, rule in self.by_name.items() if not isinstance(rule, str) or rule in reported}
        return replace(self, by_name=kept) if kept else None

    @cached_property
    def about(self) -> dict[str, str]:
        """A description of each rule: its key of `info`, or the first line of its docstring."""
        said = {name: _about(rule) for name, rule in self.by_name.items()}
        return {name: text for name, text in said.items() if name and text}

    @cached_property
    def digest(self) -> str:
        """A hash of the rules' names and source files. Stored evaluations with another hash are not reused."""
        files = {_file_of(rule) for rule in self.by_name.values()} - {None}
        text = [f"{name}={rule}" if isinstance(rule, str) else name for name, rule in self.by_name.items()]
        return hashlib.sha256("\n".join(text + sorted(map(str, files))).encode()).hexdigest()


def load_rules(name: str) -> Rules:
    """Rules by name: `my_rules.py` (its `RULES`, or else all its functions of obs, action and next_obs),
    `my_rules.py:name` or `module:name`."""
    if split_name(name)[1]:
        found = load_object(name, EXAMPLE)
        if isinstance(found, str | Path):  # it would be the name of other rules
            raise ConfigError(f"{name} is the text {str(found)[:40]!r}; want a function or a dict of rules.")
        return Rules.of(found, source=name)
    module = load_module(name, EXAMPLE)
    functions = [thing for key, thing in vars(module).items() if not key.startswith("_") and _is_rule(thing, module)]
    found = getattr(module, "RULES", None) or [*dict.fromkeys(functions)]  # a function with two names is one rule
    if not found:
        raise ConfigError(f"{name} has no rules; want a dict RULES, or functions def my_rule(obs, action, next_obs).")
    return Rules.of(found, source=name)


def name_of_rules(given: Any) -> str | None:
    """The name by which another process can load the rules; None if they have none."""
    if isinstance(given, str):
        return given
    if isinstance(given, Rules):
        return given.source
    module, name = getattr(given, "__module__", None), getattr(given, "__qualname__", "")
    return f"{module}:{name}" if name.isidentifier() and module not in (None, "__main__") else None


def with_rules(episodes: Sequence[Any], rules: Any, env: BatchEnv | Demonstrations | None = None) -> list[Episode]:
    """The same episodes with the costs of `rules` instead of the environment's costs.

    A function gets observations in the form of `env` or of the demonstrations. A step's
    cost belongs to its next state, so the initial state has no cost. A key of `info` also counts in the initial state.
    A step without the key keeps the rule. Raises ConfigError for a key that `check_keys` refuses.
    """
    rules, see = Rules.of(rules), (lambda row: row) if env is None else env.as_given
    check_keys(rules, episodes, env)
    return [_judged(episode, rules, see, _taken(env)) for episode in episodes]


def check_keys(rules: Rules, episodes: Sequence[Any], env: Any) -> None:
    """Raise ConfigError for a rule on a key of `info` that neither the episodes nor random play of the environment
    have: it cannot be told from a misspelt one, whose count would be a false 0."""
    reported = {name for episode in episodes for name in episode.info}
    keys = {rule: name for name, rule in rules.by_name.items() if isinstance(rule, str)}
    if rules.checked or reported.issuperset(keys):
        return
    if isinstance(env, BatchEnv):
        reported |= env.info_keys(keys.keys() - reported)
    for key in [key for key in keys if key not in reported]:
        raise ConfigError(
            f"rule {keys[key]!r} counts info[{key!r}], which no step has, of these episodes or of random play; they "
            f"have {', '.join(sorted(reported)) or 'none'}. Correct the name, or set the key in `reset` too, to 0."
        )


def judge_of(rules: Rules, env: BatchEnv) -> Judge:
    """Whether a step breaks any of the rules, as a number. A step without an `info` key keeps the rule."""
    see, take = env.as_given, _taken(env)

    def broken(row: Any, action: Any, next_row: Any, info: Mapping[str, float]) -> float:
        given = see(row), take(action), see(next_row)
        for name, rule in rules.by_name.items():
            costs = [info.get(rule, 0.0)] if isinstance(rule, str) else _by_name(name, rule(*given)).values()
            if any(cost > 0 for cost in costs):
                return 1.0
        return 0.0

    return broken


def by_own_rules(env: BatchEnv, episodes: list[Episode]) -> list[Episode]:
    """Episodes with the costs of the environment's own rules; unchanged if it has none."""
    rules = own_rules(env)
    return episodes if rules is None else with_rules(episodes, rules, env)


def own_rules(env: BatchEnv) -> Rules | None:
    """The attribute `rules` of an environment."""
    given = env.hook("rules")
    return None if given is None else Rules.of(given)


def _taken(env: BatchEnv | Demonstrations | None) -> Callable[[Any], Any]:
    """The conversion of stored actions for rules: a joint discrete action is stored as a number; rules get a vector."""
    if not isinstance(env, BatchEnv) or joint_sizes(env.spaces.env_action) is None:
        return lambda action: action
    return lambda action: env.spaces.to_env(action) if np.ndim(action) == 0 else action


def _judged(episode: Episode, rules: Rules, see: Callable[[Any], Any], take: Callable[[Any], Any]) -> Episode:
    seen, actions = [see(row) for row in episode.observations], [take(one) for one in episode.actions]
    costs: dict[str, np.ndarray] = {}
    for name, rule in rules.by_name.items():
        if isinstance(rule, str):
            mine = {f"cost_{name}": episode.info.get(rule, np.zeros(len(seen)))}
        else:
            mine = _costs(name, rule, seen, actions)
        if twice := [key for key in mine if key in costs]:  # a function may return costs by name
            raise _not_told_apart(twice[0].removeprefix("cost_"), rules.source)
        costs |= mine
    kept = {k: v for k, v in episode.info.items() if k != "cost" and not k.startswith("cost_")}
    # A function may report broken rules only. An episode without violations then has no costs.
    return replace(episode, info=kept | (costs or {"cost": np.zeros(len(seen))}))


def _costs(name: str, rule: Callable[..., Any], seen: Sequence[Any], actions: Any) -> dict[str, np.ndarray]:
    found = []
    for t in range(len(actions)):
        try:
            found.append(_by_name(name, rule(seen[t], actions[t], seen[t + 1])))
        except Exception as error:
            raise ConfigError(
                f"rule {name or _name_of(rule) or 'without a name'!r} failed at step {t}: {type(error).__name__}: "
                f"{error}; want a function of (obs, action, next_obs) → a number, or numbers by rule name."
            ) from error
        if odd := [key for key, cost in found[-1].items() if not np.isfinite(cost)]:
            raise ConfigError(f"rule {odd[0].removeprefix('cost_')!r} is not a finite number at step {t}; want one.")
    names = dict.fromkeys(key for step in found for key in step)
    return {key: np.array([0.0, *(step.get(key, 0.0) for step in found)]) for key in names}


def _by_name(name: str, cost: Any) -> dict[str, float]:
    if isinstance(cost, Mapping):
        return {f"cost_{rule}": _number(value) for rule, value in cost.items()}
    return {f"cost_{name}" if name else "cost": _number(cost)}


def _number(cost: Any) -> float:
    """A number, also of an array with one element: rules on `obs["battery"]` of a `Box` with shape (1,) give these."""
    return float(np.asarray(cost).item())


def _not_told_apart(name: str, source: str | None) -> ConfigError:
    """The error for two rules with the same name: only one of them would be counted."""
    what = f"two rules are called {name!r}" if name else "several rules, of which not all have a name"
    return ConfigError(
        f"{source or 'rules'}: {what}; want a name of its own for each. Give them as a dict by name: "
        f'{{"too fast": one, "off the road": another}}.'
    )


def _name_of(rule: Any) -> str:
    name = getattr(rule, "__name__", UNNAMED)
    return name if name.isidentifier() else UNNAMED  # a lambda has no name


def _is_rule(thing: Any, module: Any) -> bool:
    if not inspect.isfunction(thing) or thing.__module__ != module.__name__:
        return False
    return list(inspect.signature(thing).parameters)[:3] == ["obs", "action", "next_obs"]


def _about(rule: Rule) -> str:
    if isinstance(rule, str):
        return f'info["{rule}"] above 0'
    return (inspect.getdoc(rule) or "").partition("\n")[0].rstrip(".")


def _file_of(rule: Rule) -> str | None:
    """The text of the file that defines a function."""
    try:
        return None if isinstance(rule, str) else Path(inspect.getfile(rule)).read_text()
    except (TypeError, OSError):  # a built-in function, or one defined in a console
        return None
