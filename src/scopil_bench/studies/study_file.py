"""Studies read from files: a TOML file, or a Python file that defines `STUDY`.

    seeds = 3
    steps = 20_000
    env = "my_env.py:MyEnv"               # or several, as [settings.NAME] with env, demos, rules and title
    demos = "shown.npz"
    rules = "my_rules.py"
    demonstrator = "my_expert.py:act"      # optional: plays from the same starts as the policies
    methods = ["scopil-rho", "sac", "bc"]   # or [methods.NAME] with algorithm, title and settings of the algorithm

    [overrides]                            # settings for every method that has them
    hidden = [64, 64]

File names are relative to the working folder.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from scopil.algos.base import Algorithm
from scopil.config import build, near, settings
from scopil.errors import ConfigError
from scopil.eval.rules import Rules
from scopil.registry import find
from scopil.user_code import load_module, load_object
from scopil_bench.studies.base import Budget, Method, Study, Task
from scopil_bench.summaries import EVALUATIONS, Table

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")  # a folder name
_TASK = {"env": str, "demos": str, "rules": str, "demonstrator": str, "title": str}
_COUNTS = ("seeds", "steps", "eval_every", "checkpoint_every", "episodes")
_KNOWN = {
    **{"name": str, "title": str, "about": str},
    **{"settings": dict, "methods": (list, dict), "overrides": dict, "evaluations": list, "tune": dict},
    **_TASK,
    **dict.fromkeys(_COUNTS, int),
}
_WORDS = {str: "text", int: "a whole number", dict: "a table", list: "a list", (list, dict): "a list or a table"}


def is_study_file(name: str) -> bool:
    return name.endswith((".toml", ".py"))


def read_study(path: str | Path) -> Study:
    """Read a study from a file. This may run code that the file names, so the path must come from the user."""
    file = Path(path)
    content = _content(file)
    if isinstance(content, Study):
        return replace(content, source=content.source or str(file))
    return study_from(content, name=file.stem, source=str(file))


def read_tuning(path: str | Path) -> dict[str, Any]:
    """The table `tune` of a study file."""
    content = _content(Path(path))
    found = None if isinstance(content, Study) else content.get("tune")
    if not found:
        raise ConfigError(
            f"{path} has no table tune; want [tune] with a method, and [tune.settings] with a range for each setting."
        )
    return found


def _content(file: Path) -> Study | Mapping[str, Any]:
    if file.suffix == ".py":
        module = load_module(str(file), "scopil study my_study.py")
        found = getattr(module, "STUDY", None)
        if not isinstance(found, Study | Mapping):
            raise ConfigError(
                f"{file} has no STUDY; want STUDY = scopil_bench.Study(…), or a dict as a TOML file would hold it."
            )
        return found
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"no study file {file} in {Path.cwd()}.") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}.") from error


def study_from(plan: Mapping[str, Any], *, name: str = "study", source: str | None = None) -> Study:
    """A study from plain values, as in a TOML file."""
    where = source or name
    _check(plan, _KNOWN, where)
    name = _folder_name(plan.get("name", name), where)
    chosen, methods = _tasks(plan, name, where), _methods(plan, where)
    for count in _COUNTS:
        if count in plan and plan[count] < 1:
            raise ConfigError(f"{where}: {count} = {plan[count]}; want at least 1.")
    evaluations = tuple(plan.get("evaluations", EVALUATIONS))
    if not evaluations or not set(evaluations) <= set(EVALUATIONS):
        raise ConfigError(f"{where}: evaluations = {list(evaluations)}; want some of {', '.join(EVALUATIONS)}.")
    budget = {key: plan[key] for key in ("steps", "eval_every", "checkpoint_every") if key in plan}
    return Study(
        name=name,
        title=plan.get("title", name),
        about=plan.get("about", ""),
        tasks=chosen,
        tables={key: Table(task.title, key, tuple(methods), tuple(methods)) for key, task in chosen.items()},
        budgets={"full": Budget(seeds=plan.get("seeds", 3), **budget)},
        methods=methods,
        evaluations=evaluations,
        episodes=plan.get("episodes"),
        glossary=_legend(chosen),
        source=source,
    )


def _legend(chosen: Mapping[str, Task]) -> list[str]:
    """The descriptions of the rules. Raises, before training, if a file of rules cannot be read."""
    files = dict.fromkeys(task.rules for task in chosen.values() if task.rules is not None)
    return [f"{rule}: {text}." for file in files for rule, text in Rules.of(file).about.items()]


def _tasks(plan: Mapping[str, Any], only: str, where: str) -> dict[str, Task]:
    given = plan.get("settings")
    if given is None:
        given = {only: {key: plan[key] for key in _TASK if key in plan}}
    elif odd := [key for key in ("env", "demos", "rules", "demonstrator") if key in plan]:
        raise ConfigError(f"{where}: {odd[0]} and [settings.…] are both given; put {odd[0]} into each setting.")
    made = {}
    for name, one in given.items():
        at = where if "settings" not in plan else f"{where}: [settings.{_folder_name(name, where)}]"
        _check(one, _TASK, at)
        if "env" not in one:
            raise ConfigError(f'{at}: no env; want env = "CartPole-v1" or env = "my_env.py:MyEnv".')
        found = {"title": plan.get("title", name)} | dict(one)
        if "demonstrator" in one:
            found["demonstrator"] = _expert(one["demonstrator"], at)
        made[name] = Task(**found)
    return made


def _expert(name: str, where: str) -> Any:
    """The scripted expert. Raises, before training, if it cannot be loaded."""
    found = load_object(name, 'demonstrator = "my_expert.py:act"')
    if not callable(found) and not hasattr(found, "predict"):
        want = "a function act(obs), or an object with `predict`"
        raise ConfigError(f"{where}: demonstrator = {name!r} is a {type(found).__name__}; want {want}.")
    return found


def _methods(plan: Mapping[str, Any], where: str) -> dict[str, Method]:
    given = plan.get("methods")
    if not given:
        raise ConfigError(f'{where}: no methods; want methods = ["scopil", "sac", "bc"].')
    if isinstance(given, list):
        given = {str(name): {} for name in given}
    overrides, used, made = plan.get("overrides", {}), set(), {}
    for name, one in given.items():
        at = f"{where}: [methods.{_folder_name(name, where)}]"
        if not isinstance(one, Mapping):
            raise ConfigError(f"{at} is {one!r}; want a table of settings.")
        config = dict(one)
        algorithm, title = find(config.pop("algorithm", name)), config.pop("title", None)
        known = {s.name for s in settings(algorithm.config)}
        common = {key: value for key, value in overrides.items() if key in known}
        used |= set(common)
        made[name] = Method(algorithm=algorithm, title=title, config=_built(algorithm, common | config, at))
    if odd := sorted(set(overrides) - used):
        known = {s.name for method in made.values() for s in settings(method.algorithm.config)}
        raise ConfigError(
            f"{where}: [overrides] {odd[0]}: none of {', '.join(made)} has this setting.{near(odd[0], known)}"
        )
    return made


def _built(algorithm: Algorithm, config: dict[str, Any], at: str) -> dict[str, Any]:
    try:
        build(algorithm.config, config)
    except ConfigError as error:
        raise ConfigError(f"{at} {error}") from error
    return config


def _folder_name(name: str, where: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: the name {name!r}; want letters, digits and . + - _ (it becomes a folder).")
    return name


def _check(given: Any, known: Mapping[str, Any], where: str) -> None:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} is {given!r}; want a table.")
    for key, value in given.items():
        if key not in known:
            raise ConfigError(f"{where}: no entry {key}; there are {', '.join(known)}.{near(key, known)}")
        if not isinstance(value, known[key]) or isinstance(value, bool):
            raise ConfigError(f"{where}: {key} = {value!r}; want {_WORDS[known[key]]}.")
